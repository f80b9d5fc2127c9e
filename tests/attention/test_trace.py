"""Steps: every intermediate is there, means what it says, and prints as the step table."""

import pytest
import torch

import overt
from overt.attention import trace
from overt.errors import InputError


def test_steps_hold_the_four_intermediates_of_the_formula():
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    allowed, bias = torch.rand(3, 5) < 0.7, torch.randn(3, 5)
    allowed[:, 0] = True
    steps = overt.steps(query, key, value, score=overt.Dot(scale=0.3, softcap=2.0), mask=allowed, bias=bias)
    scores = 2 * torch.tanh(query @ key.mT * 0.3 / 2)
    torch.testing.assert_close(steps.scores, scores)
    torch.testing.assert_close(steps.masked, (scores + bias).masked_fill(~allowed, -torch.inf))
    torch.testing.assert_close(steps.weights, torch.softmax(steps.masked, -1))
    torch.testing.assert_close(steps.output, steps.weights @ value)


def test_weights_are_those_before_dropout():
    x = torch.randn(4, 3)
    torch.testing.assert_close(overt.steps(x, x, x, dropout=0.9).weights, overt.steps(x, x, x).weights)


def test_steps_can_be_differentiated_in_every_intermediate():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: overt.steps(x, x, x, mask=overt.Causal()).weights, x)


def test_the_table_says_each_pair_a_line_and_the_rest_in_words():
    x = torch.randn(2, 3, 9, 4)
    lines = str(overt.steps(x, x, x)).splitlines()
    assert lines[0] == "scores, masked, weights (2, 3, 9, 9), output (2, 3, 9, 4); the first of 6:"
    assert lines[1].split() == ["query", "key", "score", "masked", "weight", "output"]
    assert lines[-1] == "… and 57 more pairs"
    assert repr(overt.steps(x, x, x)) == str(overt.steps(x, x, x))


def test_an_empty_call_prints_as_such():
    assert str(overt.steps(torch.zeros(0, 3), torch.zeros(2, 3), torch.zeros(2, 3))).endswith("(empty)")


def test_the_loop_gives_zeros_where_nothing_may_be_attended_to():
    x = torch.randn(3, 2)
    mask = torch.tensor([[True, False, False], [False, False, False], [True, True, True]])
    torch.testing.assert_close(trace.loop(x, x, x, mask=mask), overt.attend(x, x, x, mask=mask))
    assert (trace.loop(x, x, x, mask=mask)[1] == 0).all()


def test_the_loop_takes_one_sequence_and_says_so():
    x = torch.randn(1, 3, 2)
    with pytest.raises(
        InputError, match=r"one sequence and one head, \(length, features\), in the loop form, got query \(1, 3, 2\)"
    ):
        trace.loop(x, x, x)
