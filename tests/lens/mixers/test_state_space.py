"""Mamba and Mamba-2 in models, recorded whole: passes, padding, generation, half precision, and changes that somebody plants."""

import functools
from unittest import mock

import pytest
import torch

import overt
from overt.lens.capture.mixers.form import MixerCall
from overt.lens.capture.mixers.state_space import Mamba2Scan, MambaScan, StateUpdate
from small_mixers import apart, mixers, tokens

CONFIGS = {
    "Mamba2": {"num_heads": 4, "head_dim": 16, "n_groups": 2, "state_size": 8, "expand": 2, "chunk_size": 4},
    "Mamba": {"state_size": 4, "time_step_rank": 4},
    "FalconH1": {
        "intermediate_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_n_groups": 2,
        "mamba_chunk_size": 4,
        "mamba_rms_norm": False,
    },
}
COUNT = {"Mamba2": 2, "Mamba": 2, "FalconH1": 2}


@functools.cache
def model(name: str, dtype: torch.dtype = torch.float32):
    transformers = __import__("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(vocab_size=60, hidden_size=32, num_hidden_layers=2, **CONFIGS[name])
    made = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.15) if parameter.ndim > 1 and parameter.shape[-1] > 4 else parameter.add_(0.1)
    return made.to(dtype)


def recorded(made, ids, **kwargs):
    """A recording of a pass, whose outputs are those without a recording to the bit."""
    with torch.no_grad():
        plain = made(ids, **kwargs).logits
        with overt.lens.record(made) as recording:
            assert torch.equal(plain, made(ids, **kwargs).logits)
    return recording


def off(call) -> float:
    """How far the weights times the values are from the model's own output."""
    recurrence = call.recurrence.ready()
    return apart(recurrence.weights() @ recurrence.value, call.output.float())


def padding(side: str) -> torch.Tensor:
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[1, slice(0, 4) if side == "left" else slice(-4, None)] = 0
    return mask


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("side", ["none", "left", "right"])
def test_the_weights_times_the_values_are_the_models_output(name, side):
    mask = {} if side == "none" else {"attention_mask": padding(side)}
    recording = recorded(model(name), tokens(2, 11), **mask)
    assert recording.missing == []
    assert len(mixers(recording)) == COUNT[name]
    for call in mixers(recording):
        assert off(call) < 1e-5
        assert any("convolution over 4 positions" in each for each in call.around)
        assert any("gate" in each.lower() for each in call.around)


@pytest.mark.parametrize("name", CONFIGS)
def test_in_half_precision_they_are_within_its_rounding(name):
    for call in mixers(recorded(model(name, torch.bfloat16), tokens(2, 11))):
        assert off(call) < 2e-2


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_of_beam_search_has_the_keys_of_its_beam_since_the_beginning(name):
    made, ids = model(name), tokens(2, 6)
    with torch.no_grad(), overt.lens.record(made) as recording:
        written = made.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False, num_beams=2, num_return_sequences=2)
    assert recording.missing == []
    calls = mixers(recording.passes[-1])
    whole = mixers(recorded(made, written[:, :9]))
    for call, full in zip(calls, whole, strict=True):
        assert (call.queries, call.keys, call.notes) == (1, 9, ())
        assert off(call) < 1e-5
        # Beams may have changed after the last step: each one's weights are those of a beam that lived on, or of none.
        last = full.recurrence.weights([8])
        same = [[apart(mine, other) < 1e-4 for other in last] for mine in call.recurrence.weights()]
        assert any(map(any, same))


def test_a_state_of_tokens_before_the_recording_is_said():
    made, ids = model("Mamba2"), tokens(2, 6)
    with torch.no_grad():
        before = made(ids, use_cache=True)
        with overt.lens.record(made) as recording:
            made(ids[:, :1], cache_params=before.cache_params, use_cache=True)
    for call in mixers(recording):
        assert call.recurrence.start is not None
        assert "before this recording" in " ".join(call.notes)
        assert apart(call.recurrence.output(), call.output) < 1e-5


def double(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def arguments_of_mamba2() -> dict:
    """Seven positions, four heads in two groups, and a step size that is cut off on both sides."""
    shared = {"dt": double(2, 7, 4), "A": -double(4).exp(), "D": double(4), "dt_bias": double(4)}
    grouped = {"hidden_states": double(2, 7, 4, 3), "B": double(2, 7, 2, 5), "C": double(2, 7, 2, 5)}
    return (
        shared | grouped | {"chunk_size": 3, "dt_softplus": True, "dt_limit": (0.2, 0.9), "initial_states": double(2, 4, 3, 5)}
    )


def arguments_of_mamba() -> dict:
    per_channel = {"hidden_states": double(2, 6, 7), "dt": double(2, 6, 7), "A": -double(6, 5).exp(), "D": double(6)}
    return per_channel | {"B": double(2, 5, 7), "C": double(2, 5, 7), "delta_bias": double(6), "delta_softplus": True}


@pytest.mark.parametrize("family", ["mamba2", "mamba"])
def test_the_weights_are_the_jacobian_of_the_models_own_scan_in_float64(family):
    code = __import__(f"transformers.models.{family}.modeling_{family}", fromlist=["x"])
    form, name, arguments = {
        "mamba2": (Mamba2Scan(), "mamba2_chunk_scan", arguments_of_mamba2()),
        "mamba": (MambaScan(), "mamba_selective_scan", arguments_of_mamba()),
    }[family]
    recurrence = form.read(MixerCall(name, arguments, torch.nn.Module()))

    def scan(values: torch.Tensor) -> torch.Tensor:
        with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
            output = getattr(code, name)(**arguments | {"hidden_states": values})
        return output.movedim(1, 2)[..., 0] if family == "mamba2" else output  # (B, H, N)

    jacobian = torch.autograd.functional.jacobian(scan, arguments["hidden_states"])  # (B, H, N, and the shape of values)
    of_head = "bhnbjhe->bhnje" if family == "mamba2" else "bhnbhj->bhnj"
    expected = torch.einsum(of_head, jacobian)
    expected = expected[..., 0] if family == "mamba2" else expected
    torch.testing.assert_close(recurrence.weights(), expected, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(recurrence.matrix(), expected, rtol=1e-11, atol=1e-12)


def test_a_step_is_the_last_position_of_a_scan():
    whole = arguments_of_mamba() | {"D": None}
    scan = MambaScan().read(MixerCall("mamba_selective_scan", whole, torch.nn.Module()))
    state = torch.zeros(2, 6, 5, dtype=torch.float64)
    for position in range(7):
        at = {name: whole[name][..., position] for name in ("hidden_states", "dt", "B", "C")}
        step = at | {"state": state, "A": whole["A"], "dt_bias": whole["delta_bias"], "dt_softplus": True}
        recurrence = StateUpdate().read(MixerCall("mamba_selective_state_update", step, torch.nn.Module()))
        state = state * recurrence.log_decay[:, :, 0].exp() + recurrence.key[:, :, 0] * recurrence.value[:, :, 0]
    torch.testing.assert_close(recurrence.output()[:, :, 0], scan.output()[:, :, -1])


def test_a_gate_inside_a_scan_is_divided_out_and_where_it_is_zero_nothing_is_lost():
    made = model("Mamba")
    mask = padding("left")
    for call in mixers(recorded(made, tokens(2, 11), attention_mask=mask)):
        assert bool(call.output.isfinite().all())


def test_a_head_without_one_step_size_is_listed():
    state = double(2, 4, 3, 5)
    arguments = {"state": state, "hidden_states": double(2, 4, 3), "dt": double(2, 4, 3), "A": -double(4, 3, 5).exp()}
    arguments |= {"B": double(2, 2, 5), "C": double(2, 2, 5)}
    said = StateUpdate().read(MixerCall("mamba2_selective_state_update", arguments, torch.nn.Module()))
    assert "differs inside a head" in said


def test_packed_sequences_are_listed():
    said = Mamba2Scan().read(
        MixerCall("mamba2_chunk_scan", arguments_of_mamba2() | {"seq_idx": double(2, 7)}, torch.nn.Module())
    )
    assert "packed" in said


def test_a_scan_that_computes_otherwise_does_not_verify(monkeypatch):
    from transformers.models.mamba2 import modeling_mamba2

    original = modeling_mamba2.mamba2_chunk_scan

    def slower(hidden_states, dt, A, B, C, **others):
        return original(hidden_states, dt, A * 0.98, B, C, **others)

    monkeypatch.setattr(modeling_mamba2, "mamba2_chunk_scan", slower)
    for call in mixers(recorded(model("Mamba2"), tokens(2, 11))):
        assert off(call) > 1e-4
