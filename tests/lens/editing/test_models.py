"""Edits of Hugging Face models, of generation with caches, of encoder–decoders and of linear mixers, against hooks of the tests' own."""

import copy

import pytest
import torch
import transformers
from torch import Tensor

from families import FAMILIES, attentions, written
from overt import lens
from overt.errors import InputError
from small_mixers import mixers
from small_mixers import model as mixer_model
from small_mixers import tokens as mixer_tokens

BY_NAME = {family.name: family for family in FAMILIES}


class HeadRemoved:
    """One arc taken out of the weights that the model's own eager function multiplies with its values, in one call of it."""

    def __init__(self, monkeypatch, call, head, query, key):
        self.count, self.where = -1, (call, head, query, key)
        self.softmax = torch.nn.functional.softmax
        monkeypatch.setattr(torch.nn.functional, "softmax", self)

    def __call__(self, scores, *args, **options) -> Tensor:
        weights = self.softmax(scores, *args, **options)
        if weights.ndim != 4:
            return weights
        self.count += 1
        call, head, query, key = self.where
        if self.count == call:
            weights = weights.clone()
            row = weights[:, head, query]
            left = 1 - row[:, key, None]
            row[:, key] = 0
            row /= left
        return weights


@pytest.mark.parametrize("name", ["Bert", "GPT2", "Llama", "Mistral", "Gemma2", "T5", "Bart", "Bloom", "GptOss", "ViT"])
@pytest.mark.few_cases(5)
def test_an_arc_is_blocked_as_if_the_models_softmax_had_left_it_out(name, monkeypatch):
    family = BY_NAME[name]
    model, inputs = family.build("eager"), family.inputs()
    with torch.no_grad():
        plain = model(**inputs, output_attentions=True)
        call = len(attentions(plain)) - 1 if family.kind != "both" else 3
        query, key = (4, 1) if family.kind != "both" else (3, 1)
        with lens.edit(model, lens.Edits().block((call, 1), query=query, key=key)):
            result = model(**inputs)[0]
        HeadRemoved(monkeypatch, call, 1, query, key)
        expected = model(**inputs)[0]
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(result, plain[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["Bert", "Llama", "T5", "Bart"])
def test_every_implementation_is_edited_alike(name):
    family = BY_NAME[name]
    edits = lens.Edits().block((1, 2), query=[3, 4], key=[0, 2]).temperature((0, 1), 3.0).pattern((1, 0), "first")
    results = []
    for path in family.paths:
        model = family.build(path)
        with torch.no_grad(), lens.edit(model, edits):
            results.append(model(**family.inputs())[0])
    torch.testing.assert_close(results[0], results[-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["GPT2", "Llama", "Bart", "T5"])
@pytest.mark.parametrize("cache", [True, False])
def test_positions_of_generation_count_from_the_first_token_of_the_text(name, cache):
    family = BY_NAME[name]
    model = family.build("sdpa" if "sdpa" in family.paths else "eager")
    with torch.no_grad():
        results = []
        for use_cache in (cache, False):
            decoder = 2 if family.kind == "both" else 1
            edits = lens.Edits().pattern((decoder, 1), "first").block((0, 2), query=[3, 10], key=[1, 2])
            with lens.edit(model, edits):
                results.append(torch.stack(written(model, family, use_cache=use_cache).scores))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["GPT2", "Gemma2", "T5"])
@pytest.mark.parametrize("into", ["query", "key", "value"])
@pytest.mark.few_cases(1)
def test_a_path_reaches_what_a_cache_holds_as_if_each_pass_were_whole(name, into):
    family = BY_NAME[name]
    model = family.build("eager")
    receiver = 2 if family.kind == "both" else 1
    results = []
    with torch.no_grad():
        plain = torch.stack(written(model, family).scores)
        for use_cache in (True, False):
            with lens.edit(model, lens.Edits().path((0, 1), (receiver, 2), into)):
                results.append(torch.stack(written(model, family, use_cache=use_cache).scores))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(results[0], plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["Qwen3Next", "KimiLinear", "MiniMax", "xLSTM", "Mamba", "FalconH1", "Rwkv"])
@pytest.mark.few_cases(4)
def test_an_arc_of_a_linear_mixer_is_blocked_in_its_signed_row(name):
    model, ids = mixer_model(name), mixer_tokens(2, 9)
    with torch.no_grad():
        with lens.record(model) as plain:
            model(ids)
        call = mixers(plain)[0]
        number, head = plain.number_of(call), plain[plain.number_of(call), 0]
        with lens.edit(model, lens.Edits().block((number, 0), query=6, key=2)), lens.record(model) as changed:
            model(ids)
    weights = head.weights()
    weights[:, 6, 2] = 0
    result = changed[number, 0].output
    torch.testing.assert_close(result, (weights @ head.value).to(result.dtype), rtol=1e-5, atol=1e-5)
    others = [row for row in range(9) if row != 6]
    assert torch.equal(result[:, others], head.output[:, others])


def test_what_a_linear_mixer_does_not_have_is_refused():
    model, ids = mixer_model("Qwen3Next"), mixer_tokens(1, 9)
    edits = lens.Edits().temperature((0, 1), 2.0)
    with pytest.raises(InputError, match=r"temperature 2 of L0H1, in model.layers.0.linear_attn .* no softmax"):
        lens.effect(model, lambda: model(ids), edits)


def test_half_precision_is_edited_within_its_rounding():
    family = BY_NAME["Llama"]
    edits = lens.Edits().block((1, 2), query=4, key=1)
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        model = copy.deepcopy(family.build("sdpa")).to(dtype)
        with torch.no_grad(), lens.edit(model, edits):
            results.append(model(**family.inputs())[0].float())
    torch.testing.assert_close(results[1], results[0], rtol=0.2, atol=0.2)


@pytest.mark.parametrize(("second", "named"), [((1, 2, 3, 4), None), ((1, 5, 3, 6), "other tokens at 1, 3 (2 of 4 positions)")])
def test_a_report_names_the_positions_where_a_patch_is_from_other_tokens(second, named):
    config = transformers.BertConfig(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, vocab_size=9
    )
    model = transformers.BertModel(config).eval()
    with torch.no_grad(), lens.record(model) as other:
        model(torch.tensor([second]))
    with torch.no_grad(), lens.edit(model) as edit:
        edit.patch((0, 1), other)
        edit.path((0, 0), (1, 1), into="query", from_=other).path((0, 0), (1, 1), into="key")
        model(torch.tensor([[1, 2, 3, 4]]))
    changed = ("patch output of L0H1", "path from L0H0 into the query of L1H1")
    notes = [] if named is None else [f"{change}: the other run has {named}" for change in changed]
    assert edit.report().splitlines()[4:] == notes
    twin = type("Twin", (transformers.BertModel,), {})(config).eval()
    with torch.no_grad(), lens.edit(twin) as edit:
        edit.patch((0, 1), other)
        twin(torch.tensor([second]))
    assert edit.report().endswith("patch output of L0H1: the other run is of a BertModel")


@torch.no_grad()
def test_calls_keep_their_numbers_behind_one_that_cannot_be_overwritten():
    """Pegasus-X lays the output of its blocks out anew, so an edit cannot write there; a recording has it."""
    config = transformers.PegasusXConfig(
        vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, block_size=4, num_global_tokens=4, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.PegasusXForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    inputs = {"input_ids": torch.randint(3, 60, (2, 12)), "decoder_input_ids": torch.randint(3, 60, (2, 6))}
    with lens.record(model) as recording:
        plain = model(**inputs).logits
    number = len(recording.calls) - 1
    outputs = []
    for layer in (number, recording.calls[number].layer):
        with lens.edit(model) as edits:
            edits.block((layer, 1), query=4, key=2)
            outputs.append(model(**inputs).logits)
    assert torch.equal(*outputs)
    assert not torch.equal(outputs[0], plain)
