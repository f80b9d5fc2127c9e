"""Hugging Face models on overt's kernels: the outputs of "eager", masks as runs, generation, and what cannot be."""

import sys

import pytest
import torch
import transformers
from transformers import masking_utils

import overt
from families import FAMILIES, LENGTH, Family, attentions, written
from overt import backends
from overt.errors import InputError, MissingExtra
from overt.lens import record

NAME = backends.huggingface()


def asks_the_registry(family: Family) -> bool:
    """Bloom writes its attention out itself, and so did T5 in older versions of transformers."""
    return hasattr(sys.modules[getattr(transformers, family.model).__module__], "ALL_ATTENTION_FUNCTIONS")


SERVED = [family for family in FAMILIES if asks_the_registry(family)]


def each(families):
    return pytest.mark.parametrize("family", families, ids=lambda family: family.name)


def close(found, wanted, idle=None):
    """Within 1e-5, of queries that may attend to something."""
    keep = slice(None) if idle is None or not idle.any() else ~idle
    torch.testing.assert_close(found[keep], wanted[keep], atol=1e-5, rtol=1e-5)


def first(output):
    """What a model puts out: its last states, or its logits."""
    return output["logits"] if "logits" in output else output["last_hidden_state"]


@each(SERVED)
def test_outputs_are_those_of_eager(family: Family):
    model, eager = family.build(NAME), family.build("eager")
    for side in family.sides:
        given = family.inputs(side)
        with torch.no_grad():
            found, wanted = first(model(**given)), first(eager(**given))
        close(found, wanted, family.idle(given, LENGTH) if family.kind == "decoder" else None)


@each(SERVED)
def test_gradients_are_those_of_eager(family: Family):
    model, eager = family.build(NAME), family.build("eager")
    given = family.inputs()
    for each_model in (model, eager):
        first(each_model(**given)).square().mean().backward()
    for (name, found), (_, wanted) in zip(model.named_parameters(), eager.named_parameters(), strict=True):
        if wanted.grad is not None:
            assert found.grad is not None, name
            torch.testing.assert_close(
                found.grad, wanted.grad, atol=1e-4, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
            )


WRITING = {"greedy": {}, "beams": {"num_beams": 3}, "static": {"cache_implementation": "static"}}
WRITERS = [
    pytest.param(family, options, id=f"{family.name}-{name}")
    for family in SERVED
    for name, options in WRITING.items()
    if family.generates and (name != "static" or family.kind == "decoder")  # transformers keeps static caches for decoders
]


@pytest.mark.parametrize(("family", "options"), WRITERS)
def test_generation_is_that_of_eager(family: Family, options):
    found, wanted = (written(family.build(path), family, **options) for path in (NAME, "eager"))
    assert torch.equal(found.sequences, wanted.sequences)
    for one, other in zip(found.scores, wanted.scores, strict=True):
        close(one, other)


@each([family for family in SERVED if family.name in ("Bert", "Llama", "Gemma2", "GptOss", "T5")])
def test_weights_are_returned_where_they_are_asked_for(family: Family):
    given = family.inputs()
    with torch.no_grad():
        found, wanted = (attentions(family.build(path)(**given, output_attentions=True)) for path in (NAME, "eager"))
    for one, other in zip(found, wanted, strict=True):
        close(one, other)


def test_nearly_all_families_are_served():
    assert {family.name for family in FAMILIES} - {family.name for family in SERVED} <= {"Bloom", "T5"}


def test_a_model_that_writes_its_attention_out_is_refused():
    bloom = next(family for family in FAMILIES if family.name == "Bloom")
    with pytest.raises(InputError, match='got one of BloomConfig, which writes its attention out itself.*choose .*"eager"'):
        bloom.build(NAME)(**bloom.inputs())


@each(SERVED)
def test_models_are_built_on_the_path_that_they_are_asked_for(family: Family):
    assert [family.build(path).config._attn_implementation for path in (NAME, "eager")] == [NAME, "eager"]


def shapes_of_masks(monkeypatch, model, given):
    """The mask of every call of attention."""
    seen = []
    plain = backends.attention

    def watched(module, query, key, value, attention_mask, **asked):
        seen.append(attention_mask)
        return plain(module, query, key, value, attention_mask, **asked)

    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, NAME, watched)
    with torch.no_grad():
        model(**given)
    return seen


@each([family for family in SERVED if family.kind in ("decoder", "encoder")])
def test_masks_are_two_numbers_a_query(monkeypatch, family: Family):
    model = family.build(NAME)
    for side in family.sides:
        for mask in shapes_of_masks(monkeypatch, model, family.inputs(side)):
            assert mask is None or (tuple(mask.shape[1:]) == (2, LENGTH, 1) and not mask.is_floating_point())


def test_padding_with_holes_is_a_mask_of_pairs(monkeypatch):
    family = next(each for each in FAMILIES if each.name == "Llama")
    given = family.inputs()
    given["attention_mask"] = torch.ones(2, LENGTH, dtype=torch.long)
    given["attention_mask"][0, 3] = 0
    masks = shapes_of_masks(monkeypatch, family.build(NAME), given)
    assert {(tuple(mask.shape), mask.dtype) for mask in masks} == {((2, 1, LENGTH, LENGTH), torch.bool)}
    with torch.no_grad():
        close(first(family.build(NAME)(**given)), first(family.build("eager")(**given)))


def pairs(mask, queries, keys):
    """A mask of runs as pairs."""
    found, _ = backends._read(mask, keys)
    return (
        torch.ones(1, 1, queries, keys, dtype=torch.bool)
        if found is None
        else found.block(torch.arange(queries), torch.arange(keys))
    )


PACKED = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2]])
FUNCTIONS = {
    "causal": masking_utils.causal_mask_function,
    "both ways": masking_utils.bidirectional_mask_function,
    "window": masking_utils.sliding_window_causal_mask_function(3),
    "window both ways": masking_utils.sliding_window_bidirectional_mask_function(2),
    "chunks": masking_utils.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.long)),
    "documents": masking_utils.and_masks(masking_utils.causal_mask_function, masking_utils.packed_sequence_mask_function(PACKED)),
    "either": masking_utils.or_masks(masking_utils.causal_mask_function, masking_utils.sliding_window_overlay(2)),
}  # fmt: skip
PADDINGS = {
    "none": None,
    "left": torch.tensor([[0] * 3 + [1] * 6, [1] * 9]).bool(),
    "right": torch.tensor([[1] * 5 + [0] * 4, [1] * 9]).bool(),
    "all of one": torch.tensor([[0] * 9, [1] * 9]).bool(),
}


TOLD = [
    (name, padding, queries)
    for name in FUNCTIONS
    for padding in PADDINGS
    for queries in (9, 2)
    if name != "documents" or (padding == "none" and queries == 9)  # transformers packs without padding and without a cache
]


@pytest.mark.parametrize(("name", "padding", "queries"), TOLD)
def test_runs_say_what_the_mask_of_pairs_says(name, padding, queries):
    batch = 1 if name == "documents" else 2
    told = {"q_offset": 9 - queries, "mask_function": FUNCTIONS[name], "attention_mask": PADDINGS[padding]}
    wanted = masking_utils.sdpa_mask(batch, queries, 9, **told, allow_is_causal_skip=False)
    assert torch.equal(pairs(backends.runs(batch, queries, 9, **told), queries, 9).expand(wanted.shape), wanted)


def test_a_mask_is_looked_at_some_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(backends, "_AT_ONCE", 20)
    function = masking_utils.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.long))
    found = backends.runs(2, 9, 9, mask_function=function)
    assert torch.equal(pairs(found, 9, 9), masking_utils.sdpa_mask(2, 9, 9, mask_function=function, allow_is_causal_skip=False))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_mask_that_the_caller_made_is_followed(dtype):
    family = next(each for each in FAMILIES if each.name == "Llama")
    allowed = torch.rand(2, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(3)) < 0.7
    allowed |= torch.eye(LENGTH, dtype=torch.bool)
    mask = torch.where(allowed, 0.0, torch.finfo(torch.float32).min)
    given = family.inputs()
    with torch.no_grad():
        found = first(family.build(NAME)(**given, attention_mask=allowed if dtype == torch.bool else mask))
        close(found, first(family.build("eager")(**given, attention_mask=mask)))


def test_a_model_that_is_there_changes_over():
    family = next(each for each in FAMILIES if each.name == "Llama")
    model, given = family.build("sdpa"), family.inputs("left")
    with torch.no_grad():
        wanted = first(model(**given))
        model.set_attn_implementation(NAME)
        close(first(model(**given)), wanted, family.idle(given, LENGTH))


@each([family for family in SERVED if family.name in ("Llama", "Gemma2", "GptOss", "Bert")])
def test_a_recording_sees_such_a_model_whole(family: Family):
    model, given = family.build(NAME), family.inputs("left")
    with torch.no_grad(), record(model) as recording:
        output = model(**given)
    with torch.no_grad():
        assert torch.equal(first(output), first(model(**given)))
    assert recording.layers == list(family.layers)
    assert recording.missing == []
    assert recording.verify().difference < 1e-5


def test_dropout_is_at_work_in_training_alone():
    family = next(each for each in FAMILIES if each.name == "GPT2")
    model = family.build(NAME)
    for block in model.transformer.h:
        block.attn.attn_dropout.p = 0.5
    given = family.inputs()
    with torch.no_grad():
        assert torch.equal(first(model(**given)), first(model(**given)))
        model.train()
        assert not torch.equal(first(model(**given)), first(model(**given)))


def test_a_compiled_model_gives_the_same_numbers():
    family = next(each for each in FAMILIES if each.name == "Llama")
    model, given = family.build(NAME), family.inputs("left")
    torch._dynamo.reset()
    with torch.no_grad():
        wanted = first(model(**given))
        close(first(torch.compile(model, backend="eager")(**given)), wanted, family.idle(given, LENGTH))


def test_a_paged_cache_is_refused_with_the_cure():
    x = torch.zeros(1, 1, 2, 4)
    with pytest.raises(InputError, match=r"one tensor; got a paged cache.*paged\|eager"):
        backends.attention(None, x, x, x, None, cache=object())


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match="text"):
        backends.huggingface()


def test_an_older_transformers_is_named(monkeypatch):
    monkeypatch.setattr(masking_utils, "sdpa_mask", lambda batch_size, cache_position, kv_length: None)
    with pytest.raises(InputError, match=r'from 5\.4 on; got transformers .*pip install "transformers>=5\.4"'):
        backends.huggingface()


def test_it_may_be_called_twice_and_is_a_public_name():
    assert overt.backends.huggingface() == overt.backends.huggingface() == "overt"
