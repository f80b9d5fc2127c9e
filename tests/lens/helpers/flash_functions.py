"""Functions with the names, arguments and layouts of flash-linear-attention's, as plain loops, and a module that calls one."""

import functools
import itertools

import torch
from torch import Tensor, nn


def loop(q, k, v, decay=None, erase=None, probe=None, state=None, before=None, scale=None):
    """S ← diag(decay) S + erase (probeᵀ S) + k vᵀ, o = scale · Sᵀ q, all (B, N, H, …); `before` reads S first, with its bonus u k vᵀ."""
    state = torch.zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if state is None else state
    scale, outputs = k.shape[-1] ** -0.5 if scale is None else scale, []
    for step in range(q.shape[1]):
        written = k[:, step, ..., None] * v[:, step, :, None]
        observed = None if before is None else state + before[..., None] * written
        after = state if decay is None else decay[:, step].exp()[..., None] * state
        if erase is not None:
            after = after + erase[:, step, ..., None] * (probe[:, step, ..., None] * state).sum(-2, keepdim=True)
        state = after + written
        outputs.append(scale * ((state if observed is None else observed) * q[:, step, ..., None]).sum(-2))
    return torch.stack(outputs, dim=1), state


def fused_recurrent_gla(
    q, k, v, gk=None, gv=None, scale=None, initial_state=None, reverse=False, state_v_first=False, cu_seqlens=None
):
    state = initial_state.mT if initial_state is not None and state_v_first else initial_state
    output, state = loop(q, k, v, gk, state=state, scale=scale)
    return output, state.mT if state_v_first else state


def chunk_gla(q, k, v, g, scale=None, initial_state=None, state_v_first=False, cu_seqlens=None):
    return fused_recurrent_gla(q, k, v, g, scale=scale, initial_state=initial_state, state_v_first=state_v_first)


def chunk_simple_gla(q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, cu_seqlens=None):
    decay = g[..., None] if g_gamma is None else g_gamma[:, None].expand(*k.shape[:3], 1)
    return loop(q, k, v, decay, state=initial_state, scale=scale)


def chunk_retention(q, k, v, scale=None, initial_state=None, cu_seqlens=None):
    gamma = (1 - 2.0 ** (-5.0 - torch.arange(q.shape[2]))).log()
    return chunk_simple_gla(q, k, v, g_gamma=gamma, scale=scale, initial_state=initial_state)


def chunk_lightning_attn(q, k, v, layer_idx, num_layers, scale=None, initial_state=None, cu_seqlens=None):
    slopes = 8 / q.shape[2] * (1 - layer_idx / num_layers) * torch.arange(q.shape[2])
    return chunk_simple_gla(q, k, v, g_gamma=-slopes, scale=scale, initial_state=initial_state)


def chunk_linear_attn(q, k, v, scale=None, initial_state=None, normalize=True, cu_seqlens=None):
    state, keys = initial_state if isinstance(initial_state, tuple) else (initial_state, 0.0)
    output, state = loop(q, k, v, state=state, scale=scale)
    if not normalize:
        return output, state
    scale, keys = k.shape[-1] ** -0.5 if scale is None else scale, k.cumsum(1) + keys
    return output / ((scale * q * keys).sum(-1, keepdim=True) + 1e-10), (state, keys[:, -1:])


def fused_recurrent_rwkv6(r, k, v, w, u, scale=None, initial_state=None, reverse=False, cu_seqlens=None):
    return loop(r, k, v, w, state=initial_state, before=u, scale=scale)


def chunk_rwkv7(r, w, k, v, a, b, scale=1.0, initial_state=None, cu_seqlens=None):
    return loop(r, k, v, w, b, a, state=initial_state, scale=scale)


def fused_mul_recurrent_rwkv7(r, w, k, v, kk, a, scale=1.0, initial_state=None, reverse=False, cu_seqlens=None):
    return chunk_rwkv7(r, w, k, v, -kk, kk * a, scale, initial_state)


def fused_recurrent_hgrn(x, g, initial_state=None, cu_seqlens=None):
    one, state = torch.ones_like(x)[..., None], None if initial_state is None else initial_state[..., None, None]
    output, state = loop(one, one, x[..., None], g[..., None], state=state)
    return output[..., 0], state[..., 0, 0]


def chunk_delta_rule(q, k, v, beta, scale=None, initial_state=None, use_qk_l2norm_in_kernel=False, cu_seqlens=None):
    return fused_recurrent_gated_delta_rule(
        q, k, v, beta=beta, scale=scale, initial_state=initial_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel
    )


def fused_recurrent_gated_delta_rule(
    q, k, v, g=None, beta=None, scale=None, initial_state=None, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, A_log=None,
    dt_bias=None, lower_bound=None, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, cu_seqlens=None,
):  # fmt: skip
    if use_qk_l2norm_in_kernel:
        q, k = (each / (each.square().sum(-1, keepdim=True) + 1e-6).sqrt() for each in (q, k))
    if use_beta_sigmoid_in_kernel:
        beta = beta.sigmoid() * (2 if allow_neg_eigval else 1)
    k = k.repeat_interleave(v.shape[2] // k.shape[2], dim=2)
    q = q.repeat_interleave(v.shape[2] // q.shape[2], dim=2)
    decay = torch.zeros_like(beta)[..., None] if g is None else g if g.ndim == 4 else g[..., None]
    if use_gate_in_kernel:
        decay = decay if dt_bias is None else decay + dt_bias.view(decay.shape[2], -1)
        rate = A_log.exp()[:, None]
        decay = -rate * nn.functional.softplus(decay) if lower_bound is None else lower_bound * (rate * decay).sigmoid()
    strong = beta[..., None] * k
    return loop(q, strong, v, decay, -strong, decay.exp() * k, initial_state, scale=scale)


def chunk_kda(q, k, v, g, beta, cu_seqlens=None, **options):
    return fused_recurrent_gated_delta_rule(q, k, v, g, beta, **options)


def chunk_gsa(q, k, v, s, g):
    return loop(q, k, v, g)


def token_shift(x, cache=None):
    return nn.functional.pad(x[:, :-1], (0, 0, 1, 0)) - x


def causal_conv1d(x, weight=None, bias=None):
    padded = nn.functional.pad(x.mT, (weight.shape[-1] - 1, 0))
    return nn.functional.conv1d(padded, weight[:, None], groups=x.shape[-1]).mT, None


def by_text(function):
    """The same function of several texts packed into one row, as `cu_seqlens` says: each text alone, states by text."""

    @functools.wraps(function)
    def packed(cu_seqlens, **inputs):
        ends = cu_seqlens.tolist()
        alone = []
        for first, last in itertools.pairwise(ends):
            parts = {name: each[:, first:last] if _by_position(each) else each for name, each in inputs.items()}
            alone += [function(**parts)] if last > first else []
        outputs, states = zip(*alone, strict=True)
        states = (
            tuple(torch.cat(each) for each in zip(*states, strict=True)) if isinstance(states[0], tuple) else torch.cat(states)
        )
        return torch.cat(outputs, dim=1), states

    return packed


class FlashLayer(nn.Module):
    """x + what a function gives for inputs, its values those of x (B, N, H · E); `state` is what the last call left."""

    def __init__(self, function, inputs: dict, before=None):
        super().__init__()
        self.name, self.inputs, self.state = function.__name__, inputs, None
        setattr(self, self.name, function)
        if before is not None:
            setattr(self, before.__name__, before)
        self.before = None if before is None else before.__name__

    def forward(self, x: Tensor) -> Tensor:
        shifted = x
        if self.before == "token_shift":
            shifted = self.token_shift(x)
        elif self.before is not None:
            shifted, _ = self.causal_conv1d(x, torch.ones(x.shape[-1], 3))
        first = 0 if self.state is None else self.first
        parts = {
            name: each[:, first : first + x.shape[1]] if _by_position(each) else each for name, each in self.inputs.items()
        }
        value = shifted if "x" in self.inputs else shifted.unflatten(-1, (-1, 3))
        parts |= {"x" if "x" in self.inputs else "v": value}
        if self.state is not None:
            parts |= {"initial_state": self.state}
        output, self.state = getattr(self, self.name)(**parts)
        self.first = first + x.shape[1]
        return x + output.flatten(2)


def _by_position(each) -> bool:
    return isinstance(each, Tensor) and each.ndim > 2
