"""CrossAttention: a decoder's states ask an encoder's."""

import copy

import pytest
import torch

import overt
from overt.errors import InputError, KindError
from overt.layers import CrossAttention, Prepared

NAMES = ["additive", "concat", "general", "dot", "cosine", "gaussian"]
DECODER, ENCODER = 5, 4


def layer(name="additive", **options):
    torch.manual_seed(0)
    return CrossAttention(DECODER, ENCODER, name, **options).double()


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_it_scores_a_decoder_state_against_each_encoder_state_with_a_small_layer():
    attention, s, h = layer(), normal(DECODER), normal(7, ENCODER, seed=2)
    w, u, v = attention.scoring.query.weight, attention.scoring.key.weight, attention.scoring.weight
    scores = torch.stack([v @ torch.tanh(w @ s + u @ state) for state in h])
    torch.testing.assert_close(attention(s, h), scores.softmax(0) @ h)
    torch.testing.assert_close(attention.weights(s, h), scores.softmax(0))


@pytest.mark.parametrize("name", NAMES)
def test_a_step_at_a_time_gives_what_the_whole_pass_gives(name):
    attention, queries, states = layer(name), normal(3, 6, DECODER), normal(3, 7, ENCODER, seed=2)
    lengths = torch.tensor([7, 2, 0])
    whole = attention(queries, states, lengths=lengths)
    prepared = attention.prepare(states, lengths=lengths)
    steps = torch.stack([attention(queries[:, i], prepared) for i in range(6)], dim=1)
    assert whole.shape == (3, 6, ENCODER)
    torch.testing.assert_close(steps, whole, rtol=1e-12, atol=1e-12)


def test_prepared_states_are_projected_once():
    attention, states = layer(), normal(3, 7, ENCODER)
    prepared, observed = attention.prepare(states), []
    assert isinstance(prepared, Prepared)
    attention.scoring.key.register_forward_hook(lambda *call: observed.append(call))
    for _ in range(4):
        attention(normal(3, DECODER), prepared)
    assert not observed


@pytest.mark.parametrize("name", ["additive", "concat", "general", "cosine", "gaussian"])
def test_a_context_is_a_mixture_of_the_encoders_states(name):
    attention, queries, states = layer(name), normal(3, 6, DECODER), normal(3, 7, ENCODER, seed=2)
    torch.testing.assert_close(attention(queries, states), attention.weights(queries, states) @ states)


def test_dot_has_a_value_matrix_as_the_transformer_does():
    attention, queries, states = layer("dot"), normal(6, DECODER), normal(7, ENCODER, seed=2)
    q, k, v = attention.scoring.query(queries), attention.scoring.key(states), attention.value(states)
    torch.testing.assert_close(attention(queries, states), (q @ k.T / ENCODER**0.5).softmax(-1) @ v)
    assert layer("dot", project_values=False).value is None


def test_weights_have_one_row_for_a_step_and_one_a_query_for_a_pass():
    attention, states = layer(), normal(3, 7, ENCODER)
    assert attention.weights(normal(3, DECODER), states).shape == (3, 7)
    assert attention.weights(normal(3, 6, DECODER), states).shape == (3, 6, 7)
    assert attention.steps(normal(3, DECODER), states).scores.shape == (3, 1, 7)


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_masked_states_reach_nothing_whatever_they_hold(name):
    attention, queries, states = layer(name), normal(2, 3, DECODER), normal(2, 5, ENCODER, seed=2)
    lengths = torch.tensor([5, 2])
    visible = torch.arange(5) < lengths[:, None]
    gradients, outputs = [], []
    for filling in (0.0, torch.nan):
        for text in ({"lengths": lengths}, {"mask": overt.masks.from_padding(~visible)}, {"mask": visible[:, None, :]}):
            attention.zero_grad()
            output = attention(queries, torch.where(visible[..., None], states, filling), **text)
            output.square().sum().backward()
            outputs.append(output)
            gradients.append([parameter.grad for parameter in attention.parameters()])
    for output, gradient in zip(outputs, gradients, strict=True):
        torch.testing.assert_close(output, outputs[0])
        torch.testing.assert_close(gradient, gradients[0])
    torch.testing.assert_close(outputs[0][1], attention(queries[1], states[1, :2]))


def test_a_sequence_of_length_0_gives_zeros_and_no_gradient():
    attention, states = layer(), normal(2, 5, ENCODER).requires_grad_()
    output = attention(normal(2, DECODER), states, lengths=torch.tensor([5, 0]))
    output.sum().backward()
    assert not output[1].any()
    assert not states.grad[1].any()
    assert states.grad[0].any()


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(name):
    attention, parameters = layer(name), dict(layer(name).named_parameters())

    def run(query, states, *values):
        return torch.func.functional_call(attention, dict(zip(parameters, values, strict=True)), (query, states))

    inputs = normal(2, DECODER).requires_grad_(), normal(2, 3, ENCODER, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(run, (*inputs, *parameters.values()))


def test_a_state_dict_round_trip_and_a_deep_copy_give_the_same():
    attention, query, states = layer(), normal(2, DECODER), normal(2, 3, ENCODER, seed=2)
    restored = CrossAttention(DECODER, ENCODER).double()
    restored.load_state_dict(attention.state_dict())
    assert torch.equal(restored(query, states), attention(query, states))
    assert torch.equal(copy.deepcopy(attention)(query, states), attention(query, states))


def test_half_precision_and_autocast_stay_near_float32():
    attention, query, states = layer().float(), normal(2, DECODER).float(), normal(2, 3, ENCODER, seed=2).float()
    wanted = attention(query, states)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        prepared = attention.prepare(states)
        under = attention(query, prepared)
    low = attention.bfloat16()(query.bfloat16(), states.bfloat16())
    for result in (under, low):
        torch.testing.assert_close(result.float(), wanted, rtol=2e-2, atol=2e-2)


def test_it_prints_what_it_is():
    assert "CrossAttention(\n  5, 4, score='additive'" in repr(layer())


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: CrossAttention(5, 4, "dot", projections=False),
            InputError,
            "query_features equal to key_features where no projections",
        ),
        (lambda: layer()(normal(2, 4), normal(2, 3, 4)), InputError, r"features = 5, got query \(2, 4\)"),
        (lambda: layer()(normal(2, 5), normal(2, 3, 5)), InputError, r"features = 4, got states \(2, 3, 5\)"),
        (lambda: layer()(normal(2, 5), normal(2, 3, 4).long()), KindError, "states of .* as floating-point"),
        (lambda: layer()(normal(3, 5), normal(2, 3, 4)), InputError, "leading dimensions to be equal or 1"),
        (
            lambda: layer()(normal(2, 5), layer().prepare(normal(2, 3, 4)), lengths=[1, 2]),
            InputError,
            "prepared states alone, since they have their lengths",
        ),
        (lambda: layer()(normal(2, 5), normal(2, 3, 4), mask=torch.ones(2, 1, 4).bool()), InputError, "mask to broadcast"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_fix(make, kind, message):
    with pytest.raises(kind, match=message) as caught:
        make()
    assert "Fix:" in str(caught.value)
