import math

import numpy as np
import pytest
import torch

from overt.errors import InputError
from overt.explain import text_model
from overt.explain.recipes.qkv import compare, qkv
from text import TIRED, WIDE, saved


@pytest.fixture(scope="module")
def tired(minilm):
    return qkv(minilm, TIRED, "it")


def test_the_strongest_links_of_the_sentence_are_found(tired):
    result = [(f"L{link.layer}H{link.head}", link.token, round(link.weight, 2), link.pattern) for link in tired.links]
    assert result == [
        ("L0H2", "because", 1.00, "always the previous token"),
        ("L1H8", "was", 0.75, "usually the next token"),
        ("L2H1", "tired", 0.69, ""),
        ("L3H1", "animal", 0.64, ""),
        ("L4H3", "animal", 0.23, ""),
        ("L5H11", "animal", 0.65, ""),
    ]
    assert tired.name == "L5H11"
    assert tired.why == "the last layer's strongest link to another word"


def test_heads_that_look_at_special_tokens_are_counted_apart(tired):
    looks = tired.looks
    assert (looks.heads, looks.special, looks.itself) == (72, 54, 1)
    assert looks.names == "[CLS] (53) and [SEP] (1)"
    assert [tired.tokens[index] for index in tired.special] == ["[CLS]", "[SEP]"]


def test_the_six_steps_have_the_models_numbers(tired):
    animal = tired.steps[tired.tokens.index("animal")]
    assert (round(animal.score, 2), round(animal.scaled, 2), round(animal.weight, 3)) == (23.43, 4.14, 0.647)
    assert [round(entry, 2) for entry in tired.query[:3]] == [-0.20, 0.34, 0.13]
    assert [round(entry, 2) for entry in animal.weighted[:3]] == [2.03, 0.01, 0.27]
    assert [round(entry, 2) for entry in tired.output[:3]] == [1.93, 0.06, 0.28]
    assert (tired.scale_name, tired.score_name, tired.normalizer) == ("√32", "q·k", "softmax")


def test_the_steps_follow_from_each_other(tired):
    keys, values = (np.array([getattr(step, name) for step in tired.steps]) for name in ("key", "value"))
    raw = keys @ np.array(tired.query)
    np.testing.assert_allclose([step.score for step in tired.steps], raw, atol=1e-4)
    scaled = raw / math.sqrt(32)
    np.testing.assert_allclose([step.scaled for step in tired.steps], scaled, atol=1e-5)
    weights = np.exp(scaled) / np.exp(scaled).sum()
    np.testing.assert_allclose([step.weight for step in tired.steps], weights, atol=1e-6)
    np.testing.assert_allclose([step.weighted for step in tired.steps], weights[:, None] * values, atol=1e-6)
    np.testing.assert_allclose(tired.output, weights @ values, atol=1e-5)


def test_rows_and_matrix_agree_with_the_steps(tired):
    layer, head = tired.shown
    weights = [step.weight for step in tired.steps]
    assert tired.rows[layer][head] == weights
    np.testing.assert_allclose(tired.matrix[tired.word], weights, atol=1e-6)
    assert [len(heads) for heads in tired.rows] == [12] * 6
    np.testing.assert_allclose([sum(row) for heads in tired.rows for row in heads], 1, atol=1e-5)


def test_recomputed_and_the_models_own_output_agree(tired):
    assert 0 < tired.residual < 1e-5
    assert tired.residual < tired.bound


def test_a_head_may_be_chosen(minilm):
    chosen = qkv(minilm, TIRED, "it", layer=3, head=1)
    assert (chosen.name, chosen.why) == ("L3H1", "chosen: layer 3, head 1")
    assert chosen.rows[3][1][2] == pytest.approx(0.64, abs=0.005)
    strongest = qkv(minilm, TIRED, "it", layer=2)
    assert (strongest.name, strongest.why) == ("L2H1", "layer 2's strongest link to another word")
    assert qkv(minilm, TIRED, "it", head=0).name == "L5H0"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 6}, "a layer from 0 to 5, got --layer 6"),
        ({"layer": -1}, "a layer from 0 to 5, got --layer -1"),
        ({"layer": 0, "head": 12}, "a head from 0 to 11 in layer 0, got --head 12"),
    ],
)
def test_layers_and_heads_that_do_not_exist_are_refused(minilm, options, message):
    with pytest.raises(InputError, match=message):
        qkv(minilm, TIRED, "it", **options)


def test_two_sentences_side_by_side_show_that_the_model_does_not_resolve_the_word(minilm):
    first, second = compare(minilm, TIRED, WIDE, "it")
    assert (first.name, second.name) == ("L5H11", "L5H11")
    assert second.why == "the same head as in the first sentence"
    assert second.notes[:2] == [
        "In both sentences L5H11 links “it” most strongly to “animal”, 0.65 and 0.50. "
        "Where “it” means something else in the second, this head does not show it.",
        "L3H1 changes most: its weight on “animal” falls from 0.64 to 0.27.",
    ]


def test_a_head_that_points_elsewhere_is_said_to(minilm):
    second = compare(minilm, "The dog chased the cat because it was hungry", "The boy sold the car because it was old", "it")[1]
    assert second.notes[0].startswith(
        "L5H11 links “it” most strongly to “cat” in the first and to “car” in the second, 0.45 and 0."
    )


def test_one_sentence_attends_to_another(minilm):
    result = qkv(minilm, "The cat sat", "cat", other="A dog lay on the rug", layer=5, head=11)
    assert result.tokens == ["[CLS]", "a", "dog", "lay", "on", "the", "rug", "[SEP]"]
    assert result.query_tokens == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert np.array(result.matrix).shape == (5, 8)
    asking, source = qkv(minilm, "The cat sat", "cat", layer=5, head=11), qkv(minilm, "A dog lay on the rug", layer=5, head=11)
    scores = np.array([step.key for step in source.steps]) @ np.array(asking.query) / math.sqrt(32)
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose([step.weight for step in result.steps], weights, atol=1e-6)
    assert result.residual is None
    assert any("It was not trained for that." in note for note in result.notes)


def test_the_loop_form_equals_the_matrices(minilm):
    timing = qkv(minilm, "The cat sat", "cat", loop=True).loop
    assert timing.difference < 1e-5
    assert timing.loop > timing.matrices > 0
    with pytest.raises(InputError, match="at most 64 tokens for the loop form.*, got 82 tokens.*leave out --loop"):
        qkv(minilm, "a " * 79 + "b", loop=True)


def test_a_word_in_pieces_asks_through_its_last_and_none_of_its_pieces_is_a_link(minilm):
    result = qkv(minilm, "The animal didn't cross", "didn't")
    assert (result.word, result.tokens[result.word]) == (5, "t")
    assert result.notes[0] == "The model reads “didn't” as 3 pieces, didn · ' · t; the query is that of the last one."
    assert not {3, 4, 5} & {link.index for link in result.links}


def test_a_text_of_one_word_has_no_links(minilm):
    result = qkv(minilm, "Hello", "Hello")
    assert result.links == []
    assert result.why == "the last layer's first head, since none has a link to another word"


def test_what_is_not_read_is_said(minilm):
    result = qkv(minilm, "a " * 600, "a:1", truncate=True)
    assert "Only the first 512 tokens of the text were read." in result.notes


def test_a_decoder_attends_backwards_only(tmp_path):
    model = text_model.find(saved(tmp_path, "GPT2", n_embd=16, n_layer=2, n_head=4, n_positions=40))
    result = qkv(model, TIRED, "it", loop=True)
    later = result.steps[result.word + 1 :]
    assert all(step.weight == 0 and step.scaled == -math.inf for step in later)
    assert result.residual < result.bound
    assert result.loop.difference < 1e-5


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (
            "Llama",
            {
                "hidden_size": 16,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "intermediate_size": 16,
            },
        ),
        ("T5", {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4}),
        (
            "Albert",
            {"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16},
        ),
    ],
)
def test_other_families_recompute_their_own_attention(tmp_path, kind, options):
    model = text_model.find(saved(tmp_path, kind, **options))
    result = qkv(model, TIRED, "it")
    assert [len(heads) for heads in result.rows] == [4, 4]
    assert result.residual < 1e-5
    assert result.residual < result.bound


def test_a_model_in_half_precision_stands_beside_its_own_bound(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 16}
    model = text_model.find(saved(tmp_path, "Llama", dtype="bfloat16", **sizes))
    result = qkv(model, TIRED, "it", loop=True)
    assert model.network.dtype == torch.bfloat16
    assert result.residual < result.bound
    assert len(result.steps) == 15


def test_a_model_without_attention_over_the_text_is_refused(minilm):
    class Silent:
        name, notes, network = "silent", (), torch.nn.Linear(1, 1)
        encode = staticmethod(minilm.encode)

        def run(self, encoded):
            self.network(torch.ones(1))

    with pytest.raises(
        InputError, match="Expected a model that computes attention by torch.nn.functional.scaled_dot_product_attention"
    ):
        qkv(Silent(), TIRED, "it")
