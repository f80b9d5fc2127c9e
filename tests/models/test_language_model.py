"""The language model: it sees only what came before, and goes on from prompts of any lengths."""

import pytest
import torch

from overt.errors import InputError
from overt.lens import record
from overt.models import LanguageModel, TransformerEncoder

POSITIONS = [None, "sinusoidal", "learned", "rotary", "alibi", "relative"]


def language_model(dtype=torch.float64, **options):
    torch.manual_seed(0)
    model = LanguageModel(20, 16, 4, 2, 24, **options)
    for name, parameter in model.named_parameters():
        if "positions" in name or name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return model.to(dtype).eval()


def tokens(rows=3, length=8):
    return torch.randint(3, 20, (rows, length), generator=torch.Generator().manual_seed(1))


def close(result, wanted):
    torch.testing.assert_close(result, wanted, rtol=1e-10, atol=1e-10)


def test_a_word_sees_nothing_that_comes_after_it():
    model, text = language_model(), tokens()
    other = text.clone()
    other[:, 5:] = 3
    assert torch.equal(model(text)[:, :5], model(other)[:, :5])


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kv_heads", [None, 2, 1])
@pytest.mark.parametrize("prompts", [[4, 4, 4], [4, 1, 2], [0, 3, 1]])
@pytest.mark.few_cases(8)
def test_cached_equals_uncached(positions, kv_heads, prompts):
    model, text = language_model(positions=positions, kv_heads=kv_heads), tokens()
    with torch.no_grad():
        whole = model(text)
        memory = model.start(text[:, : max(prompts)], lengths=torch.tensor(prompts))
        for step in range(4):
            indices = [prompt + step for prompt in prompts]
            close(model.step(text[range(3), indices], memory), whole[range(3), indices])


@pytest.mark.parametrize("positions", POSITIONS)
def test_texts_in_one_row_have_the_scores_that_each_has_alone(positions):
    model, text = language_model(positions=positions), tokens(1, 9)
    with torch.no_grad():
        together = model(text, documents=torch.tensor([[7, 7, 7, 7, 0, 0, 3, 3, 3]]))
        close(together, torch.cat([model(text[:, :4]), model(text[:, 4:6]), model(text[:, 6:])], dim=1))


def test_numbers_of_texts_that_do_not_fit_are_a_sentence():
    model, text = language_model(), tokens()
    with pytest.raises(InputError, match=r"one for each token, got documents \(3, 7\) for tokens \(3, 8\)"):
        model(text, documents=torch.zeros(3, 7, dtype=torch.long))
    with pytest.raises(InputError, match="documents or caches, got both"):
        model.body(text, documents=torch.zeros_like(text), caches=model.start(text[:, :0]).caches)


def test_an_empty_prompt_is_where_a_text_begins():
    model, text = language_model(), tokens()
    with torch.no_grad():
        memory = model.start(text[:, :0])
        close(torch.stack([model.step(each, memory) for each in text.T], dim=1), model(text))


def test_rows_go_on_from_the_rows_they_come_from():
    model, text = language_model(positions="rotary"), tokens()
    order = [2, 0, 0, 1]
    with torch.no_grad():
        memory = model.start(text[:, :6])
        memory.reorder(order)
        close(model.step(text[order, 6], memory), model(text[order, :7])[:, -1])


def test_it_is_an_encoder_that_looks_only_back_and_scores_of_its_own_embedding():
    model, text = language_model(), tokens()
    encoder = TransformerEncoder(20, 16, 4, 2, 24, causal=True).double().eval()
    encoder.load_state_dict(model.body.state_dict())
    close(model(text), encoder(text) @ encoder.embedding.table.weight.T)
    assert language_model(tied=False).output.weight is not language_model(tied=False).body.embedding.table.weight


def test_weights_are_of_what_came_before_and_zero_at_padding():
    model, text = language_model(), tokens()
    lengths = torch.tensor([8, 3, 5])
    weights = model.weights(text, lengths=lengths)["decoder"]
    assert [tuple(each.shape) for each in weights] == [(3, 4, 8, 8)] * 2
    for each in weights:
        assert (each.triu(1) == 0).all()
        close(each.sum(-1), (torch.arange(8) < lengths[:, None])[:, None].expand(3, 4, 8).double())


def test_the_lens_records_every_layer_and_verifies_it():
    model, text = language_model(dtype=torch.float32), tokens()
    with torch.no_grad(), record(model) as recording:
        model(text)
    assert list(recording.layers) == ["body.layers.0.attention", "body.layers.1.attention"]
    assert recording.verify().holds


def test_a_text_in_a_padded_batch_is_read_as_if_it_were_alone():
    torch.manual_seed(0)
    encoder, text = TransformerEncoder(20, 16, 4, 2, 24, positions="alibi").double().eval(), tokens()
    lengths = torch.tensor([8, 3, 5])
    together = encoder(text, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        close(together[row, :length], encoder(text[row : row + 1, :length])[0])
