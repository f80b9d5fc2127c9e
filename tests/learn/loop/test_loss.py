"""The loss over a large vocabulary: the plain formula's value and gradients, in less memory."""

import pytest
import torch
from torch import nn

from overt.errors import InputError
from overt.learn.loop import loss as loss_file
from overt.learn.loop.loss import cross_entropy


def plain(states, output, labels, smoothing):
    """Σ_n −Σ_v q_nv log softmax(z_n)_v, written out."""
    logarithms = output(states).log_softmax(-1)
    wanted = torch.full_like(logarithms, smoothing / logarithms.shape[1])
    wanted[torch.arange(len(labels)), labels] += 1 - smoothing
    return -(wanted * logarithms).sum()


def gradients(loss, states, output, labels, smoothing):
    states = states.clone().requires_grad_()
    output.zero_grad()
    value = loss(states, output, labels, smoothing)
    (3 * value).backward()
    return [value.detach(), states.grad, *(parameter.grad.clone() for parameter in output.parameters())]


def loss_inputs(rows=37, words=50, bias=True, dtype=torch.float64, size=1.0):
    generator = torch.Generator().manual_seed(0)
    output = nn.Linear(8, words, bias=bias, dtype=dtype)
    states = size * torch.randn(rows, 8, generator=generator, dtype=dtype)
    return states, output, torch.randint(words, (rows,), generator=generator)


@pytest.mark.parametrize("block", [1, 8, 10**6])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_value_and_gradients_are_those_of_the_plain_formula(monkeypatch, block, smoothing, bias):
    monkeypatch.setattr(loss_file, "_BLOCK", block * 50)
    states, output, labels = loss_inputs(bias=bias)
    result = gradients(cross_entropy, states, output, labels, smoothing)
    for ours, theirs in zip(result, gradients(plain, states, output, labels, smoothing), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_it_is_torchs_label_smoothing():
    states, output, labels = loss_inputs()
    expected = nn.functional.cross_entropy(output(states), labels, label_smoothing=0.3, reduction="sum")
    torch.testing.assert_close(cross_entropy(states, output, labels, 0.3), expected, rtol=1e-12, atol=0)


def test_single_precision_is_close_to_double():
    states, output, labels = loss_inputs(rows=300, words=1000)
    exact = gradients(plain, states, output, labels, 0.1)
    result = gradients(cross_entropy, states.float(), output.float(), labels, 0.1)
    for ours, theirs in zip(result, exact, strict=True):
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def test_huge_scores_stay_finite():
    result = gradients(cross_entropy, *loss_inputs(size=1e4, dtype=torch.float32), 0.1)
    assert all(each.isfinite().all() for each in result)


def test_no_tokens_lose_nothing():
    states, output, labels = loss_inputs(rows=0)
    value, *others = gradients(cross_entropy, states, output, labels, 0.1)
    assert value == 0
    assert all((each == 0).all() for each in others)


def test_a_tied_matrix_takes_both_gradients():
    states, output, labels = loss_inputs()
    embedding = nn.Embedding(50, 8, _weight=output.weight)
    tokens = labels.flip(0)
    result, expected = ([], [])
    for function, collected in ((cross_entropy, result), (plain, expected)):
        embedding.weight.grad = None
        function(states + embedding(tokens), output, labels, 0.1).backward()
        collected.append(embedding.weight.grad.clone())
    torch.testing.assert_close(result[0], expected[0], rtol=1e-12, atol=1e-12)


def test_under_autocast_products_are_in_its_precision_and_gradients_in_the_weights_own():
    states, output, labels = loss_inputs(rows=300, words=1000)
    exact = gradients(plain, states, output, labels, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        result = gradients(cross_entropy, states.float(), output.float(), labels, 0.1)
    assert [each.dtype for each in result] == [torch.float32] * 4
    for ours, theirs in zip(result, exact, strict=True):
        assert 1e-6 * theirs.abs().max() < (ours - theirs).abs().max() <= 2e-2 * theirs.abs().max()


def test_scores_are_held_for_a_block_of_rows_only(monkeypatch):
    rows, words, largest = 4000, 500, []
    monkeypatch.setattr(loss_file, "_BLOCK", 100 * words)
    states, output, labels = loss_inputs(rows, words)

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            largest.append(result.numel() if isinstance(result, torch.Tensor) else 0)
            return result

    with Watching():
        cross_entropy(states, output, labels, 0.1).backward()
    assert max(largest) == 100 * words


def test_where_no_gradient_is_asked_for_none_is_computed():
    states, output, labels = loss_inputs()
    with torch.no_grad():
        value = cross_entropy(states, output, labels, 0.1)
    assert value == cross_entropy(states, output, labels, 0.1)
    assert not value.requires_grad


def test_labels_that_do_not_fit_are_refused():
    states, output, labels = loss_inputs()
    message = (
        r"one label \(N,\) for each row of states \(N, width\), got states \(37, 8\), labels \(36,\)\. Fix: select the tokens"
    )
    with pytest.raises(InputError, match=message):
        cross_entropy(states, output, labels[1:], 0.1)
