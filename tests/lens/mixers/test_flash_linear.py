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
@pytest.mark.few_cases(4)
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
@pytest.mark.few_cases(4)
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
        ({"cu_seqlens": torch.tensor([0, 4, 9])}, "say where packed sequences begin, are not those of one row of 9 positions"),
        ({"reverse": True}, "from the last position to the first"),
        ({"gv": DECAY[..., :E]}, "features of a value decay separately"),
    ],
)
def test_what_has_no_single_weight_for_a_position_is_missing_with_its_reason(options, reason):
    layer = fla.FlashLayer(fla.fused_recurrent_gla, inputs("q", "k", gk=DECAY) | options)
    recording = recorded(layer, drawn(B, N, H * E))
    assert reason in dict(recording.missing)["FlashLayer"]


def one_row(parts: dict) -> dict:
    """The inputs of the first sequence alone."""
    return {name: each[:1] if torch.is_tensor(each) and each.ndim > 2 else each for name, each in parts.items()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.few_cases(4)
def test_rows_of_packed_texts_stay_in_their_text(case, tmp_path):
    function, parts = CASES[case]
    ends, x, parts = [0, 4, 4, 5, N], drawn(1, N, H * E), one_row(parts)
    packed = recorded(fla.FlashLayer(fla.by_text(function), parts | {"cu_seqlens": torch.tensor(ends)}), x)
    assert not packed.missing
    assert packed.verify().holds
    packed.save(tmp_path / "packed.safetensors")
    saved = overt.lens.load(tmp_path / "packed.safetensors")
    for first, last in ((0, 4), (4, 5), (5, N)):
        cut = {name: each[:, first:last] if torch.is_tensor(each) and each.ndim > 2 else each for name, each in parts.items()}
        alone = recorded(fla.FlashLayer(function, cut), x[:, first:last])
        for one, of_file, other in zip(packed.heads(), saved.heads(), alone.heads(), strict=True):
            rows = range(first, last)
            weights = one.weights(rows)
            assert apart(weights[..., first:last], other.weights()) < 1e-6
            assert not weights[..., :first].any()
            assert torch.equal(of_file.weights(rows), weights)
            assert one.steps(last - 1).output.isfinite().all()
    summaries = fla.FlashLayer(fla.by_text(function), parts | {"cu_seqlens": torch.tensor(ends)})
    with overt.lens.record(summaries, keep="summary") as summary:
        summaries(x)
    assert summary.verify().holds
    assert [each.role for each in summary.roles()] == [each.role for each in packed.roles()]


LONG = {name: drawn(1, 40, H, D, seed=seed) for seed, name in enumerate(("q", "k"))} | {"gk": -drawn(1, 40, H, D).abs() / 9}


def test_a_function_that_mixes_packed_texts_is_missing_however_late_the_second_begins():
    layer = fla.FlashLayer(fla.fused_recurrent_gla, LONG | {"cu_seqlens": torch.tensor([0, 30, 40])})
    recording = recorded(layer, drawn(1, 40, H * E))
    assert "its function is not the gated linear attention of its arguments" in dict(recording.missing)["FlashLayer"]


def test_a_function_without_such_an_argument_is_recorded_as_it_mixes_the_texts_with_a_note():
    def fused_recurrent_gla(q, k, v, gk, **others):
        return fla.fused_recurrent_gla(q, k, v, gk)

    x = drawn(1, 40, H * E)
    recording = recorded(fla.FlashLayer(fused_recurrent_gla, LONG | {"cu_seqlens": torch.tensor([0, 30, 40])}), x)
    plain = recorded(fla.FlashLayer(fla.fused_recurrent_gla, LONG), x)
    assert recording.verify().holds
    assert torch.equal(recording[0, 0].weights(), plain[0, 0].weights())
    assert "passes over cu_seqlens: the texts of one row are mixed" in str(recording)


def test_states_of_packed_texts_are_not_gone_on_with():
    layer = fla.FlashLayer(fla.by_text(fla.fused_recurrent_gla), LONG | {"cu_seqlens": torch.tensor([0, 20])})
    recording = recorded(layer, drawn(1, 20, H * E), drawn(1, 20, H * E, seed=1))
    assert len(recording.calls) == 1
    assert "goes on with states of packed sequences" in dict(recording.missing)["FlashLayer"]


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
