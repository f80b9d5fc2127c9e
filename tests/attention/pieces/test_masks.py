"""Masks say who may attend to whom, lazily, and combine."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

import overt
from overt import masks
from overt.errors import InputError, KindError


def dense(mask, queries=5, keys=5, batch=()):
    """What attend takes the mask to mean, as a matrix."""
    query, key = torch.zeros(*batch, queries, 2), torch.zeros(*batch, keys, 2)
    return overt.steps(query, key, key, mask=mask).masked == 0


def matrix(rule, queries=5, keys=5):
    return torch.tensor([[bool(rule(i, j)) for j in range(keys)] for i in range(queries)])


def test_causal_lets_each_query_see_itself_and_what_came_before():
    assert torch.equal(dense(overt.Causal()), matrix(lambda i, j: j <= i))


def test_causal_is_aligned_at_the_end_unless_an_offset_is_given():
    assert torch.equal(dense(overt.Causal(), 3, 5), matrix(lambda i, j: j <= i + 2, 3, 5))
    assert torch.equal(dense(overt.Causal(offset=0), 3, 5), matrix(lambda i, j: j <= i, 3, 5))
    assert torch.equal(dense(overt.Causal(offset=-1), 3, 5), matrix(lambda i, j: j < i, 3, 5))


def test_a_window_bounds_both_sides_or_one():
    assert torch.equal(dense(overt.Window(1, 2)), matrix(lambda i, j: -1 <= j - i <= 2))
    assert torch.equal(dense(overt.Window(1, None)), matrix(lambda i, j: j - i >= -1))
    assert torch.equal(dense(overt.Window(None, 0)), dense(overt.Causal()))
    assert torch.equal(dense(overt.Window(None, None)), matrix(lambda i, j: True))


def test_lengths_bar_what_lies_beyond_and_may_bar_queries_too():
    mask = overt.Lengths(torch.tensor([2, 5]), queries=torch.tensor([5, 1]))
    actual = dense(mask, batch=(2,))
    assert torch.equal(actual[0], matrix(lambda i, j: j < 2))
    assert torch.equal(actual[1], matrix(lambda i, j: i < 1))
    assert torch.equal(dense(overt.Lengths(3)), matrix(lambda i, j: j < 3))


def test_lengths_are_aligned_with_the_first_dimension_and_shared_by_heads():
    actual = dense(overt.Lengths([2, 5]), batch=(2, 3))
    assert torch.equal(actual[0, 1], matrix(lambda i, j: j < 2))
    assert torch.equal(actual[1, 2], matrix(lambda i, j: True))


def test_documents_see_only_themselves_and_negative_ids_nothing():
    ids = torch.tensor([0, 0, 1, 1, -1])
    assert torch.equal(dense(overt.Documents(ids)), matrix(lambda i, j: ids[i] == ids[j] and ids[j] >= 0))


def test_documents_may_ask_from_other_positions_than_the_keys():
    mask = overt.Documents(torch.tensor([[0, 0, 1], [5, 5, 5]]), query_ids=torch.tensor([[1], [5]]))
    assert dense(mask, 1, 3, batch=(2,)).tolist() == [[[False, False, True]], [[True, True, True]]]


@settings(max_examples=60, deadline=None)
@given(some.integers(1, 9), some.integers(1, 9), some.integers(-4, 6), some.integers(0, 4), some.integers(0, 9), some.data())
def test_and_or_not_mean_what_they_mean_for_matrices(queries, keys, offset, before, length, data):
    table = torch.tensor(data.draw(some.lists(some.booleans(), min_size=keys, max_size=keys)))
    causal, window, lengths = overt.Causal(offset), overt.Window(before, 1), overt.Lengths(length)
    parts = [dense(mask, queries, keys) for mask in (causal, window, lengths, table)]
    actual = dense((causal & window) | (~lengths & table), queries, keys)
    assert torch.equal(actual, (parts[0] & parts[1]) | (~parts[2] & parts[3]))


@settings(max_examples=60, deadline=None)
@given(some.integers(1, 20), some.integers(1, 20), some.integers(-4, 6), some.integers(0, 6), some.integers(0, 3))
def test_no_key_outside_a_masks_span_may_be_attended_to(queries, keys, offset, before, after):
    for mask in (
        overt.Causal(offset),
        overt.Window(before, after),
        overt.Causal() & overt.Window(before, after),
        overt.Causal() | overt.Window(before, 0),
    ):
        bound = mask.bind(0, queries, keys)
        for first in range(0, queries, 3):
            stop = min(first + 3, queries)
            low, high = bound.span(first, stop, keys)
            visible = bound.block(torch.arange(first, stop), torch.arange(keys)).expand(stop - first, keys).any(0)
            assert not visible[: max(low, 0)].any()
            assert not visible[max(high, 0) :].any()


def test_a_mask_of_ones_own_needs_one_method_and_combines():
    class Even(masks.Mask):
        def block(self, rows, keys):
            return (rows[:, None] + keys) % 2 == 0

    assert torch.equal(dense(Even() & overt.Causal()), matrix(lambda i, j: (i + j) % 2 == 0 and j <= i))

    class Plain:
        def block(self, rows, keys):
            return keys[None, :] != 1

    assert torch.equal(dense(Plain()), matrix(lambda i, j: j != 1))
    assert torch.equal(dense(overt.Causal() & Plain()), matrix(lambda i, j: j != 1 and j <= i))


def test_a_plain_bool_tensor_is_aligned_right():
    keys = torch.tensor([True, False, True, True, True])
    assert torch.equal(dense(keys), matrix(lambda i, j: j != 1))
    heads = torch.stack([keys, ~keys])[:, None, :]
    assert torch.equal(dense(heads, batch=(3, 2))[1, 1], matrix(lambda i, j: j == 1))


def test_with_offset_gives_the_offset_to_every_mask_that_is_aligned_at_the_end():
    padding = overt.Lengths(4)
    mask = (overt.Causal() & ~overt.Window(1, 0)) | (padding & overt.Window(0, 1))
    result = dense(mask.with_offset(1), 3, 6)
    causal, window, other = (dense(part, 3, 6) for part in (overt.Causal(1), overt.Window(1, 0, 1), overt.Window(0, 1, 1)))
    assert torch.equal(result, (causal & ~window) | (dense(padding, 3, 6) & other))


def test_with_offset_takes_an_offset_for_each_batch_entry():
    result = dense((overt.Causal() & overt.Window(1, None)).with_offset(torch.tensor([2, 0])), 3, 5, batch=(2,))
    assert torch.equal(result[0], matrix(lambda i, j: i + 1 <= j <= i + 2, 3, 5))
    assert torch.equal(result[1], matrix(lambda i, j: i - 1 <= j <= i, 3, 5))


def test_with_offset_leaves_an_offset_that_was_given_and_masks_that_have_none():
    class Even(masks.Mask):
        def block(self, rows, keys):
            return (rows[:, None] + keys) % 2 == 0

    class Plain:
        def block(self, rows, keys):
            return keys[None, :] != 1

    causal = overt.Causal(0)
    for mask in (causal, Even(), overt.Lengths(2), overt.masks.Dense(torch.ones(5, dtype=torch.bool))):
        assert mask.with_offset(3) is mask
    assert torch.equal(dense((causal & Even()).with_offset(3)), dense(causal & Even()))
    assert torch.equal(dense((causal & Plain()).with_offset(3)), dense(causal & Plain()))


def test_a_subclass_with_another_block_inherits_nothing_about_the_parents_block():
    class Strict(overt.Causal):
        def block(self, rows, keys):
            return keys < rows[:, None] + self.offset

    mask = Strict(0)
    assert (mask.has_row_ranges, mask.numbers, mask.for_heads(lambda tensor, trailing: tensor)) == (False, None, None)
    assert torch.equal(dense(mask), matrix(lambda i, j: j < i))


def test_converters_keep_the_other_librarys_meaning():
    assert dense(masks.from_padding(torch.tensor([[False, True]])), 1, 2, (1,)).tolist() == [[[True, False]]]
    assert dense(masks.from_attention_mask(torch.tensor([[1, 0]])), 1, 2, (1, 3))[0, 2].tolist() == [[True, False]]
    allowed = torch.rand(1, 1, 2, 2) < 0.5
    assert torch.equal(dense(masks.from_attention_mask(allowed), 2, 2, (1, 1)), allowed)
    packed = masks.from_cu_seqlens(torch.tensor([0, 2, 2, 5]))
    assert packed.key_ids.tolist() == [0, 0, 2, 2, 2]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: overt.Causal(offset=1.5), "offset of overt.Causal to be an int or an integer tensor, got 1.5"),
        (lambda: overt.Window(1.0, 0), "before of overt.Window to be a whole number of positions, or None, got 1.0"),
        (
            lambda: overt.Lengths(torch.tensor([1.0])),
            "keys of overt.Lengths to be an int or an integer tensor, got a torch.float32 tensor",
        ),
        (lambda: overt.Documents([0, 1]), "key_ids of overt.Documents to be an integer tensor, got [0, 1] of type list"),
        (
            lambda: overt.masks.Dense(torch.zeros(2, 2)),
            "a bool mask, True where a query may attend, got a torch.float32 tensor",
        ),
        (lambda: masks.Keys(torch.ones(3)), "a bool tensor in overt.masks.Keys, got a torch.float32 tensor"),
        (
            lambda: masks.from_padding(torch.zeros(2, 3)),
            "key_padding_mask to be bool, True at padding, got a torch.float32 tensor",
        ),
        (
            lambda: overt.Causal() & 3,
            "the mask to be a bool tensor, one of overt's masks, the name of one or an object with block(rows, keys), got 3",
        ),
        (lambda: bool(overt.Causal()), "masks combined with & | ~, got and, or, not or if"),
    ],
)
def test_what_is_no_mask_is_refused(make, text):
    with pytest.raises(KindError) as error:
        make()
    assert str(error.value).startswith(f"Expected {text}")


def test_a_padding_mask_of_ones_and_zeros_is_asked_what_1_means():
    with pytest.raises(KindError) as error:
        masks.from_padding(torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]))
    assert str(error.value) == (
        "Expected key_padding_mask to be bool, True at padding, got a torch.int64 tensor. Fix: if 1 is a token, as in a tokenizer's "
        "attention_mask, pass it to overt.masks.from_attention_mask; if 1 is padding, convert it: mask.bool()."
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: dense(overt.Lengths(torch.tensor([[1]])), batch=(1,)),
            "overt.Lengths to have at most one entry for each of the call's 1 leading",
        ),
        (
            lambda: dense(overt.Documents(torch.tensor([0, 1]))),
            "key_ids of overt.Documents to have the length K = 5, got shape (2,)",
        ),
        (
            lambda: dense(overt.Lengths(torch.tensor([1, 2, 3])), batch=(2,)),
            "one length for each of the 2 batch entries, got 3. Fix: pass one for each, in their order.",
        ),
        (
            lambda: overt.Causal().block(torch.arange(2), torch.arange(2)),
            "the lengths Q and K before a block, since overt.Causal() without an offset is aligned at the end",
        ),
        (
            lambda: dense(overt.Causal() & torch.ones(7, 7, dtype=torch.bool)),
            "a mask to broadcast, aligned right, against the weights (..., Q, K) = (..., 5, 5), got a mask of shape (7, 7)",
        ),
        (lambda: dense(overt.Causal() | torch.ones(4, dtype=torch.bool)), "a mask to broadcast, aligned right, against"),
        (lambda: masks.from_cu_seqlens(torch.tensor([1, 2])), "cu_seqlens to start at 0 and not to decrease, got [1, 2]"),
        (
            lambda: masks.from_attention_mask(torch.zeros(1, 1, 2, 2)),
            "attention_mask to be (B, K) of ones and zeros, or a bool tensor (B, H, Q, K)",
        ),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(make, text):
    with pytest.raises(InputError) as error:
        make()
    assert str(error.value).startswith(f"Expected {text}")


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (3, 1), (1, 1), (5,), (1,), (), (2, 1, 3, 5), (2, 1, 5)])
def test_a_bool_tensor_fits_where_its_last_sizes_are_1_or_the_calls(shape):
    dense = overt.masks.Dense(torch.rand(shape) > 0.5)
    rows, keys = torch.arange(3), torch.arange(5)
    actual = dense.bind(2, 3, 5).block(rows, keys)
    assert torch.equal(actual.expand(*shape[:-2], 3, 5), dense.allowed.expand(*shape[:-2], 3, 5))


@pytest.mark.parametrize("shape", [(2, 5), (4, 5), (3, 4), (3, 6), (4,), (6,), (2, 1), (4, 1), (2, 3)])
def test_a_bool_tensor_of_other_sizes_is_refused_whether_smaller_or_larger(shape):
    with pytest.raises(InputError, match=r"against the weights \(\.\.\., Q, K\) = \(\.\.\., 3, 5\), got a mask of shape"):
        overt.masks.Dense(torch.ones(shape, dtype=torch.bool)).bind(1, 3, 5)


@pytest.mark.parametrize(
    ("shape", "by_key"),
    [((), True), ((5,), True), ((1, 5), True), ((3, 5), False), ((2, 1, 5), True), ((2, 3, 5), False), ((3, 1), False)],
)
def test_a_bool_tensor_bars_keys_alone_where_it_has_one_row(shape, by_key):
    assert overt.masks.Dense(torch.ones(shape, dtype=torch.bool)).by_key is by_key


@pytest.mark.parametrize("shape", [(3,), (1,), (2, 3), (2, 1), (2, 4, 3)])
def test_a_run_of_keys_a_query_holds_the_keys_from_low_up_to_high(shape):
    low = torch.randint(0, 5, shape)
    high = low + torch.randint(0, 3, shape)
    other = masks.Ranges(torch.full(shape, 1), torch.full(shape, 4))
    mask = masks.Ranges(low, high).bind(shape[:-1], 3, 6)
    rows, keys = torch.arange(3), torch.arange(6)
    wanted = (low[..., None] <= keys) & (keys < high[..., None])
    assert torch.equal(mask.block(rows, keys), wanted)
    assert torch.equal((mask & other).block(rows, keys), wanted & (keys >= 1) & (keys < 4))
    assert torch.equal((mask & overt.Causal(2)).block(rows, keys), wanted & (keys <= rows[:, None] + 2))
    assert mask.by_key is (shape[-1] == 1)


def test_runs_of_other_lengths_than_the_queries_are_refused():
    with pytest.raises(InputError, match="one range for each of Q = 3 queries, or one for all, got low of shape"):
        masks.Ranges(torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64)).bind((), 3, 6)


def test_packed_texts_of_any_lengths_are_told_apart():
    packed = masks.from_cu_seqlens(torch.tensor([0, 1, 3, 4, 6]))
    assert packed.key_ids.tolist() == [0, 1, 1, 2, 3, 3]
    with pytest.raises(InputError, match="cu_seqlens to start at 0 and not to decrease, got"):
        masks.from_cu_seqlens(torch.tensor([0]))


def test_masks_are_lazy_and_hold_nothing_of_size_n_by_n():
    mask = (overt.Causal() & overt.Window(100, 0)).bind(0, 10**9, 10**9)
    rows = torch.arange(10**9 - 2, 10**9)
    assert np.array_equal(mask.block(rows, rows), [[True, False], [True, True]])
