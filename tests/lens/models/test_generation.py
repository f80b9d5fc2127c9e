import pytest
import torch
from transformers import StaticCache

import overt
from families import FAMILIES, Family, same, written
from overt.attention.masks import Ranges
from overt.lens import record

NEW = 4  # tokens that are written
WRITERS = [family for family in FAMILIES if family.generates]
CASES = [pytest.param(family, path, id=f"{family.name}-{path}") for family in WRITERS for path in family.paths]
NAMED = {family.name: family for family in FAMILIES}
WAYS = {"greedy": {"num_beams": 1}, "beam": {"num_beams": 3}}


def steps(output) -> list[list[torch.Tensor]]:
    """The weights that `generate` returns, pass by pass, in the order in which the model attends."""
    if "decoder_attentions" not in output:
        return [list(weights) for weights in output.attentions]
    pairs = [zip(*both, strict=True) for both in zip(output.decoder_attentions, output.cross_attentions, strict=True)]
    return [list(output.encoder_attentions), *([weights for pair in each for weights in pair] for each in pairs)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("family", "path"), CASES)
@pytest.mark.few_cases(6)
def test_what_is_written_is_the_same_and_each_forward_is_a_pass(family: Family, path, way):
    model, forwards = family.build(path), []
    plain = written(model, family, **WAYS[way])
    # The encoder runs on its own, before the first word.
    counted = [model, model.get_encoder()] if model.config.is_encoder_decoder else [model]
    with record(model) as recording, model.register_forward_hook(lambda *_: forwards.append(None)):
        output = written(model, family, **WAYS[way])
    assert torch.equal(output.sequences, plain.sequences)
    assert same(output.scores, plain.scores)
    assert len(forwards) == NEW
    assert len(recording.passes) == len(forwards) + len(counted) - 1
    assert [each.layers for each in recording.passes] == layers_by_pass(family)
    assert all("mixes tokens by a convolution" in reason for _, reason in recording.missing)
    verified = recording.verify()
    assert verified.holds, str(verified)
    assert verified.difference < 1e-5


def layers_by_pass(family: Family) -> list[list[str]]:
    encoder = [name for name in family.layers if "encoder." in name]
    decoder = [name for name in family.layers if name not in encoder]
    return ([encoder] if encoder else []) + [decoder] * NEW


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", WRITERS, ids=lambda family: family.name)
@pytest.mark.few_cases(4)
def test_weights_of_each_pass_are_those_that_the_eager_model_returns(family: Family, way):
    model = family.build("eager")
    with record(model) as recording:
        output = written(model, family, output_attentions=True, **WAYS[way])
    expected = steps(output)
    assert len(expected) == len(recording.passes)
    for one, weights in zip(recording.passes, expected, strict=True):
        for call, each in enumerate(weights):
            for head in range(4):
                torch.testing.assert_close(one[call, head].weights(), each[:, head], rtol=0, atol=1e-5)


@pytest.mark.parametrize("path", ["eager", "sdpa"])
def test_the_last_word_attends_as_in_one_pass_over_the_whole_text(path):
    family = NAMED["Mistral"]
    model = family.build(path)
    with record(model) as recording:
        text = written(model, family).sequences
    visible = torch.cat([family.inputs("left")["attention_mask"], torch.ones(2, NEW, dtype=torch.long)], dim=1)
    with torch.no_grad(), record(model) as whole:
        model(input_ids=text[:, :-1], attention_mask=visible[:, :-1])
    for call in range(2):
        last = recording.passes[-1][call, 3].weights()[:, 0]
        full = whole[call, 3].weights()[:, -1]
        # The cache has let go of the keys that are out of the window.
        torch.testing.assert_close(last, full[:, -last.shape[-1] :], rtol=0, atol=1e-5)


def test_one_token_of_grouped_heads_is_one_row_a_query_head():
    family = NAMED["Llama"]
    for path in ("eager", "sdpa"):
        model = family.build(path)
        with record(model) as recording:
            written(model, family)
        last = recording.passes[-1][1, 3]
        assert (last.queries, last.keys) == (1, 9 + NEW - 1)
        assert last.captured.call.query.shape == (2, 4, 1, 8)
        assert last.captured.call.key.shape[1] == 2
        assert last.weights().shape == (2, 1, 12)


@pytest.mark.parametrize("path", ["eager", "sdpa"])
def test_a_static_cache_that_is_written_over_stays_recorded(path):
    model, ids = NAMED["Llama"].build(path), torch.randint(3, 60, (1, 6))
    with torch.no_grad():
        cache = StaticCache(config=model.config, max_cache_len=16)
        with record(model) as recording:
            for token in range(6):
                model(ids[:, token : token + 1], past_key_values=cache)
        with record(model) as whole:
            model(ids, use_cache=False)
    assert recording.passes[2][0, 0].keys == 16
    assert isinstance(recording.recorded.stored[0].call.mask, Ranges | overt.Causal)
    for token, one in enumerate(recording.passes):
        weights = one[1, 2].weights()[0, 0]
        torch.testing.assert_close(weights[: token + 1], whole[1, 2].weights()[0, token, : token + 1], rtol=0, atol=1e-5)
        assert not weights[token + 1 :].any()
    assert recording.verify().holds


def test_beams_follow_their_cache():
    family = NAMED["GPT2"]
    model = family.build("sdpa")
    with record(model) as recording:
        output = written(model, family, num_beams=3)
    # The last pass read, for each beam, the keys of the text that this beam had become: those of a run over that text.
    beams = output.beam_indices[:, NEW - 1]
    visible = torch.cat([family.inputs("left")["attention_mask"], torch.ones(2, NEW, dtype=torch.long)], dim=1)
    with torch.no_grad(), record(model) as whole:
        positions = (visible.cumsum(-1) - 1).clamp(min=0)  # as `generate` counts them
        model(input_ids=output.sequences[:, :-1], attention_mask=visible[:, :-1], position_ids=positions[:, :-1])
    last = recording.passes[-1][1, 2]
    torch.testing.assert_close(last.weights()[beams, 0], whole[1, 2].weights()[:, -1], rtol=0, atol=1e-5)
