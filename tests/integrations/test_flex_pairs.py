"""Where FlexAttention's mods are evaluated: at pairs that exist and may attend, so that tables may end there and gradients stay finite."""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import overt
from overt.errors import InputError
from overt.integrations import flex_attention, flex_attention_plan

B, H, D = 2, 3, 4


def numbers(*shape):
    return torch.rand(*shape, dtype=torch.float64).add(0.5).requires_grad_()


def defined(query, key, value, mod, mask):
    """The definition in float64, pair by pair: masked pairs are not evaluated at all."""
    rows, group = [], query.shape[1] // key.shape[1]
    for b in range(B):
        for h in range(H):
            for i in range(query.shape[2]):
                pairs = [[torch.tensor(each) for each in (b, h, i, j)] for j in range(key.shape[2])]
                pairs = [pair for pair in pairs if mask is None or mask(*pair)]
                if not pairs:
                    rows.append(value.new_zeros(value.shape[-1]))
                    continue
                keys = [int(pair[3]) for pair in pairs]
                scores = [
                    mod(query[b, h, i] @ key[b, h // group, j] / D**0.5, *pair) for j, pair in zip(keys, pairs, strict=True)
                ]
                rows.append(torch.stack(scores).softmax(-1) @ value[b, h // group, keys])
    return torch.stack(rows).view(B, H, query.shape[2], -1)


def agrees(make, queries, keys, mask=None, group=1):
    """Output and all gradients are those of the definition, with gradients and without."""
    torch.manual_seed(queries * 100 + keys)
    lengths = [(H, queries), (H // group, keys), (H // group, keys)]
    inputs = [torch.randn(B, *each, D, dtype=torch.float64, requires_grad=True) for each in lengths]
    mod, captured = make(queries, keys)
    allowed = None if mask is None else mask(queries, keys)
    block_mask = None if mask is None else create_block_mask(allowed, B, H, queries, keys, device="cpu", BLOCK_SIZE=4)
    expected = defined(*inputs, mod, allowed)
    output = flex_attention(*inputs, mod, block_mask, enable_gqa=True)
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)
    upstream = torch.randn_like(expected)
    wanted = [*inputs, *(each for each in captured if each.requires_grad)]
    gradients = torch.autograd.grad(output, wanted, upstream, materialize_grads=True)
    for gradient, right in zip(gradients, torch.autograd.grad(expected, wanted, upstream, materialize_grads=True), strict=True):
        torch.testing.assert_close(gradient, right, rtol=1e-8, atol=1e-8)
    with torch.no_grad():
        torch.testing.assert_close(flex_attention(*inputs, mod, block_mask, enable_gqa=True), expected, rtol=1e-9, atol=1e-9)


def with_tables(make, *shape_of):
    def made(queries, keys):
        table = numbers(*(each(queries, keys) if callable(each) else each for each in shape_of))
        return make(table, queries), [table]

    return made


def distances(queries, keys):
    return queries + keys - 1


def shorter(queries, keys):
    return keys - 2


def stacked(table, queries):
    def mod(score, b, h, i, j):
        return torch.stack([score, table[j]]).sum(0)  # no expression: torch.vmap runs it

    return mod


def spoilt(fill, learned):
    def made(queries, keys):
        table, slope = numbers(keys).detach(), numbers(H)
        table[-2:] = fill
        table.requires_grad_(learned)
        return (lambda s, b, h, i, j: s * slope[h] + table[j] * slope[h]), [table, slope]

    return made


# Mods whose tables have a number for each distance that a pair has, and no more.
OF_DISTANCES = {
    "a table": with_tables(lambda t, q: lambda s, b, h, i, j: s + t[j - i + q - 1], distances),
    "a table a head": with_tables(lambda t, q: lambda s, b, h, i, j: s + t[h, j - i + q - 1], H, distances),
    "a table an entry": with_tables(lambda t, q: lambda s, b, h, i, j: s + t[b, j - i + q - 1], B, distances),
    "a table backwards": with_tables(lambda t, q: lambda s, b, h, i, j: s + t[h, i - j - q], H, distances),
    "a table in a product": with_tables(lambda t, q: lambda s, b, h, i, j: s * t[j - i + q - 1], distances),
}
# Mods whose derivative is not finite, or that have no number, where no query may attend under the masks below.
BELOW = {
    "a root": with_tables(lambda t, q: lambda s, b, h, i, j: s - t[h] * torch.sqrt((i - j).double()), H),
    "a logarithm": with_tables(lambda t, q: lambda s, b, h, i, j: s - t[b, h] * torch.log((i - j).double() + 1), B, H),
    "a root of the parameter": with_tables(
        lambda t, q: lambda s, b, h, i, j: s - torch.sqrt(t[h] * (i - j).clamp(min=0) + (i >= j) * 1e-3), H
    ),
    "a quotient": with_tables(lambda t, q: lambda s, b, h, i, j: s * t[0] / (i - j + 1), 1),
    "a product with the score": with_tables(lambda t, q: lambda s, b, h, i, j: s * torch.sqrt((i - j).double()) * t[h], H),
    "a table of distances": with_tables(lambda t, q: lambda s, b, h, i, j: s + t[i - j], lambda queries, keys: queries),
}
SHORT = {
    "of keys": with_tables(lambda t, q: lambda s, b, h, i, j: s + t[j], shorter),
    "of keys and heads, a factor": with_tables(lambda t, q: lambda s, b, h, i, j: s * t[h, j], H, shorter),
    "of keys and entries": with_tables(lambda t, q: lambda s, b, h, i, j: s + t[b, j], B, shorter),
    "of pairs": with_tables(lambda t, q: lambda s, b, h, i, j: s + t[i, j], lambda queries, keys: queries, shorter),
    "of keys, no expression": with_tables(stacked, shorter),
    "whose end is NaN": spoilt(math.nan, False),
    "whose end is infinite": spoilt(math.inf, True),
}
LOWER = {
    "causal": lambda queries, keys: lambda b, h, i, j: i >= j,
    "by no ranges": lambda queries, keys: lambda b, h, i, j: ((i * 7 + j * 3 + b + h) % 3 == 0) & (i >= j),
}
ENDS = {
    "cut": lambda queries, keys: lambda b, h, i, j: j < keys - 2,
    "cut and causal": lambda queries, keys: lambda b, h, i, j: (j < keys - 2) & (i >= j),
    "documents": lambda queries, keys: lambda b, h, i, j: (i // 2 == j // 2) & (j < keys - 2),
    "by no ranges": lambda queries, keys: lambda b, h, i, j: ((i * 5 + j + b * h) % 3 == 0) & (j < keys - 2),
}
SIZES = [(5, 7), (8, 3), (1, 6), (9, 9)]


@pytest.mark.parametrize("sizes", [*SIZES, (6, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("mod", OF_DISTANCES)
@pytest.mark.each_value
def test_a_table_of_the_distances_that_exist_is_long_enough(mod, sizes):
    agrees(OF_DISTANCES[mod], *sizes)
    agrees(OF_DISTANCES[mod], *sizes, LOWER["by no ranges"], group=3)


def test_one_query_sees_no_negative_distance():
    agrees(with_tables(lambda t, q: lambda s, b, h, i, j: s - t[h] * torch.sqrt((j - i).double()), H), 1, 6)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("mask", LOWER)
@pytest.mark.parametrize("mod", BELOW)
@pytest.mark.each_pair
def test_gradients_come_from_pairs_that_may_attend_alone(mod, mask, sizes):
    agrees(BELOW[mod], *sizes, LOWER[mask])


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("mask", ENDS)
@pytest.mark.parametrize("mod", SHORT)
@pytest.mark.each_pair
def test_a_table_need_not_reach_beyond_the_mask(mod, mask, sizes):
    agrees(SHORT[mod], *sizes, ENDS[mask])


def test_the_condition_of_a_where_with_minus_infinity_is_such_a_mask():
    slope = numbers(H)
    mask = LOWER["causal"](6, 6)
    inputs = [torch.randn(B, H, 6, D, dtype=torch.float64, requires_grad=True) for _ in range(3)]

    def mod(score, b, h, i, j):
        return torch.where(i >= j, score - slope[h] * torch.sqrt((i - j).double()), -math.inf)

    expected = defined(*inputs, lambda s, b, h, i, j: s - slope[h] * torch.sqrt((i - j).double()), mask)
    output = flex_attention(*inputs, mod)
    torch.testing.assert_close(output, expected)
    gradients, right = (torch.autograd.grad(each.sum(), [*inputs, slope]) for each in (output, expected))
    torch.testing.assert_close(gradients, right)


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("mod", ["of keys", "of pairs", "of keys, no expression", "of keys and heads, a factor"])
def test_a_table_that_is_too_short_for_a_pair_is_a_sentence_with_the_mod_and_the_sizes(mod, mask):
    query = torch.randn(B, H, 5, D)
    made, table = SHORT[mod](5, 7)[0], SHORT[mod](5, 7)[1][0]
    key = torch.randn(B, H, 7, D)
    block_mask = None if mask is None else create_block_mask(lambda b, h, i, j: j >= i, None, None, 5, 7, device="cpu")
    made.__name__ = "lookup"
    text = rf'the score_mod "lookup" .* B = 2, H = 3, Q = 5, K = 7, got .* size {table.shape[-1]}\. Fix: '
    with pytest.raises(InputError, match=text):
        flex_attention(query, key, key, made, block_mask)


def test_common_mods_under_a_mask_stay_in_the_native_core():
    query = torch.randn(1, 2, 64, 16, requires_grad=True)
    causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, 64, 64, device="cpu")
    slopes, keys, table = numbers(2).float().detach().requires_grad_(), torch.randn(62, requires_grad=True), torch.randn(127)
    cut = create_block_mask(lambda b, h, i, j: (i >= j) & (j < 62), None, None, 64, 64, device="cpu")
    for mod, mask in (
        (lambda s, b, h, i, j: s - slopes[h] * (i - j), causal),
        (lambda s, b, h, i, j: s - slopes[h] * torch.sqrt((i - j).float()), causal),
        (lambda s, b, h, i, j: s + keys[j], cut),
        (lambda s, b, h, i, j: s + table[i - j + 63], causal),
    ):
        assert flex_attention_plan(query, query, query, mod, mask).path == "native"


def test_under_autocast_positions_are_exact():
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, 700, 8).bfloat16().float() for _ in range(3)]
    table = torch.randn(700)

    def mod(score, b, h, i, j):
        return score * table[i] + score.abs() * table[j]

    expected = flex_attention(*inputs, mod)
    with torch.autocast("cpu"):
        output = flex_attention(*inputs, mod)
        assert flex_attention_plan(*inputs, mod).path == "native"
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, expected, rtol=2e-2, atol=2e-2)


def test_a_recording_of_a_careful_mod_shows_its_weights():
    slope = torch.ones(2, requires_grad=True)

    class Model(torch.nn.Module):
        def forward(self, x):
            heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
            mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 9, 9, device="cpu")
            return flex_attention(
                heads, heads, heads, lambda s, b, h, i, j: s * s - slope[h] * torch.sqrt((i - j).float()), mask
            )

    model, x = Model(), torch.randn(1, 9, 8)
    with overt.lens.record(model) as recording:
        model(x)
    assert not recording.missing
    assert recording.verify().holds
    weights = recording[0, 1].weights()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
