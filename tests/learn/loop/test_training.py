"""The training loop on one process: what it learns, what it keeps, and what it says when something goes wrong."""

import io
import json
import math
import shutil
from itertools import chain

import pytest
import torch
from rich.console import Console
from torch import nn

from counting import Counting, Model
from overt.errors import InputError
from overt.learn import Training, train
from overt.learn.loop import optimizer_step
from overt.learn.loop.distributed import Processes
from overt.learn.loop.gradient import FlatGradient
from overt.learn.loop.optimizer_step import OptimizerStep
from overt.learn.run import checkpoint as checkpoints
from overt.learn.run.log import TrainingLog, read_log

QUICK = {"updates": 12, "learning_rate": 0.01, "warmup": 4, "evaluate_every": 4, "checkpoint_every": 4}


def trained(folder, task=None, model=None, console=None, **changes):
    torch.manual_seed(0)
    model = Model() if model is None else model
    return model, train(model, task or Counting(), Training(**{**QUICK, **changes}), folder, console=console)


def losses(folder):
    return [entry["loss"] for entry in read_log(folder / "log.jsonl") if "loss" in entry]


def test_it_learns(tmp_path):
    _, result = trained(tmp_path, updates=150, warmup=10, evaluate_every=50, checkpoint_every=50)
    assert result.measures == {"accuracy": 1.0}
    assert losses(tmp_path)[-1] < 0.2 * losses(tmp_path)[0]


def by_hand(settings, batches):
    """The same training as plain PyTorch: mean loss of all the rows, clip_grad_norm_, AdamW."""
    torch.manual_seed(0)
    model, task, observed = Model(), Counting(), []
    decayed = [each for each in model.parameters() if each.ndim > 1]
    others = [each for each in model.parameters() if each.ndim == 1]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=settings.betas, fused=False, foreach=False)
    for number, rows in enumerate(batches, start=1):
        rate = settings.learning_rate * min(number / settings.warmup, math.sqrt(settings.warmup / number))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        batch = task.batch(rows)
        scores, labels = model(batch[:, :-1]), batch[:, 1:]
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=0)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        observed.append(loss.item())
    return model, observed


@pytest.mark.parametrize("accumulate", [1, 3])
def test_an_update_is_adamw_on_the_mean_loss_of_all_its_batches(tmp_path, accumulate):
    settings = Training(**QUICK, weight_decay=0.1, clip=0.2, accumulate=accumulate)
    queue = [batch for epoch in range(9) for batch in Counting().batches(epoch)]
    large = [[*chain(*queue[start : start + accumulate])] for start in range(0, 12 * accumulate, accumulate)]
    expected, observed = by_hand(settings, large)
    trained(tmp_path, weight_decay=0.1, clip=0.2, accumulate=accumulate)
    saved = checkpoints.read(tmp_path / "checkpoints" / "000012").model
    for name, tensor in saved.items():
        torch.testing.assert_close(tensor, expected.state_dict()[name], rtol=1e-4, atol=1e-6)
    assert losses(tmp_path) == pytest.approx(observed, rel=1e-5)


def test_a_gradient_is_clipped_where_it_is_longer_than_the_limit_and_left_where_it_is_shorter():
    for length, limit, expected in ((10.0, 4.0, 4.0), (3.0, 4.0, 3.0), (10.0, None, 10.0)):
        gradient = FlatGradient(nn.Linear(2, 2))
        gradient.vector.fill_(2 * length / 6**0.5)
        assert gradient.divide_and_clip(2.0, limit).item() == pytest.approx(length)
        assert gradient.vector.norm().item() == pytest.approx(expected, rel=1e-5)


def test_a_batch_in_which_nothing_counts_is_no_error_and_has_no_gradient():
    class Uncounted(Counting):
        def loss(self, model, batch):
            return 0 * super().loss(model, batch)[0], 0

    statistics = OptimizerStep(Model(), Uncounted(), Training(), Processes())(1, [[0, 1]])
    assert (statistics.loss, statistics.gradient, statistics.count) == (0, 0, 0)


def test_the_gradient_of_a_batch_in_which_one_label_counts_is_that_of_its_loss():
    class One(Counting):
        def loss(self, model, batch):
            return super().loss(model, batch)[0], 1

    model, task = Model(), One()
    loss, _ = task.loss(model, task.batch([0, 1]))
    expected = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))]).norm()
    statistics = OptimizerStep(model, task, Training(), Processes())(1, [[0, 1]])
    assert statistics.gradient == pytest.approx(expected.item(), rel=1e-5)


def test_the_scale_of_a_float16_loss_doubles_after_steady_updates(monkeypatch):
    monkeypatch.setattr(optimizer_step, "_GROWTH_INTERVAL", 2)
    for precision, scales in (("float16", [256, 512, 512, 1024]), ("bfloat16", [1] * 4)):
        step = OptimizerStep(Model(), Counting(), Training(precision=precision), Processes())
        assert [(step(update, [[0, 1]]), step.scale)[1] for update in range(1, 5)] == scales


def test_the_log_has_a_line_for_each_update_and_evaluation(tmp_path):
    trained(tmp_path)
    entries = read_log(tmp_path / "log.jsonl")
    updates = [entry for entry in entries if "loss" in entry]
    assert [entry["update"] for entry in updates] == list(range(1, 13))
    assert set(updates[0]) == {"update", "loss", "gradient", "count", "learning_rate", "tokens_per_second", "seconds"}
    assert [entry["update"] for entry in entries if "validation" in entry] == [4, 8, 12]
    assert entries[-1]["finished"].keys() == {"accuracy"}


class Scored(Counting):
    """A task whose validation measure is given beforehand."""

    def __init__(self, *scores):
        super().__init__()
        self.scores = list(scores)

    def evaluate(self, model):
        return {"accuracy": self.scores.pop(0) if self.scores else 0.0}


def test_the_finished_model_is_the_best_one(tmp_path):
    model, result = trained(tmp_path, Scored(0.25, 0.5, 0.125), keep=1)
    best = checkpoints.read(tmp_path / "checkpoints" / "000008").model
    assert (result.state.best, result.state.best_update) == (0.5, 8)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in best.items())
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path / "checkpoints")] == ["000008", "000012"]


def test_the_best_is_kept_where_no_checkpoint_was_due(tmp_path):
    _, result = trained(tmp_path, Scored(0.25, 0.5, 0.125), evaluate_every=3, checkpoint_every=100)
    assert result.state.best_update == 6
    assert (tmp_path / "checkpoints" / "000006").exists()


def test_the_finished_model_is_the_average_of_the_last_checkpoints_where_that_is_asked_for(tmp_path):
    model, _ = trained(tmp_path, average=2)
    saved = [checkpoints.read(tmp_path / "checkpoints" / name).model for name in ("000008", "000012")]
    for name, tensor in saved[0].items():
        torch.testing.assert_close(model.state_dict()[name], (tensor + saved[1][name]) / 2)


def test_training_stops_early_when_patience_is_out(tmp_path):
    _, result = trained(tmp_path, Scored(0.5, 0.25, 0.25, 0.75), updates=100, patience=2)
    assert (result.state.update, result.stopped_early) == (12, True)
    assert result.state.best_update == 4


def test_without_patience_training_goes_on(tmp_path):
    _, result = trained(tmp_path, Scored(0.5, 0.25, 0.25, 0.25), updates=16)
    assert (result.state.update, result.stopped_early) == (16, False)


class Perplexed(Scored):
    """A task that measures its perplexity too, one for each score."""

    def __init__(self, perplexities, scores):
        super().__init__(*scores)
        self.perplexities = list(perplexities)

    def evaluate(self, model):
        return {**super().evaluate(model), "perplexity": self.perplexities.pop(0) if self.perplexities else 1.0}


@pytest.mark.parametrize(
    ("perplexities", "scores", "best"),
    [
        ((90.0, 60.0, 70.0), (0.0, 0.0, 0.0), (0.0, 8, 60.0)),
        ((90.0, 60.0, 70.0), (0.0, 0.0, 0.5), (0.5, 12, 70.0)),
        ((90.0, 60.0, 40.0), (0.5, 0.25, 0.5), (0.5, 12, 40.0)),
        ((90.0, math.nan, math.inf), (0.0, 0.0, 0.0), (0.0, 4, 90.0)),
        ((), (0.25, 0.25, 0.25), (0.25, 4, 1.0)),
    ],
    ids=["equal", "the measure comes first", "a later tie", "not finite", "all equal"],
)
def test_of_equal_evaluations_the_one_of_lower_perplexity_is_the_best(tmp_path, perplexities, scores, best):
    _, result = trained(tmp_path, Perplexed(perplexities, scores))
    assert (result.state.best, result.state.best_update, result.state.best_perplexity) == best


def test_a_falling_perplexity_is_an_improvement_to_patience_while_the_measure_is_0(tmp_path):
    _, result = trained(tmp_path, Perplexed((90.0, 60.0, 40.0, 30.0), (0.0,) * 4), updates=16, patience=1)
    assert (result.state.update, result.stopped_early) == (16, False)


def test_a_checkpoint_without_a_perplexity_is_resumed(tmp_path):
    trained(tmp_path, Perplexed((90.0,), (0.5,)), updates=4)
    [path] = [each for each in checkpoints.list_checkpoints(tmp_path / "checkpoints") if each.name == "000004"]
    saved = checkpoints.read(path)
    state = {name: saved.state[name] for name in saved.state if name not in {"best_perplexity", "format", "sha256"}}
    shutil.rmtree(path)
    checkpoints.write(tmp_path / "checkpoints", 4, checkpoints.Checkpoint(saved.model, saved.optimizer, state))
    _, result = trained(tmp_path, Perplexed((60.0,), (0.5,)), updates=8)
    assert (result.state.best, result.state.best_update) == (0.5, 4)


class Broken(Counting):
    """A task whose loss is something else from one update on."""

    def __init__(self, at, harm):
        super().__init__()
        self.left, self.harm = at, harm

    def loss(self, model, batch):
        self.left -= 1
        total, count = super().loss(model, batch)
        return (self.harm(total) if self.left <= 0 else total), count


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_loss_that_is_not_finite_is_said_with_its_update_and_the_weights_are_untouched(tmp_path, value):
    message = rf"a finite loss at every update, got {value} at update 7\. Fix: lower training\.learning_rate"
    torch.manual_seed(0)
    model = Model()
    with pytest.raises(InputError, match=message):
        train(model, Broken(7, lambda loss: loss * float(value)), Training(**QUICK), tmp_path)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert checkpoints.read(checkpoints.list_checkpoints(tmp_path / "checkpoints")[-1]).state["update"] == 4


def test_a_gradient_that_is_not_finite_is_said_too(tmp_path):
    def steep(loss):
        return loss + (loss - loss.detach()).sqrt()

    with pytest.raises(InputError, match="a finite gradient at every update, got (nan|inf) at update 3"):
        trained(tmp_path, Broken(3, steep))


@pytest.mark.parametrize(
    "error", [lambda loss: loss + torch.empty(2**58).sum(), lambda loss: bytes(2**60)], ids=["torch", "python"]
)
def test_too_little_memory_says_which_setting_to_lower(tmp_path, error):
    message = (
        r"enough memory for update 6, got tokens_per_batch = 4096, and: .*\. Fix: lower training\.tokens_per_batch and raise"
    )
    with pytest.raises(InputError, match=message):
        trained(tmp_path, Broken(6, error))
    assert checkpoints.read(checkpoints.list_checkpoints(tmp_path / "checkpoints")[-1]).state["update"] == 4


def test_a_measure_that_is_no_number_is_said(tmp_path):
    with pytest.raises(
        InputError, match="a finite value of the measure accuracy, got nan at update 8. Fix: check the validation"
    ):
        trained(tmp_path, Scored(0.25, float("nan")))


def test_a_log_that_finds_no_room_is_said(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(
        InputError, match=r"log.jsonl to be writable, got .*\. Fix: name a file in it and start the same command"
    ):
        TrainingLog(tmp_path / "log.jsonl").add(update=1)


def test_a_run_made_shorter_before_it_was_evaluated_is_finished_from_its_last_checkpoint(tmp_path):
    with pytest.raises(InputError, match="at update 7"):
        trained(tmp_path, Broken(7, lambda loss: loss * math.nan), evaluate_every=100, checkpoint_every=3)
    model, result = trained(tmp_path, updates=5, evaluate_every=100, checkpoint_every=3)
    saved = checkpoints.read(tmp_path / "checkpoints" / "000006").model
    assert result.state.update == 6
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in saved.items())


def test_another_error_of_the_task_is_left_as_it_is(tmp_path):
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        trained(tmp_path, Broken(1, lambda loss: torch.ones(2, 3) @ torch.ones(2, 3)))


def test_a_damaged_checkpoint_stops_the_run_and_removing_it_goes_on_from_the_one_before(tmp_path):
    trained(tmp_path, updates=8)
    path = tmp_path / "checkpoints" / "000008" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match="remove the folder .*000008; training resumes from 000004"):
        trained(tmp_path)
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    trained(tmp_path)
    trained(unbroken := tmp_path / "unbroken")
    assert (tmp_path / "model/model.safetensors").read_bytes() == (unbroken / "model/model.safetensors").read_bytes()


def test_no_data_is_refused(tmp_path):
    with pytest.raises(InputError, match="at least one batch, got none. Fix: check the training data"):
        trained(tmp_path, Counting(sequences=0))


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_lower_precisions_learn_the_same_and_keep_weights_in_float32(tmp_path, precision):
    model, result = trained(tmp_path, updates=150, warmup=10, precision=precision)
    trained(tmp_path / "exact", updates=150, warmup=10)
    assert result.measures["accuracy"] == 1.0
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    ours, exact = losses(tmp_path), losses(tmp_path / "exact")
    assert ours != exact
    assert ours == pytest.approx(exact, abs=0.1)


def test_the_finished_folder_holds_the_model_and_its_config(tmp_path):
    _, result = trained(tmp_path)
    assert result.model == tmp_path / "model"
    assert {path.name for path in result.model.iterdir()} == {"model.safetensors", "config.json"}
    assert json.loads((result.model / "config.json").read_text()) == {"kind": "Model", "config": {"width": 8, "dropout": 0.0}}


def test_in_a_pipe_there_is_a_line_for_each_evaluation_and_no_bar(tmp_path):
    console = Console(file=io.StringIO(), width=100)
    trained(tmp_path, Scored(0.25, 0.5, 0.125, 0.5), console=console)
    assert console.file.getvalue().splitlines() == [
        "update 4: accuracy 0.25, the best so far",
        "update 8: accuracy 0.5, the best so far",
        "update 12: accuracy 0.125",
        "finished, from the checkpoint 8: accuracy 0.5",
    ]


def test_on_a_terminal_a_bar_shows_loss_speed_and_the_time_left(tmp_path):
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    trained(tmp_path, console=console)
    shown = console.file.getvalue()
    assert "12/12" in shown
    assert "loss 2." in shown
    assert "tokens/s" in shown
    assert "0:00:00" in shown
