"""Scores of a caller's: functions, closures and modules, each with the tensors that it is differentiated in.

A maker takes the number of heads and features and a function that draws a tensor of a shape; it gives (score, parameters). DEVELOPMENT are
the scores that tracing was written with, HELD_OUT those that were written down before it and tried only afterwards.
"""

import math

import torch
from torch import nn
from torch.nn import functional


def pairs(q, k):
    """Queries and keys as they meet: (..., Q, 1, D) and (..., 1, K, D)."""
    return q[..., :, None, :], k[..., None, :, :]


def difference(q, k):
    first, second = pairs(q, k)
    return first - second


class AdditiveModule(nn.Module):
    """v · relu(W₁q + W₂k + b)."""

    def __init__(self, features, draw, width=6):
        super().__init__()
        self.first, self.second = nn.Linear(features, width), nn.Linear(features, width, bias=False)
        self.vector = nn.Parameter(draw(width))

    def forward(self, query, key):
        hidden = torch.relu(self.first(query).unsqueeze(-2) + self.second(key).unsqueeze(-3))
        return hidden @ self.vector


class ConcatenatedModule(nn.Module):
    """A small network over [q, k], as Luong's "concat" is usually written."""

    def __init__(self, features, width=5):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2 * features, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, query, key):
        rows, columns = query.shape[-2], key.shape[-2]
        first = query.unsqueeze(-2).expand(*query.shape[:-1], columns, query.shape[-1])
        second = key.unsqueeze(-3).expand(*key.shape[:-2], rows, columns, key.shape[-1])
        return self.network(torch.cat([first, second], dim=-1)).squeeze(-1)


def _module(module, draw):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(draw(*parameter.shape) * 0.5)
    dtype = draw(1).dtype
    module = module.to(dtype)
    return module, list(module.parameters())


def _plain(score):
    return lambda heads, features, draw: (score, [])


def _power(heads, features, draw):
    return lambda q, k: -(difference(q, k).abs() ** 1.5).sum(-1), []


def _rational_quadratic(heads, features, draw):
    alpha = draw(1).abs().add(0.5).squeeze().requires_grad_()
    return lambda q, k: -alpha * torch.log1p(difference(q, k).square().sum(-1) / (2 * alpha)), [alpha]


def _additive_closure(heads, features, draw):
    first, second, vector = (draw(*shape).mul(0.4).requires_grad_() for shape in ((features, 7), (features, 7), (7,)))
    return lambda q, k: (torch.relu((q @ first)[..., :, None, :] + (k @ second)[..., None, :, :]) * vector).sum(-1), [
        first,
        second,
        vector,
    ]


def _per_head(heads, features, draw):
    scale = draw(heads, 1, 1).abs().add(0.1).requires_grad_()
    return lambda q, k: -(q[..., :, None, :] - k[..., None, :, :]).abs().mean(-1) * scale, [scale]


def _weighted_distance(heads, features, draw):
    log_weight = draw(features).mul(0.3).requires_grad_()
    return lambda q, k: -((q.unsqueeze(-2) - k.unsqueeze(-3)) ** 2 * log_weight.exp()).sum(dim=-1), [log_weight]


def _gated(heads, features, draw):
    weight = draw(features, 1).mul(0.4).requires_grad_()
    return lambda q, k: torch.sigmoid(q @ weight) * (q @ k.mT) / math.sqrt(q.shape[-1]), [weight]


def _temperature_by_norm(heads, features, draw):
    return lambda q, k: torch.einsum("...qd,...kd->...qk", q, k) / q.norm(dim=-1, keepdim=True).clamp(min=0.1), []


def _bilinear_form(heads, features, draw):
    weight = draw(heads, features, features).div(features).requires_grad_()
    return lambda q, k: torch.tanh(torch.einsum("...qd,...de,...ke->...qk", q, weight, k)) * 4, [weight]


def _mixture(heads, features, draw):
    share = draw(1).squeeze().requires_grad_()

    def score(q, k):
        gate = torch.sigmoid(share)
        return gate * (q @ k.transpose(-1, -2)) / q.size(-1) ** 0.5 - (1 - gate) * torch.cdist(q, k, p=1.0)

    return score, [share]


DEVELOPMENT = {
    "manhattan": _plain(lambda q, k: -difference(q, k).abs().sum(-1)),
    "power": _power,
    "cosine": _plain(lambda q, k: 5 * functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).mT),
    "cosine similarity": _plain(lambda q, k: functional.cosine_similarity(q[..., :, None, :], k[..., None, :, :], dim=-1) * 3),
    "euclidean": _plain(lambda q, k: -torch.cdist(q, k)),
    "cauchy": _plain(lambda q, k: -torch.log(1 + difference(q, k).pow(2).sum(-1))),
    "rational quadratic": _rational_quadratic,
    "additive closure": _additive_closure,
    "additive module": lambda heads, features, draw: _module(AdditiveModule(features, draw), draw),
    "polynomial": _plain(lambda q, k: (1 + q @ k.mT / 8) ** 2),
    "chebyshev": _plain(lambda q, k: -difference(q, k).abs().amax(-1)),
    "per head": _per_head,
    "weighted distance": _weighted_distance,
    "gated": _gated,
    "temperature by norm": _temperature_by_norm,
    "mixture": _mixture,
    "concatenated": lambda heads, features, draw: _module(ConcatenatedModule(features), draw),
}


# --------------------------------------------------------------------------------------------------------- not looked at in development


def _max_plus(heads, features, draw):
    return lambda q, k: (q[..., :, None, :] + k[..., None, :, :]).amax(dim=-1), []


def _hyperbolic(heads, features, draw):
    def score(q, k):
        q, k = 0.7 * torch.tanh(q) / math.sqrt(q.shape[-1]), 0.7 * torch.tanh(k) / math.sqrt(k.shape[-1])
        squared = (q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)
        margin = (1 - q.square().sum(-1))[..., :, None] * (1 - k.square().sum(-1))[..., None, :]
        return -torch.acosh(1 + 2 * squared / margin + 1e-4)

    return score, []


def _divergence(heads, features, draw):
    def score(q, k):
        p, r = q.softmax(-1), k.softmax(-1)
        return -(p[..., :, None, :] * (p.log()[..., :, None, :] - r.log()[..., None, :, :])).sum(-1)

    return score, []


def _thresholded(heads, features, draw):
    tau = draw(1).squeeze().requires_grad_()

    def score(q, k):
        s = q @ k.mT
        return torch.where(s > 0.3, s * tau, 0.1 * s)

    return score, [tau]


def _clamped(heads, features, draw):
    return lambda q, k: ((q @ k.mT) / math.sqrt(q.shape[-1])).clamp(-1.5, 1.5), []


def _learned_power(heads, features, draw):
    power = draw(1).squeeze().abs().add(1.2).requires_grad_()
    return lambda q, k: -((q.unsqueeze(-2) - k.unsqueeze(-3)).abs() + 0.01).pow(power).mean(-1), [power]


def _projected_distance(heads, features, draw):
    weight = draw(heads, features, 4).mul(0.5).requires_grad_()
    return lambda q, k: -torch.cdist(q @ weight, k @ weight, p=2.0), [weight]


def _feature_gate(heads, features, draw):
    gate = draw(heads, 1, features).requires_grad_()
    return (
        lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q * gate.sigmoid(), k) if q.ndim == 4 else (q * gate[0].sigmoid()) @ k.mT,
        [gate],
    )


class _LowRank(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.norm, self.down = nn.LayerNorm(features), nn.Linear(features, 3, bias=False)
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, query, key):
        q, k = self.down(self.norm(query)), self.down(self.norm(key))
        return functional.gelu(q.unsqueeze(-2) * k.unsqueeze(-3) + self.bias).sum(-1)


def _log_sum_exp(heads, features, draw):
    return lambda q, k: torch.logsumexp(q[..., :, None, :] + k[..., None, :, :], dim=-1), []


HELD_OUT = {
    "max plus": _max_plus,
    "hyperbolic": _hyperbolic,
    "divergence of softmaxes": _divergence,
    "thresholded": _thresholded,
    "clamped": _clamped,
    "learned power": _learned_power,
    "projected distance": _projected_distance,
    "feature gate": _feature_gate,
    "low rank module": lambda heads, features, draw: _module(_LowRank(features, heads), draw),
    "log sum exp": _log_sum_exp,
    "laplace of the mean": _plain(lambda q, k: torch.exp(-(q.unsqueeze(-2) - k.unsqueeze(-3)).abs().mean(-1) / 0.7) * 6),
    "softplus": _plain(lambda q, k: functional.softplus(q[..., :, None, :] * k[..., None, :, :]).sum(-1)),
    "silu of products": _plain(lambda q, k: functional.silu(torch.matmul(q, k.transpose(-2, -1)))),
    "angular": _plain(
        lambda q, k: -torch.acos((functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).mT).clamp(-0.99, 0.99))
    ),
    "ratio": _plain(lambda q, k: (q @ k.mT) / (1 + (q * q).sum(-1, keepdim=True) + (k * k).sum(-1).unsqueeze(-2))),
    "in place on its scores": _plain(lambda q, k: torch.matmul(q, k.mT).mul_(0.3).sub_(0.5)),
    "canberra": _plain(
        lambda q, k: -((q.unsqueeze(-2) - k.unsqueeze(-3)).abs() / (1 + q.abs().unsqueeze(-2) + k.abs().unsqueeze(-3))).sum(-1)
    ),
    "minimum of features": _plain(lambda q, k: torch.minimum(q[..., :, None, :], k[..., None, :, :]).sum(-1)),
    "sine kernel": _plain(
        lambda q, k: torch.cos(difference(q, k)).prod(-1) if q.shape[-1] == 1 else torch.cos(difference(q, k)).sum(-1)
    ),
    "positional norm": _plain(lambda q, k: -(q.norm(dim=-1)[..., :, None] - k.norm(dim=-1)[..., None, :]).abs()),
}
