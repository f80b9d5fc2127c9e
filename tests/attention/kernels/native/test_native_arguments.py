"""The native core takes torch's tensors and NumPy's arrays as they are, and refuses what holds no numbers that it could read."""

import numpy as np
import pytest
import torch

import overt
from overt import native


def dot(query, output):
    """Plain dot-product attention of a tensor or array to itself, by the compiled function."""
    native.module().dot(query, query, query, 0.5, 0.0, [], [], None, False, None, None, 0, 0.0, None, 0.0, 0, 1, output, None)
    return output


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_tensor_and_its_array_give_the_same_bits(dtype):
    query = torch.randn(2, 3, 17, 5).to(dtype)
    number = torch.float64 if dtype == torch.float64 else torch.float32
    of_tensor, of_array = (torch.full((2, 3, 17, 5), torch.nan, dtype=number) for _ in range(2))
    assert torch.equal(dot(query, of_tensor), torch.from_numpy(dot(query.numpy(), of_array.numpy())))


def test_strides_and_offsets_of_a_tensor_are_followed():
    query = torch.randn(17, 2, 4, 9)[3:, :, 1:3, 2:7].permute(1, 2, 0, 3)
    outputs = [torch.full(query.shape, torch.nan) for _ in range(2)]
    assert torch.equal(dot(query, outputs[0]), dot(query.contiguous(), outputs[1]))


def test_a_parameter_is_read_as_a_tensor():
    query = torch.randn(1, 2, 7, 4)
    outputs = [torch.full(query.shape, torch.nan) for _ in range(2)]
    assert torch.equal(dot(torch.nn.Parameter(query), outputs[0]), dot(query, outputs[1]))


@pytest.mark.parametrize(
    "what",
    [
        torch.randn(1, 2, 7, 4, device="meta"),
        torch._efficientzerotensor((1, 2, 7, 4)),
        torch.randn(1, 2, 7, 4).to_sparse(),
        "words",
        None,
        [[1.0]],
    ],
    ids=["meta", "zeros without memory", "sparse", "a string", "nothing", "a list"],
)
def test_what_holds_no_memory_of_the_cpu_is_refused(what):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        dot(what, torch.zeros(1, 2, 7, 4))


def test_an_array_that_is_read_only_is_no_output():
    output = np.zeros((1, 2, 7, 4), np.float32)
    output.flags.writeable = False
    with pytest.raises(TypeError, match="incompatible function arguments"):
        dot(np.ones((1, 2, 7, 4), np.float32), output)
    assert not output.any()


def test_a_negation_that_torch_has_only_noted_is_felt():
    query = torch.randn(1, 2, 7, 4, dtype=torch.complex64).conj().imag
    assert query.is_neg()
    torch.testing.assert_close(overt.attend(query, query, query), overt.attend(*[query.resolve_neg()] * 3))


class AttributesOnly:
    """A tensor as torch before 2.10 shows it: its type lists no C functions of DLPack."""

    def __init__(self, tensor):
        self.dtype, self.is_cpu, self.shape = tensor.dtype, tensor.is_cpu, tensor.shape
        self.stride, self.data_ptr = tensor.stride, tensor.data_ptr


def test_a_summary_reads_tensors_by_their_attributes_too(monkeypatch):
    x = torch.randn(2, 3, 6, 8)
    expected = overt.summarize(x, x, value=x, normalizer="sparsemax")
    compiled = native.module()

    def plain(argument):
        if isinstance(argument, list):
            return [plain(part) for part in argument]
        return AttributesOnly(argument) if isinstance(argument, torch.Tensor) else argument

    class Older:
        def summary(self, *arguments):
            compiled.summary(*map(plain, arguments))

    monkeypatch.setattr(native, "module", Older)
    result = overt.summarize(x, x, value=x, normalizer="sparsemax")
    assert torch.equal(result.top_keys, expected.top_keys)
    assert torch.equal(result.top_weights, expected.top_weights)
