"""Linear token mixers that are not state spaces, in models: recorded whole, in passes and in generation, and never silently wrong."""

import copy
from functools import partial
from unittest import mock

import pytest
import torch
from transformers.models.qwen3_next import modeling_qwen3_next

import overt
from small_mixers import BY_NAME, MIXERS, apart, mixers, model, recorded, tokens

QUICK = ["Qwen3Next", "KimiLinear", "MiniMax", "xLSTM", "Rwkv", "RecurrentGemma"]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in BY_NAME if name not in QUICK]
LATER = [*SLOW, *(pytest.param(name, marks=pytest.mark.slow) for name in ("KimiLinear", "RecurrentGemma", "xLSTM"))]
GATED = ["Qwen3Next", "KimiLinear", *SLOW]


def missing(recording) -> list[str]:
    """What is missing, without the shifted tokens of RWKV's feed-forward layers, which are no part of its mixer."""
    return [reason for layer, reason in recording.missing if not layer.endswith("feed_forward")]


@pytest.mark.parametrize("family", [*QUICK, *SLOW])
def test_every_mixer_is_recorded_and_its_weights_times_its_values_are_its_output(family):
    recording, _ = recorded(model(family), tokens(2, 37))
    assert missing(recording) == []
    assert len(mixers(recording)) == MIXERS[family]
    assert recording.verify().holds
    for call in mixers(recording):
        recurrence = call.recurrence.ready()
        assert apart(recurrence.weights([0, 5, 36]) @ recurrence.value, call.output[:, :, [0, 5, 36]]) < 1e-5
        assert any("gate" in each for each in call.around)


def test_mixers_have_roles_beside_attention_measured_once(tmp_path, monkeypatch):
    ids, words = tokens(1, 12).repeat(1, 3), [*"abcdefghijkl" * 3]
    made = model("Qwen3Next")
    with torch.no_grad(), overt.lens.record(made, key_tokens=words) as recording:
        made(ids)
    roles = recording.roles()
    assert [(role.number, role.head) for role in roles] == [(call, head) for call in (0, 1) for head in range(4)]
    for role in roles[:4]:
        sizes = recording[0, role.head].weights().abs()[0]
        shares = sizes / sizes.sum(-1, keepdim=True)
        assert role.scores["previous token"] == pytest.approx(float(shares.diagonal(-1).mean()), abs=1e-5)
        assert role.scores["first token"] == pytest.approx(float(shares[1:, 0].mean()), abs=1e-5)
        copies = sum(shares.diagonal(-distance).sum() for distance in (12, 24))
        assert role.repetition["duplicate token"].share == pytest.approx(float(copies) / 24, abs=1e-5)
    with torch.no_grad(), overt.lens.record(made, key_tokens=words, keep="summary") as summaries:
        made(ids)
    for one, other in zip(roles, summaries.roles(), strict=True):
        assert (one.role, one.scores) == (other.role, pytest.approx(other.scores, abs=1e-5))
    recording.save(tmp_path / "roles.safetensors")
    assert overt.lens.load(tmp_path / "roles.safetensors").roles() == roles
    monkeypatch.setattr("overt.lens.recorded_calls.mixer_shares", None)
    assert recording.roles() == roles


def test_steps_of_generation_have_roles_too():
    ids, made = tokens(2, 9), model("Qwen3Next")
    with torch.no_grad(), overt.lens.record(made) as recording:
        cache = made(ids[:, :6], use_cache=True).past_key_values
        made(ids[:, 6:], past_key_values=cache)
    (step,) = mixers(recording.passes[1])
    sizes = step.recurrence.weights().abs()  # (B, H, 3, 9)
    previous = (sizes / sizes.sum(-1, keepdim=True)).diagonal(5, -2, -1).mean((0, 2))
    scores = [role.scores["previous token"] for role in recording.passes[1].roles() if role.number == step.number]
    assert scores == pytest.approx(previous.tolist(), abs=1e-5)


@pytest.mark.parametrize("family", [*GATED, "RecurrentGemma"])
def test_the_convolution_before_it_is_named_and_is_no_layer_of_its_own(family):
    recording, _ = recorded(model(family), tokens(1, 9))
    assert all("a convolution over 4 positions mixes neighbours before it" in call.around for call in mixers(recording))
    assert "covers all token-mixing layers" in str(recording.verify())


@pytest.mark.parametrize("family", ["Qwen3Next", "MiniMax", *LATER])
def test_a_step_of_generation_has_the_keys_since_the_beginning(family):
    made, ids = model(family), tokens(2, 9)
    with torch.no_grad(), overt.lens.record(made) as recording:
        written = made.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    assert missing(recording) == []
    whole, _ = recorded(made, written[:, :-1])
    for call, full in zip(mixers(recording.passes[-1]), mixers(whole), strict=True):
        assert (call.queries, call.keys, call.notes) == (1, 12, ())
        assert apart(call.recurrence.weights(), full.recurrence.weights([11])) < 1e-4
    assert recording.verify().holds


def test_several_positions_after_a_state_go_on_with_it():
    made, ids = model("Qwen3Next"), tokens(2, 12)
    with torch.no_grad(), overt.lens.record(made) as recording:
        before = made(ids[:, :7], use_cache=True)
        made(ids[:, 7:], past_key_values=before.past_key_values)
    assert [(call.queries, call.keys) for one in recording.passes for call in mixers(one)] == [(7, 7), (5, 12)]
    assert [(call.queries, call.keys) for call in mixers(recording)] == [(12, 12)]
    assert recording.verify().holds


@pytest.mark.slow
def test_each_beam_goes_on_with_the_positions_of_the_beam_that_it_was():
    made, ids = model("Qwen3Next"), tokens(2, 6)
    with torch.no_grad(), overt.lens.record(made) as recording:
        made.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False, num_beams=3)
    assert recording.verify().holds
    assert [[call.keys for call in mixers(one)] for one in recording.passes] == [[6], [7], [8], [9]]
    assert all(call.recurrence.start is None for call in mixers(recording))


def test_a_state_of_tokens_from_before_the_recording_is_kept_and_said():
    made, ids = model("Qwen3Next"), tokens(2, 6)
    with torch.no_grad():
        before = made(ids, use_cache=True)
        with overt.lens.record(made) as recording:
            made(ids[:, :1], past_key_values=before.past_key_values)
    assert recording.verify().holds
    for call in mixers(recording):
        assert call.recurrence.start is not None
        assert any("before this recording" in note for note in call.notes)


@pytest.mark.parametrize("family", ["Qwen3Next", "KimiLinear", "MiniMax", *SLOW])
def test_padding_has_no_weight(family):
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[1, :4] = 0
    recording, _ = recorded(model(family), tokens(2, 11), attention_mask=mask)
    assert recording.missing == []
    assert recording.verify().holds
    for call in mixers(recording):
        weights = call.recurrence.weights()
        assert not weights[1, :, :, :4].any()
        assert weights[0, :, :, :4].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "family",
    ["Qwen3Next", "Rwkv", *(pytest.param(name, marks=pytest.mark.slow) for name in QUICK if name not in ("Qwen3Next", "Rwkv"))],
)
def test_in_half_precision_it_holds_within_its_rounding(family, dtype):
    recording, _ = recorded(copy.deepcopy(model(family)).to(dtype), tokens(2, 20))
    assert missing(recording) == []
    assert recording.verify().holds


def test_in_training_with_gradient_checkpointing_each_layer_is_recorded_once():
    made, ids = copy.deepcopy(model("Qwen3Next")).train(), tokens(2, 9)
    made.activation_checkpointing_enable()

    def gradients(run):
        made.zero_grad()
        run(ids, labels=ids).loss.backward()
        return [parameter.grad for parameter in made.parameters() if parameter.grad is not None]

    plain = gradients(made)
    with overt.lens.record(made) as recording:
        same = gradients(made)
    assert all(map(torch.equal, plain, same))
    assert len(mixers(recording)) == 1
    assert recording.missing == []


def test_a_function_that_does_something_else_under_the_name_is_listed():
    original = modeling_qwen3_next.torch_chunk_gated_delta_rule

    def torch_chunk_gated_delta_rule(query, key, value, g, beta, **options):
        return original(query, key, value, g=g, beta=beta * 1.01, **options)

    with mock.patch.object(modeling_qwen3_next, "torch_chunk_gated_delta_rule", torch_chunk_gated_delta_rule):
        recording, _ = recorded(model("Qwen3Next"), tokens(2, 9))
    assert mixers(recording) == []
    assert len([reason for _, reason in recording.missing if "is not the gated delta rule of its arguments" in reason]) == 1


def test_one_that_differs_later_is_seen_by_verify():
    original = modeling_qwen3_next.torch_chunk_gated_delta_rule

    def torch_chunk_gated_delta_rule(query, key, value, g, beta, **options):
        beta = beta.clone()
        beta[:, 30:] *= 1.01
        return original(query, key, value, g=g, beta=beta, **options)

    with mock.patch.object(modeling_qwen3_next, "torch_chunk_gated_delta_rule", torch_chunk_gated_delta_rule):
        recording, _ = recorded(model("Qwen3Next"), tokens(2, 40))
    assert not recording.verify().holds


def test_a_mixer_that_runs_where_no_function_can_be_observed_is_listed():
    made = copy.deepcopy(model("Qwen3Next"))
    forward = modeling_qwen3_next.Qwen3NextGatedDeltaNet.forward.__wrapped__
    hidden = type(forward)(forward.__code__, dict(forward.__globals__), "forward", None, forward.__closure__)
    mixer = made.model.layers[0].linear_attn
    mixer.forward = partial(hidden, mixer)
    with torch.no_grad(), overt.lens.record(made) as recording:
        made(tokens(2, 9))
    assert mixers(recording) == []
    assert {layer for layer, _ in recording.missing} == {"model.layers.0.linear_attn"}


def test_afterwards_the_code_of_the_models_is_as_before():
    made = model("MiniMax")
    kind = next(type(module) for module in made.modules() if "Lightning" in type(module).__name__)
    functions = kind.forward, modeling_qwen3_next.torch_chunk_gated_delta_rule
    recorded(made, tokens(1, 5))
    recorded(model("Qwen3Next"), tokens(1, 5))
    assert (kind.forward, modeling_qwen3_next.torch_chunk_gated_delta_rule) == functions
