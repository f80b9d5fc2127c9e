import copy

import pytest
import torch
from torch import nn

import overt
from overt.attention import mechanism
from overt.errors import InputError, KindError
from overt.lens import ablate, without_heads
from overt.lens.analysis.ablation import relative_change
from readable import HEADS, KINDS, WIDTH, Custom, alike, output_matrix, recorded, sequence, stack

SIZE = WIDTH // HEADS


def without(model, head):
    """The model with the head's columns of its last output matrix set to zero."""
    other = copy.deepcopy(model)
    output_matrix(other).weight.data[:, head * SIZE : (head + 1) * SIZE] = 0
    return other


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_taken_out_is_a_head_that_nothing_reads(kind):
    model, x = stack(kind), sequence()
    with torch.no_grad():
        with without_heads(model, [(2, 1)]):
            result = model(x)
        alike(result, without(model, 1)(x))


@pytest.mark.parametrize("kind", KINDS)
def test_afterwards_the_model_is_as_before(kind):
    model, x = stack(kind), sequence()
    with torch.no_grad():
        before, state = model(x), copy.deepcopy(model.state_dict())
        ablate(model, lambda: model(x), [(0, 0), (1, 3)])
        assert torch.equal(model(x), before)
    assert all(torch.equal(weight, state[name]) for name, weight in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert mechanism.observers.get() == ()


def test_it_is_as_before_after_a_run_that_fails_too():
    model, x = stack(), sequence()
    with torch.no_grad():
        before = model(x)
        with pytest.raises(RuntimeError), without_heads(model, [(0, 0)]):
            model(x[..., :3])
        assert torch.equal(model(x), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_uniform_head_gives_the_mean_of_its_values(kind):
    model, x = stack(kind, layers=1), sequence()
    recording = recorded(model, x)
    mixed = torch.stack([recording[0, head].output for head in range(HEADS)], dim=2)  # (B, N, H, E)
    mixed[:, :, 2] = recording[0, 2].value.mean(1, keepdim=True)
    with torch.no_grad():
        with without_heads(model, [(0, 2)], instead="uniform"):
            result = model(x)
        alike(result, x + output_matrix(model)(mixed.flatten(2)))


def test_uniform_weights_keep_to_what_the_mask_allows():
    model, x = stack(layers=1, causal=True), sequence()
    value = recorded(model, x)[0, 0].value
    expected = value.cumsum(1) / torch.arange(1, 8)[:, None]
    with torch.no_grad(), without_heads(model, [(0, 0)], instead="uniform"):
        result = recorded_output(model, x)
    alike(result, expected)


def recorded_output(model, x):
    with overt.lens.record(model) as recording:
        model(x)
    return recording[0, 0].output


def test_a_float_mask_bars_uniform_weights_too():
    class Masked(nn.Module):
        def forward(self, x):
            barred = torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), torch.finfo(torch.float32).min)
            return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=barred + 0.1 * torch.arange(5))

    model, x = Masked(), torch.randn(1, 2, 5, 4)
    with without_heads(model, [(0, 1)], instead="uniform"):
        result = model(x)
    alike(result[:, 1], x[:, 1].cumsum(1) / torch.arange(1, 6)[:, None])


def test_the_effect_is_the_relative_distance_of_the_outputs():
    model, x = stack(), sequence()
    with torch.no_grad():
        before, after = model(x), without(model, 1)(x)
    result = ablate(model, lambda: model(x), [(2, 1)])
    assert result.effect == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-4)
    assert torch.equal(result.before, before)
    assert not result.after.requires_grad


def test_the_effect_is_measured_as_the_caller_says():
    model, x = stack(), sequence()
    result = ablate(
        model, lambda: model(x), [(2, 1)], measure=lambda before, after: (before[0, 0, 0] - after[0, 0, 0]).abs().item()
    )
    assert result.effect == abs(float(result.before[0, 0, 0] - result.after[0, 0, 0])) > 0


def test_a_module_is_named_as_well_as_numbered():
    model, x = stack("nn.MultiheadAttention"), sequence()
    by_name, by_number = (ablate(model, lambda: model(x), [(layer, 1)]) for layer in ("1.attention", 1))
    assert torch.equal(by_name.after, by_number.after)


def test_every_pass_is_without_the_head():
    model, x = stack(), sequence()
    with torch.no_grad(), without_heads(model, [(2, 1)]):
        first, second = model(x), model(x)
    assert torch.equal(first, second)


def test_dropout_draws_the_same_in_both_runs():
    model, x = Custom(), sequence()
    noisy = nn.Sequential(nn.Dropout(0.5), model).train()
    model.attention.output.weight.data[:, :SIZE] = 0  # head 0 is read by nobody
    assert ablate(noisy, lambda: noisy(x), [(0, 0)]).effect == 0


def test_a_recording_inside_says_that_outputs_were_changed():
    model, x = stack(), sequence()
    with torch.no_grad(), without_heads(model, [(1, 0)]), overt.lens.record(model) as recording:
        model(x)
    assert [each.difference <= each.bound for each in recording.verify().calls] == [True, False, True]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_hugging_face_models_head_is_taken_out(implementation):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    )
    model = transformers.LlamaModel._from_config(config, attn_implementation=implementation).eval()
    ids, other = torch.arange(6)[None], copy.deepcopy(model)
    other.layers[1].self_attn.o_proj.weight.data[:, 16:24] = 0
    with torch.no_grad():
        with without_heads(model, [(1, 2)]):
            result, step = model(ids).last_hidden_state, model(ids[:, :1]).last_hidden_state
        alike(result, other(ids).last_hidden_state)
        alike(step, other(ids[:, :1]).last_hidden_state)  # one query: heads of a group come as rows of their key head


def test_a_head_that_is_not_there_is_refused():
    model, x = stack(), sequence()
    with pytest.raises(InputError, match=r"heads of calls that the model makes .* got scale 0 of L3H0 and 1 pass without it"):
        ablate(model, lambda: model(x), [(3, 0)])
    with pytest.raises(InputError, match=r"heads from 0 to 3 of 1, got heads=\[4\]"):
        ablate(model, lambda: model(x), [(1, 4)])


def test_a_run_of_another_model_is_refused():
    model, x = stack(), sequence()
    with pytest.raises(InputError, match="and a model that did not run"):
        ablate(model, lambda: stack()(x), [(0, 0)])


def test_attention_that_cannot_be_followed_is_refused_with_its_reason():
    class Averaged(nn.Module):
        def forward(self, x):
            weights = (x @ x.mT).softmax(-1)
            return (weights[..., None] * x[:, None]).mean(-2)

    model, x = Averaged(), torch.randn(2, 5, 4)
    with pytest.raises(
        InputError, match=r"Averaged: softmax and product with the values are written out in an order that is not"
    ):
        ablate(model, lambda: model(x), [(0, 0)])


def test_gradients_are_refused():
    model, x = stack(), sequence()
    with without_heads(model, [(0, 0)]):
        assert not model(x).requires_grad
        with torch.enable_grad(), pytest.raises(InputError, match="a run without gradients.* got 0 under autograd"):
            model(x)


@pytest.mark.parametrize("heads", [[], "0", [0], [(0,)], [(0, "1")]])
def test_heads_that_are_no_pairs_are_refused(heads):
    with pytest.raises(KindError, match=r"heads as pairs \(layer, head\), at least one"):
        ablate(stack(), lambda: None, heads)


def test_another_replacement_is_refused():
    with pytest.raises(InputError, match='instead="zero" or instead="uniform", got instead=\'mean\''):
        ablate(stack(), lambda: None, [(0, 0)], instead="mean")


def test_a_run_that_returns_nothing_has_no_effect_to_measure():
    model, x = stack(), sequence()
    with pytest.raises(InputError, match="a run that returns the model's output, to measure the effect, got no tensor"):
        ablate(model, lambda: [model(x)].clear(), [(0, 0)])


def test_an_output_of_zeros_that_moves_has_moved_without_bound():
    assert relative_change(torch.zeros(2), torch.ones(2)) == float("inf")
    assert relative_change(torch.zeros(2), torch.zeros(2)) == 0


def test_a_recording_around_has_what_the_heads_gave_before():
    model, x = stack(), sequence()
    with torch.no_grad(), overt.lens.record(model) as recording, without_heads(model, [(1, 0)]):
        result = model(x)
    assert recording.verify().holds
    alike(recording[1, 0].output, recorded(model, x)[1, 0].output)
    assert not torch.allclose(result, model(x))


def test_an_ablation_prints_its_effect_and_not_its_outputs():
    model, x = stack(), sequence()
    ablation = ablate(model, lambda: model(x), [(0, 0)])
    assert repr(ablation) == f'Ablation(effect={ablation.effect:.3g}, 1 head, "zero")'
    both = ablate(model, lambda: model(x), [(0, 0), (1, 3)], instead="uniform", measure=lambda before, after: {"score": 1})
    assert repr(both) == 'Ablation(effect=dict, 2 heads, "uniform")'
