"""R-Drop: the disagreement of two passes is the plain formula's, and a translator's loss has it."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import kl_div

from overt.errors import InputError
from overt.learn.config.settings import Recipe, Training
from overt.learn.loop import loss as loss_file
from overt.learn.loop.r_drop import disagreement
from overt.learn.tasks.build import build_task
from test_tasks import TRAINING, everything, numbers  # noqa: F401 - a fixture


def plain(states, output):
    p, q = output(states).log_softmax(-1).chunk(2)
    return (kl_div(q, p, log_target=True, reduction="sum") + kl_div(p, q, log_target=True, reduction="sum")) / 2


@pytest.mark.parametrize("block", [1, 8, 10**6])
@pytest.mark.parametrize("bias", [True, False])
def test_value_and_gradients_are_those_of_the_plain_formula(monkeypatch, block, bias):
    monkeypatch.setattr(loss_file, "_BLOCK", block * 50)
    torch.manual_seed(0)
    output, states = nn.Linear(8, 50, bias=bias).double(), torch.randn(74, 8, dtype=torch.float64, requires_grad=True)
    inputs = [states, *output.parameters()]
    values = [each(states, output) for each in (disagreement, plain)]
    torch.testing.assert_close(*values, rtol=1e-12, atol=0)
    for ours, theirs in zip(*(torch.autograd.grad(3 * each, inputs) for each in values), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_translators_loss_is_that_of_two_passes_and_half_their_disagreement(numbers, tmp_path):  # noqa: F811
    recipe = replace(numbers, training=replace(TRAINING, r_drop=5.0), model={**numbers.model, "dropout": 0.3})
    task, model = build_task(recipe, tmp_path / "run")
    batch = everything(task)
    twice = [torch.cat([tensor, tensor]) for tensor in batch]
    torch.manual_seed(0)
    loss, count = task.loss(model, batch)
    torch.manual_seed(0)
    states = model.states(twice[0], twice[2], source_lengths=twice[1], target_lengths=twice[3])[twice[4] != 0]
    labels = batch.labels[batch.labels != 0]
    first, second = (
        nn.functional.cross_entropy(model.output(each), labels, label_smoothing=0.1, reduction="sum")
        for each in states.chunk(2)
    )
    assert count == len(labels)
    assert plain(states, model.output) > 0.1
    torch.testing.assert_close(loss, (first + second + 5 * plain(states, model.output)) / 2)


def test_without_dropout_two_passes_agree(numbers, tmp_path):  # noqa: F811
    losses = []
    for share in (0.0, 5.0):
        recipe = replace(numbers, training=replace(TRAINING, r_drop=share), model={**numbers.model, "dropout": 0.0})
        task, model = build_task(recipe, tmp_path / str(share))
        losses.append(task.loss(model, everything(task)))
    assert losses[0][1] == losses[1][1]
    torch.testing.assert_close(losses[0][0], losses[1][0], rtol=1e-5, atol=1e-4)


def test_a_share_below_zero_and_another_task_are_refused():
    with pytest.raises(InputError, match="r_drop to be a number of at least 0, got -1"):
        Training(r_drop=-1)
    with pytest.raises(InputError, match="r_drop only for translation, got task 'tag'"):
        Recipe(task="tag", training=Training(r_drop=1))
