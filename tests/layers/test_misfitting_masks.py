"""Masks that do not fit a layer's call: each is refused, and the error says how to write the one that fits."""

import pytest
import torch
from torch import nn

import overt
from overt.errors import InputError
from overt.layers import AttentionPool, Contextual, CrossAttention, MultiHeadAttention, SelfAttention

B, K, D = 3, 11, 8
LENGTHS = torch.tensor([11, 5, 1])
TOKENS = torch.arange(K) < LENGTHS[:, None]  # (B, K)


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


STATES = normal(B, K, D)


def heads(x, **options):
    return MultiHeadAttention(D, 2)(x, **options)


@pytest.mark.parametrize(
    ("call", "mask", "shapes"),
    [
        pytest.param(
            lambda **options: CrossAttention(D, D)(normal(B, B, D), STATES, **options),
            TOKENS[:, None, None, :],
            r"\(3, 3, 11\), got mask \(3, 1, 1, 11\)",
            id="as many queries as batch entries",
        ),
        pytest.param(
            lambda **options: CrossAttention(D, D)(normal(B, D), STATES, **options),
            TOKENS[:, None, None, :],
            r"\(3, 1, 11\), got mask \(3, 1, 1, 11\)",
            id="one step",
        ),
        pytest.param(
            lambda **options: CrossAttention(D, D)(normal(1, 2, D), STATES[:1], **options),
            TOKENS[:, None, :],
            r"\(1, 2, 11\), got mask \(3, 1, 11\)",
            id="more entries than the batch",
        ),
        pytest.param(
            lambda **options: AttentionPool(D)(STATES, **options),
            TOKENS[:, None, None, :],
            r"\(3, 1, 11\), got mask \(3, 1, 1, 11\)",
            id="pool",
        ),
        pytest.param(
            lambda **options: heads(STATES, **options),
            TOKENS[:, None, None, None, :],
            r"\(3, 2, 11, 11\), got mask \(3, 1, 1, 1, 11\)",
            id="heads",
        ),
        pytest.param(
            lambda **options: heads(STATES[0], **options),
            TOKENS[:, None, None, :],
            r"\(1, 2, 11, 11\), got mask \(3, 1, 1, 11\)",
            id="heads without a batch",
        ),
    ],
)
def test_a_mask_with_more_dimensions_or_entries_than_the_call_is_refused(call, mask, shapes):
    with pytest.raises(InputError, match=r"Expected mask to broadcast, aligned right, .* = " + shapes):
        call(mask=mask)


@pytest.mark.parametrize("steps", [1, B])
def test_a_mask_of_one_row_a_batch_entry_is_the_lengths(steps):
    layer, query = CrossAttention(D, D), normal(B, steps, D, seed=2)
    torch.testing.assert_close(layer(query, STATES, mask=TOKENS[:, None, :]), layer(query, STATES, lengths=LENGTHS))


def test_states_that_a_batch_shares_may_be_masked_for_each_entry():
    layer, query, allowed = CrossAttention(D, D), normal(B, 2, D, seed=2), TOKENS & (torch.arange(K) < K - 1)
    states = torch.where((torch.arange(K) < K - 1)[:, None], STATES[0], torch.nan)
    actual = layer(query, states, mask=allowed[:, None, :])
    torch.testing.assert_close(actual, layer(query, STATES[0].expand(B, K, D), mask=allowed[:, None, :]))
    actual.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters() if parameter.grad is not None)


ROW = "for one row of keys per batch entry, or overt.masks.from_attention_mask(mask), if True or 1 is a token."


@pytest.mark.parametrize(
    ("call", "index"),
    [
        (lambda mask: SelfAttention(D)(STATES, mask=mask), "[:, None, :]"),
        (lambda mask: SelfAttention(D, causal=True)(STATES, mask=mask), "[:, None, :]"),
        (lambda mask: CrossAttention(D, D)(normal(B, 4, D), STATES, mask=mask), "[:, None, :]"),
        (lambda mask: CrossAttention(D, D)(normal(B, D), STATES, mask=mask), "[:, None, :]"),
        (lambda mask: AttentionPool(D)(STATES, mask=mask), "[:, None, :]"),
        (lambda mask: Contextual(nn.Linear(D, D), "dot")(STATES, mask=mask), "[:, None, :]"),
        (lambda mask: heads(STATES, mask=mask), "[:, None, None, :]"),
        (lambda mask: overt.attend(STATES, STATES, STATES, mask=mask), "[:, None, :]"),
        (lambda mask: overt.attend(*[STATES[:, None]] * 3, mask=mask & overt.Causal()), "[:, None, None, :]"),
    ],
    ids=["self", "causal", "cross", "one step", "pool", "contextual", "heads", "attend", "attend with a causal mask"],
)
def test_a_row_of_keys_for_each_batch_entry_gets_the_index_of_the_calls_dimensions(call, index):
    with pytest.raises(InputError) as error:
        call(TOKENS)
    assert error.value.fix + "." == f"write mask{index} {ROW}"
    call(eval(f"mask{index}", {"mask": TOKENS}))
    call(overt.masks.from_attention_mask(TOKENS))


@pytest.mark.parametrize(
    ("mask", "fix"),
    [
        (TOKENS[:, None, None, :], "remove a dimension of size 1: the weights have 3 dimensions"),
        (TOKENS[:, None, None, None, :], "remove 2 dimensions of size 1: the weights have 3 dimensions"),
        (overt.Causal() & TOKENS[:, None, None, :], "remove a dimension of size 1: the weights have 3 dimensions"),
        (torch.ones(2, B, K, K, dtype=torch.bool), "remove a dimension: the weights have 3 dimensions"),
        (torch.ones(4, K, dtype=torch.bool), "make each dimension as long as the weights' or 1"),
    ],
    ids=["one more", "two more", "in a combination", "none of size 1", "another length"],
)
def test_the_fix_of_a_mask_of_the_wrong_shape_is_that_of_its_cause(mask, fix):
    with pytest.raises(InputError) as error:
        overt.attend(STATES, STATES, STATES, mask=mask)
    assert error.value.fix == fix


@pytest.mark.parametrize(
    ("mask", "what"),
    [
        (overt.Lengths(torch.tensor([5, 4])), "length"),
        (overt.Causal() & overt.Lengths(torch.tensor([5, 4])), "length"),
        (~overt.masks.Keys(TOKENS[:2]), "row of keys"),
        (overt.Documents(torch.zeros(2, K, dtype=torch.long)), "row of ids"),
        (overt.Causal(offset=torch.tensor([1, 2])), "offset"),
    ],
    ids=["lengths", "in a combination", "keys", "documents", "offsets"],
)
def test_a_mask_with_other_batch_entries_than_the_call_says_how_many_it_has(mask, what):
    with pytest.raises(InputError) as error:
        overt.attend(STATES, STATES, STATES, mask=mask)
    assert str(error.value) == (
        f"Expected one {what} for each of the 3 batch entries, got 2. Fix: pass one for each, in their order."
    )


def test_two_dimensions_are_queries_and_keys_where_the_batch_has_as_many_entries_too():
    layer, x, mask = SelfAttention(D), normal(K, K, D), torch.ones(K, K, dtype=torch.bool).tril()
    torch.testing.assert_close(layer(x, mask=mask), layer(x, mask=overt.Causal()))
