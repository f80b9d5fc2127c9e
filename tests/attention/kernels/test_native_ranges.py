"""Masks whose values are one range of keys a row run as ranges: packed documents, padding and causal tensors, and what combines them."""

import hypothesis
import pytest
import torch
from hypothesis import strategies

import overt
from compare import check, inputs

LENGTHS = [1, 15, 16, 17, 63, 65, 257, 1025]


def causal(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


def packed(length):
    """Documents of 1, 2, 3, … tokens."""
    return torch.repeat_interleave(torch.arange(length), torch.arange(1, length + 1))[:length]


def attend(query, key, value, mask):
    with overt.use_path("native"):
        return overt.attend(query, key, value, mask=mask)


def results(mask, attend=attend):
    """The output and every gradient of two entries of three heads of 257 tokens."""
    generator = torch.Generator().manual_seed(0)
    query, key, value, upstream = (torch.randn(2, 3, 257, 8, generator=generator).requires_grad_() for _ in range(4))
    output = attend(query, key, value, mask)
    return output.detach(), *torch.autograd.grad(output, (query, key, value), upstream.detach())


def same_bits(result, wanted):
    return all(torch.equal(a, b) for a, b in zip(result, wanted, strict=True))


LENGTHS_OF_TWO = torch.tensor([200, 31])
VISIBLE = torch.arange(257) < LENGTHS_OF_TWO[:, None]  # (2, 257)
IDS = packed(257)
RUNS = overt.masks.Ranges(*(torch.searchsorted(IDS, IDS, right=right) for right in (False, True)))
AS_RANGES = {
    "a causal tensor": (causal(257), overt.Causal()),
    "its transposed strides": (causal(257).T.contiguous().T, overt.Causal()),
    "a causal tensor of each head": (causal(257).expand(2, 3, -1, -1).contiguous(), overt.Causal()),
    "padding on the right": (VISIBLE[:, None, None], overt.Lengths(LENGTHS_OF_TWO)),
    "padding of each row": (VISIBLE[:, None, None].expand(-1, 1, 257, -1).contiguous(), overt.Lengths(LENGTHS_OF_TWO)),
    "torch's padding mask": (overt.masks.from_padding(~VISIBLE), overt.Lengths(LENGTHS_OF_TWO)),
    "padding and causal": (VISIBLE[:, None, None] & causal(257), overt.Lengths(LENGTHS_OF_TWO) & overt.Causal()),
    "padding beside causal": (overt.masks.from_padding(~VISIBLE) & overt.Causal(), overt.Lengths(LENGTHS_OF_TWO) & overt.Causal()),
    "documents": (overt.Documents(IDS), RUNS),
    "documents in other order": (overt.Documents(300 - IDS), RUNS),
    "documents by entry": (overt.Documents(torch.stack([IDS, 3 * IDS + 7])), RUNS),
    "documents and causal": (overt.Documents(IDS) & overt.Causal(), RUNS & overt.Causal()),
    "documents, a window and a tensor": (
        overt.Documents(IDS) & overt.Window(9, 4) & overt.masks.Dense(causal(257)),
        RUNS & overt.Window(9, 0),
    ),
    "a prefix or causal": (overt.Causal() | overt.Lengths(40), overt.masks.Ranges(torch.zeros(257).long(), torch.arange(1, 258).clamp(min=40))),
    "not an upper triangle": (~overt.masks.Dense(~causal(257)), overt.Causal()),
}  # fmt: skip


@pytest.mark.parametrize("name", AS_RANGES)
def test_what_is_one_range_a_row_has_the_bits_of_ranges(name):
    mask, ranges = AS_RANGES[name]
    assert same_bits(results(mask), results(ranges))


def test_cumulative_lengths_have_the_bits_of_ranges():
    lengths, ends = torch.tensor([100, 0, 150]), torch.tensor([0, 100, 100, 250])
    low, high = (torch.cat([edge.repeat_interleave(lengths), torch.zeros(7).long()]) for edge in (ends[:-1], ends[1:]))
    mask = overt.masks.from_cu_seqlens(ends.int(), total=257)
    assert same_bits(results(mask & overt.Causal()), results(overt.masks.Ranges(low, high) & overt.Causal()))


def test_masks_that_are_ranges_are_found_in_compiled_code_too():
    compiled = torch.compile(attend, backend="aot_eager")
    for name in ("a causal tensor", "documents and causal"):
        mask, ranges = AS_RANGES[name]
        assert same_bits(results(mask, compiled), results(ranges))


def test_masks_that_are_ranges_are_found_under_vmap():
    query, key, value = torch.randn(3, 2, 257, 8).unbind()
    masks = torch.stack([causal(257), ~causal(257)])
    mapped = torch.func.vmap(attend)(query, key, value, masks)
    assert torch.equal(mapped[0], attend(query[0], key[0], value[0], overt.Causal()))
    assert torch.equal(mapped[1], attend(query[1], key[1], value[1], ~overt.Causal()))


def leaves(batch, heads, queries, keys):
    """Masks that are ranges a row, or nearly: some rows or entries are not."""
    seeds = strategies.integers(0, 10**6)

    def pairs(seed):
        generator = torch.Generator().manual_seed(seed)
        shape = [size if torch.rand((), generator=generator) < 0.6 else 1 for size in (batch, heads, queries, keys)]
        low, high = (torch.randint(-2, keys + 3, (*shape[:3], 1), generator=generator) for _ in range(2))
        allowed = (low <= torch.arange(shape[3])) & (torch.arange(shape[3]) < high)
        if seed % 3 == 0:
            allowed = allowed ^ (torch.rand(allowed.shape, generator=generator) < 0.01)
        return overt.masks.Dense(allowed.mT.contiguous().mT if seed % 2 else allowed)

    def documents(seed):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(-1, max(2, keys // 5), (batch, keys), generator=generator)
        ids = ids.sort(descending=seed % 4 == 1).values if seed % 4 else ids
        queries_of = torch.randint(-1, max(2, keys // 5), (queries,), generator=generator)
        return overt.Documents(ids if seed % 2 else ids[0], query_ids=queries_of if seed % 3 else queries_of.sort().values)

    offset = strategies.integers(-3, keys + 3)
    return strategies.one_of(
        seeds.map(pairs),
        seeds.map(documents),
        offset.map(lambda n: overt.Causal(offset=n)),
        offset.map(lambda n: overt.Lengths(max(n, 0))),
    )


def combined(masks):
    pair = strategies.tuples(masks, masks)
    return strategies.one_of(
        pair.map(lambda both: both[0] & both[1]), pair.map(lambda both: both[0] | both[1]), masks.map(lambda m: ~m)
    )


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(strategies.data())
def test_each_query_attends_to_the_keys_of_the_mask_and_to_no_others(data):
    batch, heads, queries, keys = (data.draw(strategies.integers(1, most)) for most in (3, 3, 70, 140))
    mask = data.draw(strategies.recursive(leaves(batch, heads, queries, keys), combined, max_leaves=4))
    allowed = mask.bind(2, queries, keys).block(torch.arange(queries), torch.arange(keys)).expand(batch, heads, queries, keys)
    # Scores of 0 and values of one key each: the output is the weights.
    output = attend(
        torch.zeros(batch, heads, queries, 2),
        torch.zeros(batch, heads, keys, 2),
        torch.eye(keys).expand(batch, heads, -1, -1),
        mask,
    )
    wanted = allowed / allowed.sum(-1, keepdim=True).clamp(min=1)
    assert torch.allclose(output, wanted, rtol=1e-5, atol=0)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["documents and causal", "causal tensor", "a hole in the last row"])
@pytest.mark.few_cases(5)
def test_each_length_has_the_oracles_numbers(kind, length):
    allowed, ids = causal(length), packed(length)
    if kind == "documents and causal":
        mask, allowed = overt.Documents(ids) & overt.Causal(), allowed & (ids[:, None] == ids)
    else:
        if kind == "a hole in the last row":
            allowed[-1, length // 2] = False
        mask = overt.masks.Dense(allowed)
    shapes = [(1, length, 5)] * 3 if length > 257 else [(2, 3, length, 5)] * 3
    with overt.use_path("native"):
        check(inputs(*shapes), mask=mask, allowed=allowed, dtype=torch.float32)


@pytest.mark.parametrize("name", ["a causal tensor", "documents and causal", "padding of each row"])
def test_nan_behind_a_mask_that_is_ranges_reaches_nobody(name):
    mask = AS_RANGES[name][0]
    allowed = overt.masks.as_mask(mask).bind(2, 257, 257).block(torch.arange(257), torch.arange(257)).expand(2, 3, 257, 257)
    query, key, value = (torch.randn(2, 3, 257, 8) for _ in range(3))
    key[..., 140, :], value[..., 140, :] = torch.nan, torch.inf
    output = attend(query.requires_grad_(), key, value, mask)
    apart = ~allowed[..., 140]  # the queries that may not attend to this key
    assert output[apart].isfinite().all()
    assert not output[~apart].isfinite().any()
    assert torch.autograd.grad(output[apart].sum(), query)[0][apart].isfinite().all()


def test_no_block_of_a_bool_tensor_is_computed(monkeypatch):
    monkeypatch.setattr(overt.masks.Dense, "block", None)
    results(causal(257))


def test_a_bool_tensor_may_be_written_to_between_calls():
    allowed = causal(257)
    before = results(allowed)
    allowed[5:, :3] = False
    assert same_bits(results(allowed), results(overt.Causal() & overt.masks.Ranges(*_without_first_three())))
    allowed[5:, :3] = True
    assert same_bits(results(allowed), before)


def _without_first_three():
    low = torch.where(torch.arange(257) < 5, 0, 3)
    return low, torch.full((257,), 257)
