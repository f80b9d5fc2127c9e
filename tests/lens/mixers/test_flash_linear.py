"""Mixers of flash-linear-attention: its functions' names, arguments and states, on plain loops that stand for its kernels.

The kernels themselves are run by benchmarks/models.py, in Triton's interpreter.
"""

import pytest
import torch

import flash_functions as fla
import overt
from overt.lens.linear.captured import CapturedMixer
from small_mixers import apart

B, N, H, D, E = 2, 9, 2, 4, 3


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + seed))


def inputs(*names: str, **others) -> dict:
    """Queries, keys and the like (B, N, H, D), each by its name."""
    return {name: drawn(B, N, H, D, seed=number) for number, name in enumerate(names)} | others


DECAY = -drawn(B, N, H, D, seed=7).abs() / 2
KEY = torch.nn.functional.normalize(drawn(B, N, H, D, seed=5), dim=-1)
RATE = drawn(B, N, H, D, seed=3).sigmoid()
BETA = {"beta": drawn(B, N, H)}
GATED = {"use_gate_in_kernel": True, "A_log": drawn(H), "use_beta_sigmoid_in_kernel": True, "use_qk_l2norm_in_kernel": True}
CASES = {
    "gated linear attention, step by step": (fla.fused_recurrent_gla, inputs("q", "k", gk=DECAY, state_v_first=True)),
    "gated linear attention, in chunks": (fla.chunk_gla, inputs("q", "k", g=DECAY, scale=0.3)),
    "one decay a head": (fla.chunk_simple_gla, inputs("q", "k", g=DECAY[..., 0])),
    "retention": (fla.chunk_retention, inputs("q", "k")),
    "lightning": (fla.chunk_lightning_attn, inputs("q", "k", layer_idx=1, num_layers=3)),
    "linear attention": (fla.chunk_linear_attn, inputs("q", "k", normalize=False)),
    "normalized linear attention": (fla.chunk_linear_attn, {"q": RATE, "k": RATE.flip(1)}),
    "RWKV-6": (fla.fused_recurrent_rwkv6, inputs("r", "k", w=DECAY, u=drawn(H, D))),
    "RWKV-7, step by step": (fla.fused_mul_recurrent_rwkv7, inputs("r", "k", w=DECAY, kk=KEY, a=RATE)),
    "RWKV-7, in chunks": (fla.chunk_rwkv7, inputs("r", "k", w=DECAY, a=-KEY, b=KEY * RATE)),
    "HGRN": (fla.fused_recurrent_hgrn, {"x": None, "g": -drawn(B, N, H * E).abs()}),
    "the delta rule": (fla.chunk_delta_rule, inputs("q", k=KEY, beta=RATE[..., 0])),
    "the gated delta rule": (fla.fused_recurrent_gated_delta_rule, inputs("q", "k", g=drawn(B, N, H), **BETA, **GATED)),
    "the gated delta rule, one key head": (
        fla.fused_recurrent_gated_delta_rule,
        {"q": drawn(B, N, 1, D), "k": KEY[:, :, :1], "g": DECAY[..., 0], "beta": RATE[..., 0]},
    ),
    "Kimi": (fla.chunk_kda, inputs("q", "k", "g", **BETA, **GATED, dt_bias=drawn(H * D), allow_neg_eigval=True)),
    "Kimi, with a lower bound": (fla.chunk_kda, inputs("q", "k", "g", **BETA, **GATED, lower_bound=-5.0)),
}


def recorded(layer, *texts):
    """A recording of these calls, whose outputs are those without one to the bit."""
    layer.state = None
    plain = [layer(text) for text in texts]
    layer.state = None
    with torch.no_grad(), overt.lens.record(layer) as recording:
        assert all(torch.equal(layer(text), one) for text, one in zip(texts, plain, strict=True))
    return recording


@pytest.mark.parametrize("case", CASES)
def test_weights_are_the_derivative_of_the_function_with_respect_to_its_values(case):
    function, parts = CASES[case]
    layer, x = fla.FlashLayer(function, parts), drawn(B, N, H * E)
    recording = recorded(layer, x)
    assert not recording.missing
    assert recording.verify().holds
    layer.state = None

    def output(value):
        layer.state = None
        return layer(value) - value

    derivative = torch.autograd.functional.jacobian(output, x)  # (B, N, H · E, B, N, H · E)
    width = 1 if case == "HGRN" else E
    for head in (0, recording.calls[0].total - 1):
        mine = derivative[1, :, head * width, 1, :, head * width]
        assert apart(recording[0, head].weights()[1], mine) < 1e-5


@pytest.mark.parametrize("case", CASES)
def test_a_call_goes_on_with_the_state_that_another_left(case):
    function, parts = CASES[case]
    layer, x = fla.FlashLayer(function, parts), drawn(B, N, H * E)
    whole, steps = recorded(layer, x), recorded(layer, x[:, :6], x[:, 6:7], x[:, 7:])
    assert len(steps.calls) == 1
    for one, other in zip(steps.heads(), whole.heads(), strict=True):
        assert apart(one.weights(), other.weights()) < 1e-5
    assert steps.verify().holds


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cu_seqlens": torch.tensor([0, 4, 9])}, "packed sequences"),
        ({"reverse": True}, "from the last position to the first"),
        ({"gv": DECAY[..., :E]}, "features of a value decay separately"),
    ],
)
def test_what_has_no_single_weight_for_a_position_is_missing_with_its_reason(options, reason):
    layer = fla.FlashLayer(fla.fused_recurrent_gla, inputs("q", "k", gk=DECAY) | options)
    recording = recorded(layer, drawn(B, N, H * E))
    assert reason in dict(recording.missing)["FlashLayer"]


def test_other_mixers_of_the_library_are_missing_by_name():
    layer = fla.FlashLayer(fla.chunk_gsa, inputs("q", "k", "s", g=DECAY))
    recording = recorded(layer, drawn(B, N, H * E))
    assert dict(recording.missing) == {
        "FlashLayer": "it mixes tokens by flash-linear-attention's chunk_gsa, whose weights are not recorded"
    }


@pytest.mark.parametrize(
    ("before", "message"),
    [(fla.token_shift, "tokens added to their shifted neighbours"), (fla.causal_conv1d, "over 3 positions")],
)
def test_what_mixes_neighbours_before_a_mixer_is_named_with_it(before, message):
    layer = fla.FlashLayer(fla.chunk_retention, inputs("q", "k"), before)
    recording = recorded(layer, drawn(B, N, H * E))
    assert not recording.missing
    assert message in recording.calls[0].around[0]


def test_what_mixes_neighbours_alone_is_missing():
    class Shifted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.token_shift = fla.token_shift

        def forward(self, x):
            return self.token_shift(x)

    model = Shifted()
    with overt.lens.record(model) as recording:
        model(drawn(B, N, 4))
    assert "Shifted mixes tokens by tokens added to their shifted neighbours" in dict(recording.missing)["Shifted"]


def test_a_function_that_does_something_else_under_such_a_name_is_missing():
    def chunk_gla(q, k, v, g, scale=None):
        return fla.loop(q, k, v, 1.1 * g, scale=scale)

    layer = fla.FlashLayer(chunk_gla, inputs("q", "k", g=DECAY))
    recording = recorded(layer, drawn(B, N, H * E))
    assert not [call for call in recording.calls if isinstance(call, CapturedMixer)]
    assert "its function is not the gated linear attention of its arguments" in dict(recording.missing)["FlashLayer"]
