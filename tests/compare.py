"""One comparison with the oracle, used by every path: output, weights and each gradient, within the tolerance of the dtype."""

import pickle

import numpy as np
import torch

import oracle
import overt
from overt.attention.kernels.flat.operator import INTERPRETED

# The path whose tests run: with TRITON_INTERPRET=1 the kernels for GPUs stand in for the native core.
KERNELS = "triton" if INTERPRETED else "native"

# What the oracle answered to the last cases: the kernels of each SIMD level are compared with the same answers.
LAST, KEPT = {}, 16

# DESIGN: relative to the oracle.
OUTPUT = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
GRADIENT = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}

MAKE_SCORE = {
    "dot": lambda p: overt.Dot(p.get("scale"), p.get("softcap")),
    "bilinear": lambda p: overt.Bilinear(p["weight"]),
    "additive": lambda p: overt.Additive(p["weight"], p["activation"]),
    "cosine": lambda p: overt.Cosine(p["scale"]),
    "gaussian": lambda p: overt.Gaussian(p["bandwidth"]),
}
MAKE_NORMALIZER = {
    "softmax": lambda p: overt.Softmax(p.get("temperature", 1.0), p.get("sink")),
    "sparsemax": lambda p: overt.Sparsemax(),
    "entmax": lambda p: overt.Entmax(float(p.get("alpha", 1.5))),
    "sigmoid": lambda p: overt.normalizers.Sigmoid(),
    "sum": lambda p: overt.normalizers.Sum(),
}


def inputs(*shapes, seed=0):
    """Arrays of these shapes, of normal numbers."""
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in shapes]


def close(result, wanted, tolerance, what):
    """Refuse a difference above the tolerance, relative to the largest number that is wanted; NaN and inf must match in place."""
    result, wanted = np.asarray(result, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    assert result.shape == wanted.shape, f"{what}: shape {result.shape} instead of {wanted.shape}"
    assert np.array_equal(np.isnan(result), np.isnan(wanted)), f"{what}: NaN in other places"
    finite = np.isfinite(wanted)
    assert np.array_equal(result[~finite & ~np.isnan(wanted)], wanted[~finite & ~np.isnan(wanted)]), (
        f"{what}: infinities differ"
    )
    size = max(1.0, float(np.abs(wanted[finite]).max(initial=0)))
    worst = float(np.abs(result - wanted)[finite].max(initial=0)) / size
    assert worst <= tolerance, f"{what}: off by {worst:.2e}, allowed {tolerance:.0e}"


def parameters(score, normalizer, features, random):
    """Tensors for a score and a normaliser, float64, by the names that the oracle uses."""
    weight = {"bilinear": random.normal(size=(features, features)) / features, "additive": random.normal(size=features)}
    result = {} if score not in weight else {"weight": torch.tensor(weight[score])}
    if score == "additive":
        result["activation"] = "tanh"
    result |= {"cosine": {"scale": 2.0}, "gaussian": {"bandwidth": 1.7}}.get(score, {})
    if normalizer == "softmax":
        result |= {"temperature": torch.tensor(1.3), "sink": torch.tensor(0.4)}
    return result


def check(
    inputs, *, score="dot", normalizer="softmax", params=None, allowed=None, mask=None, bias=None, dtype=torch.float64, seed=0
):
    """Compare attend, its gradients and steps with the oracle, head by head. `inputs` are (…, length, features) arrays."""
    params = params or {}
    rounded = [torch.as_tensor(x).to(dtype) for x in inputs]
    leaves = {name: x.clone().requires_grad_() for name, x in zip(("query", "key", "value"), rounded, strict=True)}
    tracked = {name: x.to(dtype).clone().requires_grad_() if isinstance(x, torch.Tensor) else x for name, x in params.items()}
    leaves |= {name: x for name, x in tracked.items() if isinstance(x, torch.Tensor)}
    if bias is not None:
        leaves["bias"] = torch.as_tensor(bias).to(dtype).requires_grad_()
    options = {
        "score": MAKE_SCORE[score](tracked),
        "normalizer": MAKE_NORMALIZER[normalizer](tracked),
        "mask": torch.as_tensor(allowed) if mask is None and allowed is not None else mask,
        "bias": leaves.get("bias"),
    }
    output = overt.attend(leaves["query"], leaves["key"], leaves["value"], **options)
    upstream = torch.as_tensor(np.random.default_rng(seed).normal(size=output.shape)).to(dtype)
    result = torch.autograd.grad(output, list(leaves.values()), upstream)
    answers = _oracle(rounded, tracked, leaves, output.shape[:-2], score, normalizer, allowed, upstream)
    close(output.detach().double(), answers["output"], OUTPUT[dtype], "output")
    for name, gradient in zip(leaves, result, strict=True):
        close(gradient.double(), answers[name].reshape(gradient.shape), GRADIENT[dtype], f"gradient of {name}")
    with torch.no_grad():
        steps = overt.steps(leaves["query"], leaves["key"], leaves["value"], **options)
    close(steps.weights.double(), answers["weights"], OUTPUT[dtype], "weights")
    close(steps.output.double(), answers["output"], OUTPUT[dtype], "output of steps")


def _oracle(inputs, tracked, leaves, batch, score, normalizer, allowed, upstream):
    query, key, value = (x.double().numpy() for x in inputs)
    bias = None if "bias" not in leaves else leaves["bias"].detach().double().numpy()
    params = {name: x.detach().double().numpy() if isinstance(x, torch.Tensor) else x for name, x in tracked.items()}
    allowed, upstream = None if allowed is None else np.asarray(allowed), upstream.double().numpy()
    shapes = {name: x.shape for name, x in leaves.items()}
    case = pickle.dumps((query, key, value, params, bias, allowed, upstream, batch, score, normalizer, shapes))
    if case not in LAST:
        while len(LAST) >= KEPT:
            del LAST[next(iter(LAST))]
        LAST[case] = _answers(query, key, value, params, bias, allowed, upstream, batch, score, normalizer, shapes)
    return LAST[case]


def _answers(query, key, value, params, bias, allowed, upstream, batch, score, normalizer, shapes):
    Q, K = query.shape[-2], key.shape[-2]
    total = {name: np.zeros(shape) for name, shape in shapes.items()}
    total |= {"output": np.zeros((*batch, Q, value.shape[-1])), "weights": np.zeros((*batch, Q, K))}
    for index in np.ndindex(*batch):
        spots = {name: _spot(array, index, batch) for name, array in (("query", query), ("key", key), ("value", value))}
        full = None if allowed is None else np.broadcast_to(allowed, (*batch, Q, K))[index]
        added = None if bias is None else np.broadcast_to(bias, (*batch, Q, K))[index]
        answer = oracle.attention(
            *(array[spots[name]] for name, array in (("query", query), ("key", key), ("value", value))),
            score=score, params=params, normalizer=normalizer, allowed=full, bias=added, upstream=upstream[index],
        )  # fmt: skip
        total["output"][index], total["weights"][index] = answer.output, answer.weights
        for name in shapes:
            if name in spots:
                total[name][spots[name]] += answer.gradients[name]
            elif name == "bias":
                total["bias"] += _summed(answer.gradients["bias"], index, batch, bias.shape)
            else:
                total[name] += answer.gradients[name]
    return total


def _spot(array, index, batch):
    """Where a head's rows stand in an input that may be shared among batch entries or grouped among heads."""
    lead = array.shape[:-2]
    index = index[len(index) - len(lead) :]
    sizes = batch[len(batch) - len(lead) :]
    return tuple(0 if extent == 1 else i // (size // extent) for i, extent, size in zip(index, lead, sizes, strict=True))


def _summed(gradient, index, batch, shape):
    full = np.zeros((*batch, *gradient.shape))
    full[index] = gradient
    while full.ndim > len(shape):
        full = full.sum(0)
    for axis, size in enumerate(shape):
        if size == 1 and full.shape[axis] != 1:
            full = full.sum(axis, keepdims=True)
    return full
