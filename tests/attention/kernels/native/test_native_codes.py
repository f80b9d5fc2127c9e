"""Decoding against int8 codes and their scales gives the numbers of float64, on every level and unit."""

import math

import pytest
import torch

from overt import native
from overt.attention.kernels import cpu
from overt.attention.kernels.flat.dot import row_lse

UNITS = [unit for unit in native.module().units() if unit != "amx-emulated"]


@pytest.fixture(params=[*UNITS, "none"])
def unit(request):
    """A unit of the machine, or none, and the best again afterwards."""
    native.module().use_unit(request.param)
    yield request.param
    native.module().use_unit("best")


def codes(heads: int, keys: int, features: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes (1, heads, keys, features) with the largest and smallest number, and a scale for each."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-127, 128, (1, heads, keys, features), generator=generator).to(torch.int8)
    drawn[..., 0], drawn[..., -1] = 127, -127
    return drawn, torch.rand(1, heads, keys, 1, generator=generator) / 50 + 1e-3


def in_order(rows: torch.Tensor, are_keys: bool) -> torch.Tensor:
    """Woven codes of rows, element by element, with numbers that are no codes of these rows after them."""
    count, width = rows.shape[-2:]
    whole = torch.full((*rows.shape[:2], -(-count // 16) * 16, width), 99, dtype=torch.int8)
    whole[:, :, :count] = rows
    j, d = torch.arange(whole.shape[-2])[:, None], torch.arange(width)
    position = j // 16 * 16 * width + d // 4 * 64 + j % 16 * 4 + d % 4 if are_keys else j // 4 * 4 * width + d * 4 + j % 4
    woven = torch.empty_like(whole)
    woven.flatten(-2)[..., position.flatten()] = (whole ^ -128 if are_keys else whole).flatten(-2)
    assert torch.equal(woven, cpu.weave_codes(whole, are_keys))
    assert torch.equal(whole, cpu.unweave_codes(woven, are_keys))
    return woven


def attended(query, key, value, scale):
    """Output and log-sum-exp of the native kernel, and those of float64."""
    output, sums = (
        query.new_empty(*query.shape[:-1], value[0].shape[-1], dtype=torch.float32),
        torch.empty(*query.shape[:2], 2, query.shape[2]),
    )
    woven = cpu.weaves_codes(query.dtype, query.shape[-1], value[0].shape[-1])
    read = [(in_order(part[0], are_keys), part[1]) if woven else part for part, are_keys in ((key, True), (value, False))]
    cpu.dot_codes(query, *read, scale, (output, sums), woven)
    repeated = [
        (part[0].double() * part[1].double()).repeat_interleave(query.shape[1] // part[0].shape[1], 1) for part in (key, value)
    ]
    scores = query.double() @ repeated[0].mT * scale
    return output, row_lse(sums), scores.softmax(-1) @ repeated[1], scores.logsumexp(-1)


@pytest.mark.parametrize("keys", [1, 3, 15, 16, 17, 63, 64, 65, 257, 1025])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "features", "width"),
    [(1, 1, 64, 64), (4, 1, 128, 64), (5, 1, 64, 128), (12, 2, 192, 128), (3, 1, 80, 48)],
)
@pytest.mark.each_value
def test_every_length_and_group_gives_the_numbers_of_float64(unit, keys, heads, kv_heads, features, width):
    query = torch.randn(1, heads, 1, features, generator=torch.Generator().manual_seed(keys)).bfloat16()
    output, lse, expected, expected_lse = attended(
        query, codes(kv_heads, keys, features, 1), codes(kv_heads, keys, width, 2), features**-0.5
    )
    error = (output - expected).abs().max() / expected.abs().max()
    assert float(error) < (1e-4 if features % 64 == width % 64 == 0 or unit == "none" else 4e-3)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("sharpness", [1.0, 20.0, 1e4])
def test_sharp_weights_and_large_queries_give_the_numbers_of_float64(unit, sharpness):
    query = torch.randn(1, 4, 1, 64, generator=torch.Generator().manual_seed(3)).bfloat16()
    query[..., 7] *= 100  # of one feature that is large
    output, lse, expected, expected_lse = attended(
        query * 2.0**-100, codes(1, 333, 64, 4), codes(1, 333, 64, 5), sharpness * 2.0**97
    )
    assert float((output - expected).abs().max() / expected.abs().max()) < max(1e-4, 1e-6 * sharpness)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=2e-5, atol=1e-4)


def test_a_scale_or_query_that_is_nan_reaches_its_own_heads_only(unit):
    key, value = codes(2, 130, 64, 6), codes(2, 130, 64, 7)
    value[1][0, 1, 100] = math.nan
    query = torch.randn(1, 8, 1, 64).bfloat16()
    query[0, 2, 0, 5] = math.nan
    output = attended(query, key, value, 0.125)[0]
    assert output.isnan().all(-1).flatten().tolist() == [False, False, True, False, True, True, True, True]
    assert output.isnan().any(-1).equal(output.isnan().all(-1))


def test_weights_that_vanish_and_queries_of_zeros_are_finite(unit):
    key, value = codes(1, 200, 64, 8), codes(1, 200, 64, 9)
    key[1][0, 0, 0] = 10.0  # one key gets all weight, so that other tiles have none
    output, _, expected, _ = attended(torch.ones(1, 4, 1, 64).bfloat16() * key[0][:, :, :1], key, value, 1.0)
    assert float((output - expected).abs().max() / expected.abs().max()) < 1e-4
    output, _, expected, _ = attended(torch.zeros(1, 4, 1, 64).bfloat16(), key, value, 1.0)
    assert float((output - expected).abs().max() / expected.abs().max()) < 1e-4


def test_woven_codes_that_no_unit_can_read_are_refused():
    query, (key, scale) = torch.ones(1, 1, 1, 64), codes(1, 32, 64, 1)
    outputs = torch.empty(1, 1, 1, 64), torch.empty(1, 1, 2, 1)

    def call(query, key, scale):
        cpu.dot_codes(query, (key, scale), (key, scale), 1.0, outputs, woven=True)

    with pytest.raises(ValueError, match="Expected a unit that multiplies woven codes, by bfloat16 queries"):
        call(query, key, scale)
    with pytest.raises(ValueError, match="Expected woven codes of whole groups of 16 keys without gaps, got 32 for 16 scales"):
        call(query.bfloat16(), key, scale[:, :, :16])
    with pytest.raises(ValueError, match="Expected 64 features of woven codes or a multiple"):
        call(query[..., :48].bfloat16(), key[..., :48], scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [[40], [1, 4, 35], [13, 0, 27]])
def test_attention_to_parts_of_the_keys_joins_to_attention_to_all(dtype, sizes):
    generator = torch.Generator().manual_seed(len(sizes))
    query, key, value = (torch.randn(2, 3, n, 8, generator=generator, dtype=torch.float64) for n in (2, 40, 40))
    query[0, 0] *= 100  # bases that differ by more powers of two than float32 has
    scores, parts = query @ key.mT, []
    for few, some in zip(scores.split(sizes, -1), value.split(sizes, -2), strict=True):
        base = few.amax(-1, keepdim=True) if few.shape[-1] else few.new_full((2, 3, 2, 1), -math.inf)
        weights = torch.exp2(few - base)
        total = weights.sum(-1)
        output = weights @ some / total.where(total > 0, 1)[..., None]
        parts.append((output, torch.stack([base[..., 0], total], -2)))
    joined = cpu.joined(*(torch.stack(tensors).to(dtype) for tensors in zip(*parts, strict=True)))
    expected = torch.softmax(scores * math.log(2), -1) @ value
    assert joined.dtype == dtype
    torch.testing.assert_close(joined.double(), expected, rtol=1e-5, atol=1e-4 if dtype == torch.float32 else 1e-12)


def test_parts_without_weights_count_nothing_and_one_that_is_nan_reaches_its_row():
    outputs, bases, totals = torch.full((2, 1, 4, 3), 5.0), torch.zeros(2, 1, 4), torch.ones(2, 1, 4)
    outputs[1, 0, 1], bases[1, 0, 1], totals[1, 0, 1] = 0, -math.inf, 0
    outputs[:, 0, 2], bases[:, 0, 2], totals[:, 0, 2] = 0, -math.inf, 0
    outputs[1, 0, 3], totals[1, 0, 3] = math.nan, math.nan
    joined = cpu.joined(outputs, torch.stack([bases, totals], -2))
    torch.testing.assert_close(joined[0, :, 0], torch.tensor([5.0, 5.0, 0.0, math.nan]), equal_nan=True)


def test_parts_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"Expected sums of shape \(2, 1, 2, 4\), got \(2, 1, 4, 2\)"):
        cpu.joined(torch.ones(2, 1, 4, 3), torch.ones(2, 1, 4, 2))
    with pytest.raises(ValueError, match="Expected outputs of dtype float32 or float64"):
        cpu.joined(torch.ones(2, 1, 4, 3).half(), torch.ones(2, 1, 2, 4).half())
