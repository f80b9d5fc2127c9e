import numpy as np
import pytest
import torch
from torch import nn

from overt.errors import InputError
from overt.explain.encoded import choose, named
from overt.explain.recipes.hidden_states import FORMULAS, LAYERS, hidden
from overt.explain.recipes.vectors import Vectors

TOKENS = ["sky", "is", "clear", "today"]
VALUES = np.random.default_rng(0).normal(size=(4, 6))


def vectors(tokens=None, values=VALUES):
    return Vectors(named(tokens or TOKENS), values, "rows")


def explained(word="is", **options):
    inputs = vectors()
    return hidden(inputs, choose(inputs.encoded, word), **options)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("score", FORMULAS)
def test_context_is_the_weighted_sum_of_the_states_and_stands_beside_the_state(layer, score):
    result = explained(layer=layer, score=score)
    weights, states = np.array(result.rows[0][0]), np.array([step.value for step in result.steps])
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-6)
    np.testing.assert_allclose(result.output, weights @ states, atol=1e-6)
    assert result.query == result.steps[1].key
    assert result.joined == [*result.query, *result.output]
    assert (len(result.query), len(result.joined)) == (8, 16)


def test_the_note_writes_additive_attention_as_the_paper_does():
    assert "f(h_i, h_j) = v · tanh(W h_i + U h_j)" in explained(score="additive").notes[0]


def test_the_states_are_the_layers_own():
    torch.manual_seed(7)
    layer = nn.GRU(6, 8)
    expected = layer(torch.from_numpy(VALUES).float())[0]
    result = explained(seed=7)
    np.testing.assert_allclose([step.value for step in result.steps], expected.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("score", "formula"),
    [
        ("dot", lambda h, i: h @ h[i]),
        ("cosine", lambda h, i: h @ h[i] / np.linalg.norm(h, axis=1) / np.linalg.norm(h[i])),
    ],
)
def test_scores_without_parameters_follow_their_formula(score, formula):
    result = explained(score=score, layer="linear")
    states = np.array([step.value for step in result.steps])
    np.testing.assert_allclose([step.score for step in result.steps], formula(states, 1), atol=1e-6)


def test_the_same_seed_gives_the_same_numbers_and_leaves_the_callers_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    assert explained(seed=1) == explained(seed=1)
    assert explained(seed=1).output != explained(seed=2).output
    assert torch.equal(torch.rand(2), expected)


def test_the_first_state_may_be_given():
    start = [0.5] * 8
    for layer, kind in (("gru", nn.GRU), ("lstm", nn.LSTM), ("rnn", nn.RNN)):
        torch.manual_seed(0)
        recurrent = kind(6, 8)
        first = torch.tensor([start])
        expected = recurrent(torch.from_numpy(VALUES).float(), (first, torch.zeros(1, 8)) if layer == "lstm" else first)[0]
        result = explained(layer=layer, initial=start)
        np.testing.assert_allclose([step.value for step in result.steps], expected.detach().numpy(), atol=1e-6)
        assert any(note.endswith("h_0 is given.") for note in result.notes)
    assert any(note.endswith("h_0 is zero.") for note in explained().notes)


def test_a_first_state_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="8 numbers for h_0, one for each dimension of the states, got 3 numbers"):
        explained(initial=[0.0] * 3)
    with pytest.raises(InputError, match="a GRU, an LSTM or a plain RNN, which start from a state h_0, got h_0 for a 1-D CNN"):
        explained(layer="conv", initial=[0.0] * 8)


def test_the_untrained_layer_is_labelled_with_its_seed():
    result = explained(layer="lstm", seed=4)
    assert result.source == "LSTM, untrained, seed 4, over rows"
    assert "The LSTM is untrained (seed 4): the steps are real, but the weights carry no meaning." in result.notes


def test_the_states_of_one_sentence_attend_to_those_of_another():
    other = vectors(["a", "b"], VALUES[:2] + 1)
    inputs = vectors()
    result = hidden(inputs, choose(inputs.encoded, "clear"), other=other, score="dot")
    assert result.tokens == ["a", "b"]
    assert np.array(result.matrix).shape == (4, 2)
    np.testing.assert_allclose(
        np.array([step.key for step in result.steps]) @ result.query, [step.score for step in result.steps], atol=1e-6
    )


@pytest.mark.parametrize("score", FORMULAS)
def test_the_loops_equal_the_matrices(score):
    assert explained(score=score, loop=True).loop.difference < 1e-5


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"layer": "mlp"}, "one of gru, lstm, rnn, conv, linear as the layer, got 'mlp'"),
        ({"score": "bilinear"}, "one of additive, dot, general, cosine as the score, got 'bilinear'"),
        ({"normalizer": "max"}, "one of softmax, sum as the normalizer, got 'max'"),
        ({"normalizer": "sum", "loop": True}, "the softmax with the loop form, got sum"),
    ],
)
def test_what_is_not_there_is_refused(option, message):
    with pytest.raises(InputError, match=message):
        explained(**option)
