import pytest
import torch

from overt.cli.shared.translator_as_text_model import written
from overt.errors import InputError
from overt.explain.recipes.encoder_decoder import between
from overt.learn.processing.edits import token_spans
from translators import ENGLISH, by_heart


@pytest.fixture(scope="module")
def translated():
    [translation] = by_heart().translate([ENGLISH[0]])
    return translation, written(by_heart(), ENGLISH[0], translation)


def test_each_written_token_is_explained_by_the_decoders_own_weights(translated):
    translation, recorded = translated
    result = [between(recorded, index) for index in range(len(translation.tokens) + 1)]
    cross = by_heart().model.weights(*by_heart().teacher_forced(ENGLISH[0], translation))["cross"]  # a layer: (1, H, T, S)
    assert [each.word for each in result] == list(range(len(translation.tokens) + 1))
    for each in result:
        torch.testing.assert_close(torch.tensor(each.rows), torch.stack(cross)[:, 0, :, each.word])


def test_the_head_that_reaches_the_text_best_is_shown(translated):
    translation, recorded = translated
    cross = torch.stack(by_heart().model.weights(*by_heart().teacher_forced(ENGLISH[0], translation))["cross"])[
        :, 0
    ]  # (L, H, T, S)
    reach = cross[..., :-1, :-1].amax(-2).mean(-1)  # (L, H), the ends' marks left out
    assert {between(recorded, index).shown for index in (0, 1)} == {divmod(int(reach.argmax()), reach.shape[1])}


def test_both_texts_are_told_apart_and_their_ends_are_special(translated):
    translation, recorded = translated
    result = between(recorded)
    assert (result.text, result.other) == (translation.text, ENGLISH[0])
    assert result.tokens[result.special[0]] == result.query_tokens[-1] == "</s>"
    assert result.residual <= result.bound
    assert "each row is a token that the decoder writes" in " ".join(result.notes).lower()


def test_a_model_without_attention_between_two_texts_is_refused(translated):
    _, recorded = translated
    with pytest.raises(
        InputError, match="a model whose decoder attends to its encoder.*got ten sentences, decoder, whose attention"
    ):
        between(recorded._replace(read=recorded.read.plain))


def test_spans_go_on_after_a_token_that_the_text_does_not_have():
    assert token_spans("a ☂ bc", ["▁a", "<unk>", "▁b", "c"]) == [(0, 1), (1, 1), (4, 5), (5, 6)]
