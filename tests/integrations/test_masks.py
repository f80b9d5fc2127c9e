"""The masks that overt gives transformers' models: ordinary masks to all that computes with them, ranges to overt alone."""

import copy
import pickle

import pytest
import torch
import transformers
from transformers import masking_utils

from overt import integrations
from overt.integrations import mask_interface
from overt.integrations.attention_interface import mask_and_bias
from overt.integrations.lazy_mask import LazyMask

NAME = integrations.huggingface()
PACKED = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2]])
FUNCTIONS = {
    "causal": masking_utils.causal_mask_function,
    "both ways": masking_utils.bidirectional_mask_function,
    "window": masking_utils.sliding_window_causal_mask_function(3),
    "window both ways": masking_utils.sliding_window_bidirectional_mask_function(2),
    "chunks": masking_utils.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.long)),
    "documents": masking_utils.and_masks(masking_utils.causal_mask_function, masking_utils.packed_sequence_mask_function(PACKED)),
    "either": masking_utils.or_masks(masking_utils.causal_mask_function, masking_utils.sliding_window_overlay(2)),
    "holes": masking_utils.and_masks(masking_utils.causal_mask_function, lambda b, h, q, k: (k % 3 != 1) | (q == k)),
}  # fmt: skip
PADDINGS = {
    "none": None,
    "left": torch.tensor([[0] * 3 + [1] * 6, [1] * 9]).bool(),
    "right": torch.tensor([[1] * 5 + [0] * 4, [1] * 9]).bool(),
    "all of one": torch.tensor([[0] * 9, [1] * 9]).bool(),
}
CASES = [
    (name, padding, queries)
    for name in FUNCTIONS
    for padding in PADDINGS
    for queries in (9, 2)
    if name != "documents" or (padding == "none" and queries == 9)  # transformers packs without padding and without a cache
]
# The code of a model is there before its masks are asked for.
SUPPORTS_SDPA, EAGER_ALONE = transformers.LlamaModel.config_class(), transformers.MptModel.config_class()


def lazy(dtype=torch.bool, batch=2):
    """A causal mask of four queries and keys."""
    return LazyMask(torch.zeros(1, 1, 4, dtype=torch.long), torch.arange(1, 5)[None, None], (batch, 1, 4, 4), dtype)


WHOLE = torch.ones(4, 4, dtype=torch.bool).tril().expand(2, 1, 4, 4)


@pytest.mark.parametrize("config", [SUPPORTS_SDPA, EAGER_ALONE], ids=["sdpa", "eager alone"])
@pytest.mark.parametrize(("name", "padding", "queries"), CASES)
def test_a_mask_is_the_one_that_the_model_would_make_itself(name, padding, queries, config):
    batch = 1 if name == "documents" else 2
    options = {"q_offset": 9 - queries, "mask_function": FUNCTIONS[name], "attention_mask": PADDINGS[padding]}
    function = masking_utils.sdpa_mask if config is SUPPORTS_SDPA else masking_utils.eager_mask
    wanted = function(batch, queries, 9, **options, allow_is_causal_skip=False, dtype=torch.float32)
    mask = integrations.attention_mask(batch, queries, 9, **options, config=config, dtype=torch.float32)
    assert (mask.shape, mask.dtype, mask.device) == (wanted.shape, wanted.dtype, wanted.device)
    assert torch.equal(mask + 0 if mask.dtype != torch.bool else mask | mask, wanted)
    if (ranges := mask.ranges() if isinstance(mask, LazyMask) else None) is not None:
        allowed = ranges.block(torch.arange(queries), torch.arange(9)).expand(wanted.shape)
        assert torch.equal(allowed, wanted if wanted.dtype == torch.bool else wanted == 0)


def test_only_masks_whose_keys_are_not_one_range_are_made_whole():
    kinds = {
        name: type(integrations.attention_mask(2, 9, 9, mask_function=FUNCTIONS[name]))
        for name in FUNCTIONS
        if name != "documents"
    }
    assert {name for name, kind in kinds.items() if kind is torch.Tensor} == {"holes"}


def test_a_mask_is_looked_at_some_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(mask_interface, "_BLOCK", 20)
    mask = integrations.attention_mask(2, 9, 9, mask_function=FUNCTIONS["chunks"])
    assert type(mask) is LazyMask
    assert torch.equal(mask[:], masking_utils.sdpa_mask(2, 9, 9, mask_function=FUNCTIONS["chunks"], allow_is_causal_skip=False))


def test_a_function_that_only_has_the_name_of_one_of_transformers_is_looked_at():
    def sliding_window_overlay(sliding_window):
        def inner(batch, head, query, key):
            return key <= query - sliding_window

        return inner

    function = sliding_window_overlay(2)
    function.__qualname__ = "sliding_window_overlay.<locals>.inner_mask"
    wanted = masking_utils.sdpa_mask(1, 6, 6, mask_function=function, allow_is_causal_skip=False)
    assert torch.equal(integrations.attention_mask(1, 6, 6, mask_function=function)[:], wanted)


OPERATIONS = {
    "index": lambda mask: mask[:, 0],
    "slice": lambda mask: mask[:, :, :, :3],
    "not": lambda mask: ~mask,
    "and": lambda mask: mask & torch.ones(4, dtype=torch.bool),
    "where": lambda mask: torch.where(mask, 0.0, 1.0),
    "pad": lambda mask: torch.nn.functional.pad(mask, (0, 2)),
    "cat": lambda mask: torch.cat([mask, mask], dim=-1),
    "expand": lambda mask: mask.expand(2, 3, 4, 4),
    "to": lambda mask: mask.to(torch.float64),
    "logical_not": lambda mask: mask.logical_not(),
    "sum": lambda mask: mask.sum(-1),
    "clone": lambda mask: mask.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda mask: pickle.loads(pickle.dumps(mask)),
    "vmap": lambda mask: torch.vmap(lambda each: each.float().sum(-1))(mask),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_gives_an_ordinary_tensor(name):
    result = OPERATIONS[name](lazy())
    assert type(result) is torch.Tensor
    assert torch.equal(result, OPERATIONS[name](WHOLE.clone()))


WRITES = {
    "in place": lambda mask: mask.logical_not_(),
    "an item": lambda mask: mask.__setitem__((0, 0, 3, 0), False),
    "a view": lambda mask: mask[1].zero_(),
    "a view of a view": lambda mask: mask[:, 0][:, 2].zero_(),
    "its memory": lambda mask: mask.numpy().fill(False),
    "its data": lambda mask: mask.data.zero_(),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_mask_that_was_written_to_is_what_was_written(name):
    mask, wanted = lazy(), WHOLE.clone()
    WRITES[name](mask)
    WRITES[name](wanted)
    assert torch.equal(mask[:], wanted)
    assert torch.equal(mask_and_bias(mask, torch.zeros(2, 1, 4, 8))[0].allowed, wanted)


def test_in_inference_mode_a_mask_that_was_computed_with_is_no_range_any_more():
    with torch.inference_mode():
        mask = lazy()
        assert mask.ranges() is not None
        mask[0].zero_()
        assert mask.ranges() is None
        assert not mask[0].any()
        assert mask[1].any()


def test_reading_a_mask_leaves_its_ranges():
    mask = lazy()
    assert bool(mask.any())
    assert mask[:, 0].shape == (2, 4, 4)
    assert mask.ranges() is not None


def test_a_mask_for_eager_alone_is_what_is_added_to_the_scores():
    mask = lazy(torch.float16)
    assert torch.equal(mask + 0, torch.where(WHOLE, 0.0, torch.finfo(torch.float16).min).half())
    assert repr(mask) == repr(mask.entries())
    assert mask.tolist() == mask.entries().tolist()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8])
def test_integers_that_a_model_made_are_added_as_eager_adds_them(dtype):
    x = torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
    numbers = torch.randint(0, 3, (1, 2, 5, 5), dtype=dtype, generator=torch.Generator().manual_seed(1))
    weights = torch.softmax(x @ x.mT * 8**-0.5 + numbers, dim=-1)
    output, _ = integrations.attention(None, x, x, x, numbers)
    torch.testing.assert_close(output.transpose(1, 2), weights @ x, atol=1e-5, rtol=1e-5)


def test_no_memory_of_queries_times_keys_is_taken_for_a_mask_that_is_handed_on():
    mask = integrations.attention_mask(1, 200_000, 200_000)
    assert mask.shape == (1, 1, 200_000, 200_000)
    assert mask.ranges().high[..., -1].item() == 200_000


@pytest.mark.slow
def test_a_mask_made_before_a_compiled_model_runs_is_an_ordinary_one_inside_it():
    torch._dynamo.reset()
    x = torch.randn(2, 1, 4, 8, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(lambda mask: integrations.attention(None, x, x, x, mask)[0], backend="aot_eager")
    torch.testing.assert_close(compiled(lazy()), integrations.attention(None, x, x, x, lazy())[0])
