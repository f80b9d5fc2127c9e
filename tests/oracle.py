"""Attention and its gradients in float64 NumPy, row by row, written from the formulas. Imports nothing of overt.

Barred keys are deleted by indexing, so nothing that they hold can enter. One head: query (Q, D), key (K, D), value (K, E).
"""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Answer:
    """Everything that a path is compared with; `gradients` maps a tensor's name to its gradient."""

    output: np.ndarray
    weights: np.ndarray
    scores: np.ndarray
    gradients: dict[str, np.ndarray] = field(default_factory=dict)


def attention(query, key, value, *, score, params, normalizer, allowed=None, bias=None, upstream=None) -> Answer:
    """`score` and `normalizer` are names below; `params` holds their tensors and numbers by name."""
    query, key, value = (np.asarray(x, dtype=np.float64) for x in (query, key, value))
    params = {name: x if isinstance(x, str) else np.asarray(x, dtype=np.float64) for name, x in params.items()}
    Q, K, E = len(query), len(key), value.shape[1]
    answer = Answer(np.zeros((Q, E)), np.zeros((Q, K)), np.zeros((Q, K)))
    grads = {"query": np.zeros_like(query), "key": np.zeros_like(key), "value": np.zeros_like(value), "bias": np.zeros((Q, K))}
    grads |= {name: np.zeros_like(x) for name, x in params.items() if not isinstance(x, str)}
    for i in range(Q):
        keep = np.arange(K) if allowed is None else np.flatnonzero(allowed[i])
        if not len(keep):
            continue
        q, k, v = query[i], key[keep], value[keep]
        s, score_back = SCORES[score](q, k, params)
        total = s + (0 if bias is None else np.asarray(bias, dtype=np.float64)[i, keep])
        w, normalize_back = NORMALIZERS[normalizer](total, params)
        answer.scores[i, keep], answer.weights[i, keep], answer.output[i] = s, w, w @ v
        if upstream is None:
            continue
        up = np.asarray(upstream, dtype=np.float64)[i]
        grads["value"][keep] += np.outer(w, up)
        d_total, more = normalize_back(v @ up)
        grads["bias"][i, keep] = d_total
        d_q, d_k, params_back = score_back(d_total)
        grads["query"][i] += d_q
        grads["key"][keep] += d_k
        for name, gradient in (more | params_back).items():
            grads[name] += gradient
    answer.gradients = grads
    return answer


def _dot(q, k, p):
    scale = p.get("scale", 1 / np.sqrt(len(q)))
    raw = k @ q * scale
    cap = p.get("softcap")
    s = raw if cap is None else cap * np.tanh(raw / cap)

    def back(g):
        more = {}
        if cap is not None:
            more["softcap"] = np.sum(g * (np.tanh(raw / cap) - raw / cap / np.cosh(raw / cap) ** 2))
            g = g / np.cosh(raw / cap) ** 2
        if "scale" in p:
            more["scale"] = np.sum(g * (k @ q))
        return scale * g @ k, scale * np.outer(g, q), more

    return s, back


def _bilinear(q, k, p):
    W = p["weight"]
    return k @ (q @ W), lambda g: (W @ (g @ k), np.outer(g, q @ W), {"weight": np.outer(q, g @ k)})


def _additive(q, k, p):
    w, x = p["weight"], q + k
    functions = {
        "tanh": (np.tanh(x), 1 / np.cosh(np.clip(x, -300, 300)) ** 2),
        "sigmoid": (1 / (1 + np.exp(-x)), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))) ** 2),
        "relu": (np.maximum(x, 0), (x > 0) * 1.0),
        "leaky_relu": (np.where(x > 0, x, 0.2 * x), np.where(x > 0, 1.0, 0.2)),
    }
    a, slope = functions[p["activation"]]

    def back(g):
        d = g[:, None] * w * slope
        return d.sum(0), d, {"weight": g @ a}

    return a @ w, back


def _cosine(q, k, p):
    scale, nq, nk = p["scale"], np.linalg.norm(q), np.linalg.norm(k, axis=1)
    uq, uk = q / nq, k / nk[:, None]
    c = uk @ uq

    def back(g):
        d_q = scale * (g @ uk - (g @ c) * uq) / nq
        d_k = scale * g[:, None] * (uq - c[:, None] * uk) / nk[:, None]
        return d_q, d_k, {"scale": g @ c}

    return scale * c, back


def _gaussian(q, k, p):
    h, difference = p["bandwidth"], q - k
    squared = (difference**2).sum(1)

    def back(g):
        d = -g[:, None] * difference / h**2
        return d.sum(0), -d, {"bandwidth": g @ squared / h**3}

    return -squared / (2 * h**2), back


SCORES = {"dot": _dot, "bilinear": _bilinear, "additive": _additive, "cosine": _cosine, "gaussian": _gaussian}


def _softmax(s, p):
    t, sink = p.get("temperature", 1.0), p.get("sink")
    z = s / t
    finite = z[np.isfinite(z) | np.isnan(z) | (z > 0)]
    if not len(finite) and sink is None:
        return np.zeros_like(z), lambda g: (np.zeros_like(z), {})
    top = max(z.max(), -np.inf if sink is None else sink)
    e = np.exp(z - top)
    total = e.sum() + (0 if sink is None else np.exp(sink - top))
    w = e / total

    def back(g):
        mean = w @ g
        d_z = w * (g - mean)
        more = {"temperature": -np.sum(np.where(w > 0, d_z * z, 0)) / t} if "temperature" in p else {}
        if sink is not None:
            more["sink"] = -np.exp(sink - top) / total * mean
        return d_z / t, more

    return w, back


def _simplex(s, alpha):
    """α-entmax by bisection on τ in float64: a second algorithm beside the library's."""
    z = (alpha - 1) * (s - s.max())
    low, high = -1.0, 0.0
    for _ in range(200):
        tau = (low + high) / 2
        last = tau in (low, high)  # no number is between them: all later steps are the same
        low, high = (tau, high) if (np.maximum(z - tau, 0) ** (1 / (alpha - 1))).sum() >= 1 else (low, tau)
        if last:
            break
    w = np.maximum(z - low, 0) ** (1 / (alpha - 1))
    return w / w.sum()


def _entmax(s, p):
    alpha = float(p.get("alpha", 1.5))
    w = _simplex(s, alpha)

    def back(g):
        u = np.where(w > 0, np.where(w > 0, w, 1) ** (2 - alpha), 0)
        return u * (g - (u @ g) / u.sum()), {}

    return w, back


def _sigmoid(s, p):
    w = 1 / (1 + np.exp(-s))
    return w, lambda g: (w * (1 - w) * g, {})


def _sum(s, p):
    w = s / s.sum()
    return w, lambda g: ((g - w @ g) / s.sum(), {})


NORMALIZERS = {
    "softmax": _softmax,
    "sparsemax": lambda s, p: _entmax(s, p | {"alpha": 2.0}),
    "entmax": _entmax,
    "sigmoid": _sigmoid,
    "sum": _sum,
}
