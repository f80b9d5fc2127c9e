"""Hugging Face models on overt's kernels: the outputs of "eager", masks as runs, generation, and what cannot be."""

import sys

import pytest
import torch
import transformers
from transformers import masking_utils

import overt
from families import FAMILIES, LENGTH, Family, attentions, written
from overt import integrations
from overt.errors import InputError, MissingExtra
from overt.integrations.lazy_mask import LazyMask
from overt.lens import record

NAME = integrations.huggingface()


def asks_the_registry(family: Family) -> bool:
    """Bloom writes its attention out itself, and so did T5 in older versions of transformers."""
    return hasattr(sys.modules[getattr(transformers, family.model).__module__], "ALL_ATTENTION_FUNCTIONS")


NAMED = {family.name: family for family in FAMILIES}
SERVED = [family for family in FAMILIES if asks_the_registry(family)]


def each(families):
    return pytest.mark.parametrize("family", families, ids=lambda family: family.name)


def close(result, wanted, idle=None):
    """Within 1e-5, of queries that may attend to something."""
    keep = slice(None) if idle is None or not idle.any() else ~idle
    torch.testing.assert_close(result[keep], wanted[keep], atol=1e-5, rtol=1e-5)


def first(output):
    """What a model puts out: its last states, or its logits."""
    return output["logits"] if "logits" in output else output["last_hidden_state"]


@each(SERVED)
@pytest.mark.few_cases(5)
def test_outputs_are_those_of_eager(family: Family):
    model, eager = family.build(NAME), family.build("eager")
    for side in family.sides:
        inputs = family.inputs(side)
        with torch.no_grad():
            result, wanted = first(model(**inputs)), first(eager(**inputs))
        close(result, wanted, family.idle(inputs, LENGTH) if family.kind == "decoder" else None)


@each(SERVED)
@pytest.mark.few_cases(5)
def test_gradients_are_those_of_eager(family: Family):
    model, eager = family.build(NAME), family.build("eager")
    inputs = family.inputs()
    for each_model in (model, eager):
        first(each_model(**inputs)).square().mean().backward()
    for (name, result), (_, wanted) in zip(model.named_parameters(), eager.named_parameters(), strict=True):
        if wanted.grad is not None:
            assert result.grad is not None, name
            torch.testing.assert_close(
                result.grad, wanted.grad, atol=1e-4, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
            )


WRITING = {"greedy": {}, "beams": {"num_beams": 3}, "static": {"cache_implementation": "static"}}
WRITERS = [
    pytest.param(family, options, id=f"{family.name}-{name}")
    for family in SERVED
    for name, options in WRITING.items()
    if family.generates and (name != "static" or family.kind == "decoder")  # transformers keeps static caches for decoders
]


@pytest.mark.parametrize(("family", "options"), WRITERS)
@pytest.mark.few_cases(6)
def test_generation_is_that_of_eager(family: Family, options):
    result, wanted = (written(family.build(path), family, **options) for path in (NAME, "eager"))
    assert torch.equal(result.sequences, wanted.sequences)
    for one, other in zip(result.scores, wanted.scores, strict=True):
        close(one, other)


@each([family for family in SERVED if family.name in ("Bert", "Llama", "Gemma2", "GptOss", "T5")])
def test_weights_are_returned_where_they_are_asked_for(family: Family):
    inputs = family.inputs()
    with torch.no_grad():
        result, wanted = (attentions(family.build(path)(**inputs, output_attentions=True)) for path in (NAME, "eager"))
    for one, other in zip(result, wanted, strict=True):
        close(one, other)


@each(SERVED)
def test_models_are_built_on_the_path_that_they_are_asked_for(family: Family):
    assert [family.build(path).config._attn_implementation for path in (NAME, "eager")] == [NAME, "eager"]


def masks_of_calls(monkeypatch, model, inputs):
    """The mask of every call of attention."""
    masks = []

    def watched(module, query, key, value, attention_mask, **others):
        masks.append(attention_mask)
        return integrations.attention(module, query, key, value, attention_mask, **others)

    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, NAME, watched)
    with torch.no_grad():
        model(**inputs)
    return masks


@each([family for family in SERVED if family.kind in ("decoder", "encoder")])
def test_masks_that_models_hand_on_are_never_made_whole(monkeypatch, family: Family):
    model = family.build(NAME)
    for side in family.sides:
        for mask in masks_of_calls(monkeypatch, model, family.inputs(side)):
            assert mask is None or (type(mask) is LazyMask and mask.ranges() is not None and mask._entries is None)


def test_padding_with_holes_is_an_ordinary_mask(monkeypatch):
    family = NAMED["Llama"]
    inputs = family.inputs()
    inputs["attention_mask"] = torch.ones(2, LENGTH, dtype=torch.long)
    inputs["attention_mask"][0, 3] = 0
    masks = masks_of_calls(monkeypatch, family.build(NAME), inputs)
    assert {(type(mask), tuple(mask.shape), mask.dtype) for mask in masks} == {
        (torch.Tensor, (2, 1, LENGTH, LENGTH), torch.bool)
    }
    with torch.no_grad():
        close(first(family.build(NAME)(**inputs)), first(family.build("eager")(**inputs)))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_mask_that_the_caller_made_is_followed(dtype):
    family = NAMED["Llama"]
    allowed = torch.rand(2, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(3)) < 0.7
    allowed |= torch.eye(LENGTH, dtype=torch.bool)
    mask = torch.where(allowed, 0.0, torch.finfo(torch.float32).min)
    inputs = family.inputs()
    with torch.no_grad():
        result = first(family.build(NAME)(**inputs, attention_mask=allowed if dtype == torch.bool else mask))
        close(result, first(family.build("eager")(**inputs, attention_mask=mask)))


def test_a_model_that_is_there_changes_over():
    family = NAMED["Llama"]
    model, inputs = family.build("sdpa"), family.inputs("left")
    with torch.no_grad():
        wanted = first(model(**inputs))
        model.set_attn_implementation(NAME)
        close(first(model(**inputs)), wanted, family.idle(inputs, LENGTH))


@each([family for family in SERVED if family.name in ("Llama", "Gemma2", "GptOss", "Bert")])
def test_a_recording_sees_such_a_model_whole(family: Family):
    model, inputs = family.build(NAME), family.inputs("left")
    with torch.no_grad(), record(model) as recording:
        output = model(**inputs)
    with torch.no_grad():
        assert torch.equal(first(output), first(model(**inputs)))
    assert recording.layers == list(family.layers)
    assert recording.missing == []
    assert recording.verify().difference < 1e-5


def test_dropout_is_at_work_in_training_alone():
    family = NAMED["GPT2"]
    model = family.build(NAME)
    for block in model.transformer.h:
        block.attn.attn_dropout.p = 0.5
    inputs = family.inputs()
    with torch.no_grad():
        assert torch.equal(first(model(**inputs)), first(model(**inputs)))
        model.train()
        assert not torch.equal(first(model(**inputs)), first(model(**inputs)))


@pytest.mark.slow
def test_a_compiled_model_gives_the_same_numbers():
    family = NAMED["Llama"]
    model, inputs = family.build(NAME), family.inputs("left")
    torch._dynamo.reset()
    with torch.no_grad():
        wanted = first(model(**inputs))
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        close(first(compiled(**inputs)), wanted, family.idle(inputs, LENGTH))


def test_a_paged_cache_is_refused_with_the_cure():
    x = torch.zeros(1, 1, 2, 4)
    with pytest.raises(InputError, match=r"one tensor, got a paged cache.*paged\|eager"):
        integrations.attention(None, x, x, x, None, cache=object())


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match="text"):
        integrations.huggingface()


def test_an_older_transformers_is_named(monkeypatch):
    monkeypatch.setattr(masking_utils, "sdpa_mask", lambda batch_size, cache_position, kv_length: None)
    with pytest.raises(InputError, match=r'of transformers 5\.4 or later, got transformers .*pip install "transformers>=5\.4"'):
        integrations.huggingface()


def test_it_may_be_called_twice_and_is_a_public_name():
    assert overt.integrations.huggingface() == overt.integrations.huggingface() == "overt"
