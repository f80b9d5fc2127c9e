"""Each form gives what its paper's own recurrence gives, position by position, in float64."""

import pytest
import torch

from overt.lens.linear import (
    Recurrence,
    delta_rule,
    gated_delta_rule,
    gated_linear_attention,
    kimi_delta_attention,
    lightning_attention,
    linear_attention,
    mamba,
    mamba2,
    mlstm,
    retention,
    rg_lru,
    rwkv4,
    rwkv6,
    rwkv7,
)

B, H, K, D, E = 2, 3, 13, 4, 5
torch.manual_seed(1)


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64)


q, k, v = numbers(B, H, K, D), torch.nn.functional.normalize(numbers(B, H, K, D), dim=-1), numbers(B, H, K, E)
beta, g, gd = numbers(B, H, K).sigmoid(), -numbers(B, H, K).abs(), -numbers(B, H, K, D).abs()
bonus, rate = numbers(H, D), numbers(B, H, K, D).sigmoid()
x, step, first = numbers(B, H, K), numbers(B, H, K).exp(), numbers(B, H, D, E)
identity = torch.eye(D, dtype=torch.float64)


def outer(a, b):
    return a[..., :, None] * b[..., None, :]


def stepped(update, read, state=None):
    """o_t = read(S_t, S_(t−1), t), S_t = update(S_(t−1), t)."""
    state, outputs = torch.zeros(B, H, D, E, dtype=torch.float64) if state is None else state, []
    for t in range(K):
        before, state = state, update(state, t)
        outputs.append(read(state, before, t))
    return torch.stack(outputs, dim=2)


def after(state, before, t):
    return (state * q[:, :, t, :, None]).sum(-2)


def kv(t):
    return outer(k[:, :, t], v[:, :, t])


def erased(t):
    return identity - beta[:, :, t, None, None] * outer(k[:, :, t], k[:, :, t])


def test_the_delta_rules():
    strong = beta[..., None, None]
    for form, update in (
        (delta_rule(q, k, v, beta, start=first), lambda s, t: erased(t) @ s + strong[:, :, t] * kv(t)),
        (
            gated_delta_rule(q, k, v, g, beta, start=first),
            lambda s, t: g[:, :, t, None, None].exp() * (erased(t) @ s) + strong[:, :, t] * kv(t),
        ),
        (
            kimi_delta_attention(q, k, v, gd, beta, start=first),
            lambda s, t: erased(t) @ (gd[:, :, t, :, None].exp() * s) + strong[:, :, t] * kv(t),
        ),
        (
            rwkv7(q, 2 * k, v, gd, k, rate, start=first),
            lambda s, t: (gd[:, :, t].exp().diag_embed() - outer(rate[:, :, t] * k[:, :, t], k[:, :, t])) @ s + 2 * kv(t),
        ),
    ):
        check(form, stepped(update, after, first))


def test_the_decaying_mixers():
    slope = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)

    def constant(s, t):
        return (-slope[:, None, None]).exp() * s + kv(t)

    check(retention(q, k, v, (-slope).exp(), start=first), stepped(constant, after, first))
    check(lightning_attention(q, k, v, slope, start=first), stepped(constant, after, first))

    def by_feature(s, t):
        return gd[:, :, t, :, None].exp() * s + kv(t)

    check(gated_linear_attention(q, k, v, gd, start=first), stepped(by_feature, after, first))

    def with_bonus(state, before, t):
        return ((before + bonus[:, :, None] * kv(t)) * q[:, :, t, :, None]).sum(-2)

    check(rwkv6(q, k, v, gd, bonus, start=first), stepped(by_feature, with_bonus, first))


def test_the_state_spaces():
    a, d = -numbers(H).exp(), numbers(H)
    b, c = numbers(B, 1, K, D), numbers(B, 1, K, D)

    def update(s, t):
        return (step[:, :, t] * a).exp()[..., None, None] * s + step[:, :, t, None, None] * outer(b[:, :, t], v[:, :, t])

    def read(state, before, t):
        return (state * c[:, :, t, :, None]).sum(-2) + d[:, None] * v[:, :, t]

    check(mamba2(v, step, a, b, c, d, start=first), stepped(update, read, first))
    rates = -numbers(H, D).exp()

    def scan(s, t):  # (B, H, D, 1): a channel a head
        return (step[:, :, t, None] * rates).exp()[..., None] * s + outer(step[:, :, t, None] * b[:, :, t], x[:, :, t, None])

    def scanned(state, before, t):
        return (state * c[:, :, t, :, None]).sum(-2) + (d * x[:, :, t])[..., None]

    start = first[..., :1]
    check(mamba(x, step, rates, b[:, 0], c[:, 0], d, start=start[..., 0]), stepped(scan, scanned, start))

    def unit(s, t):
        decay = g[:, :, t, None, None].exp()
        return decay * s + (1 - decay.square()).sqrt() * (beta * x)[:, :, t, None, None]

    start = first[..., :1, :1]
    check(rg_lru(x, beta, g, start=start[..., 0, 0]), stepped(unit, lambda state, before, t: state[:, :, 0], start))


def test_the_normalized_mixers():
    features = q.exp(), k.exp()
    products = (features[0] @ features[1].mT).tril()
    form = linear_attention(*features, v)
    check(form, products @ v / products.sum(-1, keepdim=True))
    assert torch.allclose(form.weights().sum(-1), torch.ones(B, H, K, dtype=torch.float64))
    entered = 3 * numbers(B, H, K)

    def gates(s, t):
        return g[:, :, t, None, None].exp() * s + entered[:, :, t, None, None].exp() * outer(
            k[:, :, t], torch.cat([v, torch.ones_like(v[..., :1])], -1)[:, :, t]
        )

    both = stepped(gates, after, torch.zeros(B, H, D, E + 1, dtype=torch.float64))
    check(mlstm(q, k, v, g, entered), both[..., :E] / both[..., E:].abs().clamp(min=1))


def test_rwkv4_is_an_average_with_positive_weights_even_where_its_exponents_overflow():
    decay, bonus_of_channel = -torch.rand(H, dtype=torch.float64), numbers(H)
    for size in (1.0, 2000.0):  # exp(2000) is infinite
        key = size * x
        distance = torch.arange(K)[:, None] - torch.arange(K) - 1  # t − 1 − j
        scores = distance * decay[:, None, None] + key[:, :, None]
        scores = torch.where(distance < 0, -torch.inf, scores)
        scores = scores + torch.zeros(K).diag_embed()
        scores.diagonal(0, -2, -1).copy_(key + bonus_of_channel[:, None])
        form = rwkv4(key, x, decay, bonus_of_channel)
        assert torch.allclose(form.weights(), scores.softmax(-1), rtol=0, atol=1e-10)
        check(form, (scores.softmax(-1) @ x[..., None]))


def check(form: Recurrence, expected: torch.Tensor) -> None:
    assert torch.allclose(form.output(), expected, rtol=0, atol=1e-10), form.kind
    if form.start is None:
        assert torch.allclose(form.weights() @ form.value, expected, rtol=0, atol=1e-10), form.kind


@pytest.mark.parametrize("gate", [-200.0, 200.0])
def test_the_gates_of_mlstm_stay_in_range(gate):
    form = mlstm(q, k, v, torch.full_like(g, -1e-3), torch.full_like(g, gate))
    assert bool(form.weights().isfinite().all())
    assert bool(form.output().isfinite().all())
