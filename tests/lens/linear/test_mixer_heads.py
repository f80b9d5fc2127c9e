"""A linear mixer in a recording: verified within its bound, its heads answer, and what needs attention is refused by name."""

import numpy as np
import pytest
import torch

import overt
from overt.errors import InputError
from overt.lens.linear import gated_delta_rule
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.verified import recompute_mixer
from toy_mixer import ToyMixer

TOKENS = list("abcdeabcde" * 2)


def recorded(seed=0, batch=2, **options):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(ToyMixer(), ToyMixer())
    x = torch.randn(batch, 20, 12)
    with overt.lens.record(model, key_tokens=TOKENS, **options) as recording:
        output = model(x)
    assert torch.equal(output, model(x))
    return recording, model, x


@pytest.fixture(scope="module")
def recording():
    return recorded()[0]


def test_every_head_answers_from_the_same_weights(recording):
    head = recording[0, 1]
    weights = head.weights()
    assert torch.allclose(weights @ head.value, head.output, atol=1e-5)
    assert torch.allclose(head.received(), weights.mean(1), atol=1e-6)
    shares = weights.abs() / weights.abs().sum(-1, keepdim=True)
    assert torch.allclose(head.entropy(), torch.special.entr(shares).sum(-1), atol=1e-5)
    assert torch.allclose(head.map(4), weights.unflatten(-1, (4, 5)).unflatten(1, (4, 5)).mean((2, 4)), atol=1e-6)
    top = head.top(19, 3)
    assert torch.allclose(top.weights, weights[:, 19].gather(-1, top.keys), atol=1e-6)
    assert torch.allclose(top.weights.abs(), weights[:, 19].abs().topk(3).values, atol=1e-6)
    assert bool((weights < 0).any())
    assert torch.allclose(head.weights(rows=[3, 1], keys=slice(0, 4)), weights[:, [3, 1], :4], atol=1e-6)


def test_the_steps_of_a_row_lead_to_its_weights_and_output(recording):
    head = recording[1, 2]
    steps = head.steps(7)
    assert torch.allclose((steps.key * steps.asking).sum(-1), steps.weights, atol=1e-7)
    assert torch.allclose(steps.output, head.output[:, 7], atol=1e-5)
    assert torch.equal(steps.asking[:, 7], head.query[:, 7])
    assert torch.allclose(steps.decay[:, 7], torch.ones(2, 1))
    assert bool((steps.weights[:, 8:] == 0).all())
    assert bool((steps.decay[:, 8:] == 0).all())


def test_verify_holds_for_the_model_and_not_for_a_decay_that_is_one_percent_off():
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        x = torch.randn(1, 60, 12, dtype=dtype)
        for error, holds in ((0.0, True), (-1e-2 if dtype == torch.float32 else -0.5, False)):
            model = ToyMixer(decay_error=error, dtype=dtype)
            with overt.lens.record(model) as recording:
                model(x)
            assert recording.verify().holds is holds, (dtype, error)


@pytest.mark.parametrize("keys", [40, 300])
@pytest.mark.parametrize("strength", [0.01, 1.0])
def test_an_output_in_single_precision_is_within_the_bound_and_one_of_shifted_decays_is_not(keys, strength):
    torch.manual_seed(0)
    query, value = torch.randn(2, 1, 4, keys, 16)
    key = torch.nn.functional.normalize(torch.randn(1, 4, keys, 16), dim=-1)
    log_decay, beta = -strength * torch.randn(1, 4, keys).abs(), torch.rand(1, 4, keys)
    recurrence = gated_delta_rule(query, key, value, log_decay, beta)

    def compared(output):
        heads = tuple(range(4))
        which = (0, 0, 0, "layer", "test", heads, 4, 1, keys, keys, torch.float32, ())
        return recompute_mixer(CapturedMixer(*which, recurrence, output, heads))

    right = compared(recurrence.output())
    assert 0 < right.difference < right.bound
    shifted = gated_delta_rule(query, key, value, log_decay.roll(1, -1), beta).output()
    for output in (shifted, shifted.bfloat16()):
        wrong = compared(output)
        assert wrong.difference > 3 * wrong.bound
    half = compared(recurrence.output().bfloat16())
    assert half.difference < half.bound


def test_a_summary_has_what_the_heads_say_and_the_same_roles(recording):
    summaries = recorded(keep="summary")[0]
    for one, other in zip(recording.heads(), summaries.heads(), strict=True):
        assert torch.allclose(one.entropy(), other.entropy(), atol=1e-6)
        assert torch.allclose(one.received(), other.received(), atol=1e-6)
        assert torch.allclose(one.map(4), other.map(4), atol=1e-6)
        assert torch.allclose(one.top(9, 3).weights, other.top(9, 3).weights, atol=1e-6)
    assert summaries.roles() == recording.roles()
    assert summaries.verify().holds


def test_a_summary_needs_no_more_memory_for_q_times_k():
    sizes = []
    for length in (80, 160):
        torch.manual_seed(0)
        model = ToyMixer(width=4, heads=1)
        with overt.lens.record(model, keep="summary") as recording:
            model(torch.randn(1, length, 4))
        sizes.append(recording.bytes)
    assert sizes[1] < 2 * sizes[0]


def test_roles_are_those_of_the_sizes_of_the_weights(recording):
    weights = recording[0, 0].weights().abs()
    shares = weights / weights.sum(-1, keepdim=True)
    previous = shares.diagonal(-1, -2, -1)  # rows 1 … 19, each with a choice of keys
    role = recording.roles()[0]
    assert role.scores["previous token"] == pytest.approx(float(previous.mean()), abs=1e-6)


def test_a_saved_mixer_answers_as_before(recording, tmp_path):
    recording.save(tmp_path / "mixer.safetensors")
    loaded = overt.lens.load(tmp_path / "mixer.safetensors")
    assert torch.equal(loaded[1, 2].weights(), recording[1, 2].weights())
    assert loaded.calls[0].around == ("nothing stands before it",)
    assert loaded.verify().holds
    summaries = recorded(keep="summary")[0]
    summaries.save(tmp_path / "summary.safetensors")
    assert overt.lens.load(tmp_path / "summary.safetensors").roles() == summaries.roles()


def test_chosen_layers_and_heads_keep_their_numbers_and_offloading_changes_nothing(recording):
    part = recorded(layers=[1], heads=[2], offload="disk")[0]
    assert [(captured.number, captured.heads) for captured in part.calls] == [(1, (2,))]
    assert torch.equal(part[1, 2].weights(), recording[1, 2].weights())
    assert part.verify().holds


def test_the_table_says_that_weights_are_signed_and_what_stands_around_the_mixing(recording):
    text = str(recording)
    assert "call 0, 1: gated delta rule: weights are signed and do not sum to one; nothing stands before it" in text
    assert "share" not in text
    assert "probabil" not in text


def test_the_page_and_the_figures_show_a_mixer(recording):
    assert "weights are signed and do not sum to one" in recording.page()
    assert "weights are signed and do not sum to one" in recording.page(heads="top 2")
    for figure in ("heads", "entropy"):
        assert recording.plot(figure=figure) is not None


def test_recordings_of_mixers_are_compared_by_the_sizes_of_their_weights_and_by_their_signs():
    one, other = recorded()[0], recorded(seed=1)[0]
    both = [each.head_of(each.calls[1].opened(), 2).weights().double().numpy() for each in (one, other)]
    signed = [np.concatenate([each.clip(min=0), -each.clip(max=0)], axis=-1) for each in both]
    p, q = (each / each.sum(-1, keepdims=True) for each in signed)
    middle = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        far = [np.nansum(np.where(each > 0, each * np.log(each / middle), 0), -1) for each in (p, q)]
    result = overt.lens.compare(one, other).heads[5]
    assert (result.number, result.head) == (1, 2)
    assert result.distance == pytest.approx(float((sum(far) / 2).mean()), rel=1e-5)
    assert all(each.distance == 0 for each in overt.lens.compare(one, one).heads)


def test_what_needs_attention_is_refused_by_name():
    recording, model, _ = recorded(batch=1)
    for call in (overt.lens.rollout, overt.lens.mean_attention):
        with pytest.raises(InputError, match=r"a linear token mixer \(gated delta rule\), whose weights are signed"):
            call(recording)
    with pytest.raises(InputError, match="linear token mixer, whose values are changed before the output matrix"):
        overt.lens.norm_weights(recording, model)[0, 1].lengths()
    with pytest.raises(InputError, match=r"which mixes tokens by a recurrence \(gated delta rule\)"):
        recording[0, 1].call
