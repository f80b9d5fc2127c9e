"""Arrays of NumPy and of any library that speaks DLPack go in, the same library's come out, equal to what tensors give."""

import numpy as np
import pytest
import torch

import overt
from overt.errors import KindError


class Foreign:
    """An array of a library of its own, which speaks DLPack and no more."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return Foreign

    @staticmethod
    def from_dlpack(array):
        return Foreign(np.from_dlpack(array))


class OnGPU(Foreign):
    def __dlpack_device__(self):
        return 2, 0


def drawn(*shape, dtype="float32"):
    return np.random.standard_normal(shape).astype(dtype)


@pytest.fixture
def inputs():
    return drawn(2, 3, 5, 4), drawn(2, 3, 7, 4), drawn(2, 3, 7, 6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"mask": "causal"}, {"score": "cosine", "normalizer": "sparsemax"}], ids=str)
def test_numpy_in_numpy_out(inputs, options, dtype):
    arrays = [array.astype(dtype) for array in inputs]
    output = overt.attend(*arrays, **options)
    assert type(output) is np.ndarray
    assert output.dtype == dtype
    assert np.array_equal(output, overt.attend(*map(torch.tensor, arrays), **options).numpy())


def test_a_mask_and_a_bias_may_be_arrays(inputs):
    allowed, bias = np.random.rand(5, 7) < 0.7, drawn(5, 7)
    output = overt.attend(*inputs, mask=allowed, bias=bias)
    expected = overt.attend(*map(torch.tensor, inputs), mask=torch.tensor(allowed), bias=torch.tensor(bias))
    assert np.array_equal(output, expected.numpy())
    assert np.array_equal(output, overt.attend(*inputs, mask=torch.tensor(allowed), bias=torch.tensor(bias)))


def test_another_library_gets_its_own_arrays(inputs):
    arrays = map(Foreign, inputs)
    output = overt.attend(*arrays, mask=Foreign(np.tri(5, 7, dtype=bool)), bias=Foreign(drawn(5, 7) * 0))
    assert type(output) is Foreign
    assert np.array_equal(output.array, overt.attend(*inputs, mask=np.tri(5, 7, dtype=bool)))


def test_every_step_and_statistic_is_an_array(inputs):
    tensors = [torch.tensor(array) for array in inputs]
    steps, summary = overt.steps(*inputs, mask="causal"), overt.summarize(*inputs[:2], value=inputs[2], top=2, map_size=3)
    for name, array in steps._asdict().items():
        assert np.array_equal(array, getattr(overt.steps(*tensors, mask="causal"), name).numpy())
    assert str(steps) == str(overt.steps(*tensors, mask="causal"))
    expected = overt.summarize(*tensors[:2], value=tensors[2], top=2, map_size=3)
    for name in ("lse", "entropy", "received", "top_weights", "top_keys", "map_mean", "map_max", "row_edges", "output"):
        assert type(getattr(summary, name)) is np.ndarray
        assert np.array_equal(getattr(summary, name), getattr(expected, name).numpy())
    assert overt.summarize(*inputs[:2]).output is None
    assert overt.plan(*inputs).path == overt.plan(*tensors).path


def test_arrays_that_may_not_be_written_are_read_without_a_warning(inputs):
    expected = overt.attend(*inputs)
    for array in inputs:
        array.setflags(write=False)
    assert np.array_equal(overt.attend(*inputs), expected)


@pytest.mark.parametrize(
    "other",
    [np.asfortranarray, lambda x: np.repeat(x, 2, axis=-1)[..., ::2], lambda x: x[..., ::-1].copy()[..., ::-1]],
    ids=["transposed", "every other", "backwards"],
)
def test_any_layout_in_memory_is_read_and_left_as_it_is(inputs, other):
    arrays = [other(array) for array in inputs]
    assert np.array_equal(overt.attend(*arrays), overt.attend(*inputs))
    assert all(np.array_equal(array, before) for array, before in zip(arrays, inputs, strict=True))


def test_nothing_is_differentiated(inputs):
    weight = torch.randn(4, requires_grad=True)
    assert isinstance(overt.attend(*inputs, score=overt.Additive(weight)), np.ndarray)


def test_tensors_and_arrays_do_not_mix(inputs):
    query, key, value = inputs
    rule = r"query, key and value to be all tensors, or all arrays.*Fix: convert"
    for mixed in [(query, torch.tensor(key), value), (torch.tensor(query), key, value), (Foreign(query), key, value)]:
        with pytest.raises(KindError, match=rule):
            overt.attend(*mixed)
    tensors = [torch.tensor(array) for array in inputs]
    with pytest.raises(KindError, match=r"bool.*got a ndarray of bool.*torch.as_tensor\(mask\)"):
        overt.attend(*tensors, mask=np.ones((5, 7), dtype=bool))
    with pytest.raises(KindError, match=r"got a ndarray of float64.*torch.as_tensor\(bias\)"):
        overt.attend(*tensors, bias=np.ones((5, 7)))


def test_what_torch_cannot_read_is_refused_in_a_sentence(inputs):
    query, key, value = inputs
    with pytest.raises(KindError, match="query to be an array of numbers, got an array of dtype object"):
        overt.attend(query.astype(object), key, value)
    with pytest.raises(KindError, match="value to be a plain array, got a masked array"):
        overt.attend(query, key, np.ma.array(value))
    with pytest.raises(
        KindError, match=r"query to be in the CPU's memory, got an array on DLPack's device type 2.*torch.from_dlpack"
    ):
        overt.attend(*map(OnGPU, inputs))
    with pytest.raises(KindError, match="floating-point"):
        overt.attend(*(array.astype(int) for array in inputs))
