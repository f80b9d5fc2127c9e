"""The native core itself, on NumPy arrays: its gradients are the oracle's, and it reads and writes nothing beyond its buffers."""

import numpy as np
import pytest

import oracle
from overt import native

ACTIVATIONS = native.ACTIVATIONS
GRADIENT = {"float64": 1e-10, "float32": 1e-4}  # DESIGN section 5


def drawn(*shape, dtype="float64"):
    return np.random.standard_normal(shape).astype(dtype)


def poisoned(*shape, dtype="float64"):
    return np.full(shape, np.nan, dtype)


class Case:
    """Inputs of one head, the arguments that they are passed as, and the buffers that the module writes."""

    def __init__(self, Q, K, D, E, dtype="float64", activation="tanh"):
        self.query, self.key, self.value = (drawn(*shape, dtype=dtype) for shape in [(Q, D), (K, D), (K, E)])
        self.weight, self.bias, self.upstream = drawn(D, dtype=dtype), drawn(Q, K, dtype=dtype), drawn(Q, E, dtype=dtype)
        self.allowed = np.random.rand(Q, K) < 0.7
        self.activation = activation
        self.output, self.lse, self.delta = poisoned(Q, E, dtype=dtype), poisoned(Q, dtype=dtype), poisoned(Q, dtype=dtype)
        self.gradients = {
            name: poisoned(*getattr(self, name).shape, dtype=dtype) for name in ("query", "key", "value", "weight")
        }
        self.gradients["bias"] = np.zeros((Q, K), dtype)  # this one is added to

    def inputs(self):
        mask = [1], [self.allowed]
        softmax = self.bias, False, None, None, 0, 0.0, None
        return self.query, self.key, self.value, self.weight, ACTIVATIONS.index(self.activation), *mask, *softmax, 0.0, 0, 2

    def forward(self):
        native.module().additive(*self.inputs(), self.output, self.lse)

    def backward(self):
        arguments = self.output, self.lse, self.upstream
        wanted = [self.gradients[name] for name in ("query", "key", "value", "weight")]
        native.module().additive_gradients(*self.inputs(), *arguments, *wanted, self.delta, self.gradients["bias"])

    def answer(self):
        options = {"allowed": self.allowed, "bias": self.bias, "upstream": self.upstream, "normalizer": "softmax"}
        params = {"weight": self.weight, "activation": self.activation}
        return oracle.attention(self.query, self.key, self.value, score="additive", params=params, **options)


def off(result, wanted):
    """The largest difference, relative to the largest number wanted, or to 1."""
    return np.abs(result - wanted).max(initial=0) / max(1, np.abs(wanted).max(initial=0))


@pytest.mark.parametrize("dtype", GRADIENT)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_gradient_is_the_oracles(level, activation, dtype):
    case = Case(37, 70, 20, 9, dtype, activation)
    case.forward()
    case.backward()
    for name, wanted in case.answer().gradients.items():
        if name in case.gradients:
            assert off(case.gradients[name], wanted) <= GRADIENT[dtype], name


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 65, 5, 3), (33, 1, 16, 8), (31, 63, 17, 1), (64, 128, 3, 40)], ids=str)
def test_gradients_of_any_shape(level, shape):
    case = Case(*shape)
    case.forward()
    case.backward()
    wanted = case.answer().gradients
    assert max(off(result, wanted[name]) for name, result in case.gradients.items()) <= GRADIENT["float64"]


def test_what_a_sinks_gradient_is_made_of(level):
    case = Case(37, 70, 20, 9)
    case.forward()
    case.backward()
    weights = case.answer().weights
    assert off(case.delta, (weights * (case.upstream @ case.value.T)).sum(1)) <= GRADIENT["float64"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_scores_alone_and_their_gradients(level, activation):
    case = Case(37, 70, 20, 9, activation=activation)
    shared = case.query, case.key, case.weight, ACTIVATIONS.index(activation), 2
    scores = poisoned(37, 70)
    native.module().additive_scores(*shared, scores)
    wanted, back = zip(
        *(oracle.SCORES["additive"](q, case.key, {"weight": case.weight, "activation": activation}) for q in case.query),
        strict=True,
    )
    assert off(scores, np.stack(wanted)) <= 1e-12
    upstream, gradients = drawn(37, 70), [case.gradients[name] for name in ("query", "key", "weight")]
    native.module().additive_scores_gradients(*shared, upstream, *gradients)
    rows, keys, weights = zip(*(one(up) for one, up in zip(back, upstream, strict=True)), strict=True)
    assert off(case.gradients["query"], np.stack(rows)) <= GRADIENT["float64"]
    assert off(case.gradients["key"], sum(keys)) <= GRADIENT["float64"]
    assert off(case.gradients["weight"], sum(one["weight"] for one in weights)) <= GRADIENT["float64"]


WRONG = {
    "query": (lambda x: x[:, :-1], r"\(..., 70, 19\)"),
    "key": (lambda x: x[:, :-1], r"key of shape \(..., 70, 20\)"),
    "value": (lambda x: x[:-1], r"value of shape \(..., 70, 9\)"),
    "weight": (lambda x: x[:-1], "weight of shape"),
    "bias": (lambda x: x[:-1], "bias of shape"),
    "allowed": (lambda x: x[:, :-1], "the mask of shape"),
    "output": (lambda x: x[:, :-1].copy(), "output of shape"),
    "lse": (lambda x: x[:-1].copy(), "log_sum_exp of shape"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_buffer_of_another_extent_is_refused(name):
    cut, message = WRONG[name]
    case = Case(37, 70, 20, 9)
    setattr(case, name, cut(getattr(case, name)))
    with pytest.raises(ValueError, match=message):
        case.forward()


@pytest.mark.parametrize("name", ["query", "key", "value", "weight", "bias"])
def test_a_gradients_buffer_of_another_extent_is_refused(name):
    case = Case(37, 70, 20, 9)
    case.forward()
    case.gradients[name] = case.gradients[name][:-1].copy()
    with pytest.raises(ValueError, match=name):
        case.backward()


@pytest.mark.parametrize(
    ("name", "message"), [("output", "output"), ("lse", "log_sum_exp"), ("value", "value"), ("weight", "weight")]
)
def test_a_buffer_of_another_dtype_is_refused(name, message):
    case = Case(37, 70, 20, 9)
    setattr(case, name, getattr(case, name).astype("float32"))
    with pytest.raises(ValueError, match=message):
        case.forward()


@pytest.mark.parametrize(
    ("program", "arrays"),
    [([1], 0), ([1, 1], 2), ([1], 2), ([3], 0), ([1, 3], 1), ([9], 1), ([1] * 9 + [3] * 8, 9)],
    ids=["no array", "two results", "an array left", "nothing to combine", "one to combine", "an unknown step", "too deep"],
)
def test_a_masks_program_that_makes_no_sense_is_refused(program, arrays):
    case = Case(5, 6, 3, 2)
    inputs = list(case.inputs())
    inputs[5:7] = program, [case.allowed] * arrays
    with pytest.raises(ValueError, match="mask"):
        native.module().additive(*inputs, case.output, case.lse)


def test_a_buffer_that_may_not_be_written_is_refused():
    case = Case(5, 6, 3, 2)
    case.output.setflags(write=False)
    with pytest.raises(TypeError):
        case.forward()
