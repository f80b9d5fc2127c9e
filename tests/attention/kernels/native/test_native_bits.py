"""What an operator gives has the same bits at every run: nothing in it is memory that nobody wrote, and sums have one order."""

import pytest
import torch
from torch import library

import overt
from everyday import everyday
from overt import native
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat.call import flattened

pytestmark = pytest.mark.skipif(not native.available(), reason="needs the native core")

ATTENTION = {
    "dot": {},
    "dot, causal": {"mask": overt.Causal()},
    "dot, sink": {"normalizer": overt.Softmax(sink=torch.zeros(()))},
    "dot, bias": {"bias": torch.linspace(-1, 1, 9)},
    "additive": {"score": overt.Additive(torch.linspace(-1, 1, 5))},
    "additive, causal": {"score": overt.Additive(torch.linspace(-1, 1, 5)), "mask": overt.Causal()},
    "additive, bias": {"score": overt.Additive(torch.linspace(-1, 1, 5)), "bias": torch.linspace(-1, 1, 9)},
}


@pytest.fixture(params=ATTENTION)
def operator(request):
    """An operator's name, and its inputs as `attend` hands them over."""
    x = torch.randn(1, 2, 9, 5)
    attention, arguments = flattened(Call.checked(x, x, x, **ATTENTION[request.param]))
    return attention.name, arguments


def poisoned(value):
    """Let memory that is asked for next hold this number, as far as the allocator hands out what was freed last."""
    freed = [torch.full((count,), value) for count in (1, 5, 9, 10, 18, 45, 90, 180) for _ in range(40)]
    del freed


def gradients_of(name, arguments, with_bias):
    """The operator's gradients and their inputs."""
    result = getattr(torch.ops.overt, name)(*arguments)
    inputs = (*arguments, *result, torch.ones_like(result[0]), with_bias)
    return getattr(torch.ops.overt, f"{name}_gradients"), inputs


@pytest.mark.parametrize("with_bias", [False, True])
def test_what_was_not_asked_for_is_the_scalar_0(operator, with_bias):
    gradients, inputs = gradients_of(*operator, with_bias)
    for value in (1.0, -7.5e16, torch.nan):
        poisoned(value)
        assert {float(scalar) for scalar in gradients(*inputs) if scalar.ndim == 0} <= {0.0}


@pytest.mark.parametrize("with_bias", [False, True])
def test_memory_that_was_used_before_leaves_nothing_in_what_comes_out(operator, with_bias):
    gradients, inputs = gradients_of(*operator, with_bias)
    name, arguments = operator
    for run in (lambda: getattr(torch.ops.overt, name)(*arguments), lambda: gradients(*inputs)):
        outputs = []
        for value in (1.0, torch.nan):
            poisoned(value)
            outputs.append(run())
        assert all(torch.equal(one, other) for one, other in zip(*outputs, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("operator", everyday(ATTENTION, "dot, bias", "additive, causal"), indirect=True)
def test_torchs_own_check_of_operators_passes_every_time(operator):
    name, arguments = operator
    gradients, inputs = gradients_of(name, arguments, False)
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    for value in range(6):
        poisoned(float(value))
        library.opcheck(getattr(torch.ops.overt, name).default, arguments, test_utils=checks)
        poisoned(-float(value))
        library.opcheck(gradients.default, inputs, test_utils=checks)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.each_pair
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("queries", [1, 64, 200])
@pytest.mark.parametrize("options", [{}, {"mask": overt.Causal()}, {"score": overt.Additive(torch.linspace(-1, 1, 16))}])
def test_on_as_many_threads_output_and_gradients_have_the_same_bits_at_every_run(threads, count, queries, options):
    threads(count)
    query = torch.randn(1, 2, queries, 16, requires_grad=True)
    key, value = (torch.randn(1, 2, 600, 16, requires_grad=True) for _ in range(2))
    with overt.use_path("native"):
        runs = []
        for _ in range(3):
            output = overt.attend(query, key, value, **options)
            runs.append((output, *torch.autograd.grad(output.square().sum(), (query, key, value))))
    assert all(torch.equal(one, other) for run in runs[1:] for one, other in zip(runs[0], run, strict=True))


@pytest.mark.each_pair
@pytest.mark.parametrize("count", [2, 8, 24])
@pytest.mark.parametrize("shape", [(1, 12, 128, 128), (1, 1, 1000, 130), (1, 3, 65, 4096), (2, 5, 300, 77), (1, 2, 9, 5000)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_any_number_of_threads_gives_what_one_gives(threads, count, shape, with_bias):
    *batch, queries, keys = shape
    leaves = [torch.randn(*batch, length, 8, dtype=torch.float64, requires_grad=True) for length in (queries, keys, keys)]
    leaves += [torch.randn(queries, keys, dtype=torch.float64, requires_grad=True)] if with_bias else []
    upstream = torch.randn(*batch, queries, 8, dtype=torch.float64)
    runs = []
    for number in (1, count):
        threads(number)
        with overt.use_path("native"):
            output = overt.attend(*leaves[:3], mask=overt.Causal(), bias=leaves[3] if with_bias else None)
        runs.append((output, *torch.autograd.grad(output, leaves, upstream)))
    for one, many in zip(*runs, strict=True):
        torch.testing.assert_close(many, one, rtol=1e-11, atol=1e-11)
