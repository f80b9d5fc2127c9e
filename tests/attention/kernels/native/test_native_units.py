"""The units that multiply pairs of bfloat16 give the numbers of float64, forward and backward; every machine has one of them emulated."""

import os
import subprocess
import sys

import pytest
import torch

import overt
from compare import GRADIENT, OUTPUT, close
from overt import native

UNITS = native.module().units()


@pytest.fixture(params=UNITS)
def unit(request):
    """A unit of the machine, and the best again afterwards."""
    native.module().use_unit(request.param)
    yield request.param
    native.module().use_unit("best")


def compared(query, key, value, **options):
    """Output and gradients of bfloat16 inputs beside those of the blocks in float64."""
    leaves = [tensor.bfloat16().requires_grad_() for tensor in (query, key, value)]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    with overt.use_path("native"):
        output = overt.attend(*leaves, **options)
    with overt.use_path("blocked"):
        expected = overt.attend(*exact, **options)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    close(output.detach().double(), expected.detach(), OUTPUT[torch.bfloat16], "output")
    results, wanted = torch.autograd.grad(output, leaves, upstream), torch.autograd.grad(expected, exact, upstream.double())
    for name, result, gradient in zip(("query", "key", "value"), results, wanted, strict=True):
        close(result.double(), gradient, GRADIENT[torch.bfloat16], f"gradient of {name}")


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("queries", [9, 16, 33, 65, 257])
@pytest.mark.parametrize("keys", [1, 15, 31, 64, 65, 130])
@pytest.mark.each_value
def test_lengths_round_the_edges_of_tiles_give_the_numbers_of_float64(unit, queries, keys):
    compared(*tensors((2, queries, 32), (2, keys, 32), (2, keys, 48)))


@pytest.mark.parametrize("mask", [overt.Causal(), overt.Window(37, 2), overt.Lengths(torch.tensor([30, 130])), None])
@pytest.mark.parametrize(("features", "width"), [(7, 3), (64, 64), (130, 33)])
@pytest.mark.each_value
def test_masks_and_widths_give_the_numbers_of_float64(unit, mask, features, width):
    compared(*tensors((2, 3, 129, features), (2, 1, 130, features), (2, 1, 130, width)), mask=mask)


@pytest.mark.parametrize(("queries", "stride"), [(17, 67), (64, 65), (130, 99), (65, 66)])
@pytest.mark.each_value
def test_rows_of_any_stride_give_the_numbers_of_float64_whatever_lies_between_them(unit, queries, stride):
    rows = [tensor.bfloat16() for tensor in tensors((2, 2, queries, stride), (2, 2, 70, stride), (2, 2, 70, stride))]
    for tensor in rows:
        tensor[..., 64:] = torch.nan
    compared(*(tensor[..., :64] for tensor in rows), mask=overt.Causal())


def test_caps_sinks_and_biases_give_the_numbers_of_float64(unit):
    query, key, value, bias = tensors((2, 40, 32), (2, 70, 32), (2, 70, 32), (40, 70))
    compared(query, key, value, score=overt.Dot(softcap=2.0), normalizer=overt.Softmax(sink=torch.tensor([0.5, -1.0])))
    compared(query, key, value, score=overt.Dot(scale=-0.3), bias=bias, normalizer=overt.Softmax(temperature=0.7))


def test_huge_scores_and_what_lies_behind_a_mask_stay_where_they_are(unit):
    query, key, value = (tensor.bfloat16() for tensor in tensors((40, 32), (90, 32), (90, 32)))
    with overt.use_path("native"):
        expected = overt.attend(query * 1e4, key[:50], value[:50])
        key[50:], value[50:] = torch.nan, torch.inf
        output = overt.attend(query * 1e4, key, value, mask=overt.Lengths(50))
    assert output.isfinite().all()
    assert torch.equal(output, expected)


def test_dropout_drops_the_same_weights_as_in_float32(unit):
    query, key, value = (tensor.bfloat16() for tensor in tensors((3, 65, 32), (3, 65, 32), (3, 65, 32)))
    with overt.use_path("native"):
        torch.manual_seed(3)
        output = overt.attend(query, key, value, dropout=0.4)
        torch.manual_seed(3)
        expected = overt.attend(query.float(), key.float(), value.float(), dropout=0.4)
    close(output.double(), expected.double(), OUTPUT[torch.bfloat16], "output")


def test_the_environment_names_a_unit_or_a_level_without_one():
    program = "from overt import native; print(native.level(), native.unit())"
    for setting, expected in [("amx-emulated", f"{native.module().levels()[0]} amx-emulated"), ("baseline", "baseline None")]:
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "OVERT_SIMD": setting}, capture_output=True, text=True
        )
        assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize("keys", [1, 15, 16, 17, 31, 33, 63, 65, 257, 1025])
@pytest.mark.parametrize(
    ("queries", "heads", "features", "width"), [(1, 1, 32, 64), (1, 4, 128, 96), (3, 6, 64, 32), (1, 16, 96, 64)]
)
@pytest.mark.each_value
def test_decoding_multiplies_pairs_as_float64_does(unit, keys, queries, heads, features, width):
    compared(*tensors((2, 2 * heads, queries, features), (2, 2, keys, features), (2, 2, keys, width)), mask=overt.Causal())


def test_decoding_reads_rows_of_any_stride_and_values_that_are_part_of_their_keys(unit):
    query, key = (tensor.bfloat16() for tensor in tensors((1, 16, 1, 192), (1, 1, 333, 2, 193)))
    key = key[:, :, :, 0, :192]
    with overt.use_path("native"):
        output = overt.attend(query, key, key[..., :128])
    expected = overt.attend(query.double(), key.double(), key[..., :128].double())
    close(output.double(), expected, OUTPUT[torch.bfloat16], "output")


@pytest.mark.parametrize("behind", [torch.nan, torch.inf])
def test_decoding_with_masks_caps_and_sinks_gives_the_numbers_of_float64(unit, behind):
    query, key, value = (tensor.bfloat16() for tensor in tensors((2, 8, 2, 64), (2, 2, 200, 64), (2, 2, 200, 64)))
    mask, cap = overt.Lengths(torch.tensor([77, 130])), overt.Dot(scale=-0.3, softcap=3.0)
    sink = torch.linspace(-1, 2, 8)
    expected = overt.attend(
        *(tensor.double() for tensor in (query, key, value)), mask=mask, score=cap, normalizer=overt.Softmax(sink=sink.double())
    )
    for row, length in enumerate((77, 130)):
        key[row, :, length:], value[row, :, length:] = behind, behind
    with overt.use_path("native"):
        output = overt.attend(query, key, value, mask=mask, score=cap, normalizer=overt.Softmax(sink=sink))
    close(output.double(), expected, OUTPUT[torch.bfloat16], "output")
