"""The scripts beside the recipes: training by CUDA graphs, whose updates run one by one here, and pairs that other models translated."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from overt.errors import InputError
from overt.learn.config.settings import Training
from overt.learn.data.corpora import CorpusExample
from overt.learn.loop.loss import cross_entropy
from overt.learn.loop.schedule import learning_rate
from overt.learn.translator import Translator
from overt.models import Transformer
from translators import ENGLISH, FRENCH, by_heart

RECIPES = Path(__file__).parents[2] / "recipes"
SIZES = {"width": 16, "heads": 2, "encoder_layers": 2, "decoder_layers": 1, "feed_forward": 24, "tied": "all"}


def script(name):
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gpu, synthetic = script("train_on_gpu"), script("synthetic_pairs")


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = Transformer(40, 40, **SIZES, dropout=0.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture
def batch():
    """Source, target and labels with padding."""
    source, target, labels = (torch.randint(3, 40, (5, length)) for length in (7, 6, 6))
    source[1, 4:] = source[3, 1:] = target[2, 3:] = labels[2, 3:] = 0
    return source, target, labels


def loss_of(model, source, target, labels, smoothing):
    lengths = {"source_lengths": (source != 0).sum(1), "target_lengths": (labels != 0).sum(1)}
    real = labels != 0
    return cross_entropy(model.states(source, target, **lengths)[real], model.output, labels[real], smoothing)


def test_loss_and_gradients_are_those_of_the_model(model, batch):
    network = gpu.Network(model, torch.device("cpu"), torch.float32)
    loss = network.loss(*batch, 0.1)
    gradients = dict(zip(network.weights, torch.autograd.grad(loss, list(network.weights.values())), strict=True))
    expected = loss_of(model, *batch, 0.1)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=2e-5)


def test_updates_are_those_of_torchs_adamw(model, batch):
    settings = Training(updates=6, warmup=2, learning_rate=0.01, schedule="trapezoid", clip=0.5)
    network = gpu.Network(model, torch.device("cpu"), torch.float64)
    network.positions, network.causal = network.positions.double(), network.causal.double()
    model = model.double()
    network.flat = torch.cat([each.detach().flatten() for each in model.parameters()])
    parts = network.flat.split([each.numel() for each in network.weights.values()])
    for (name, weight), part in zip(list(network.weights.items()), parts, strict=True):
        network.weights[name] = part.view(weight.shape).detach().requires_grad_()
    network.table = network.weights["encoder.embedding.table.weight"]
    adam = gpu.Adam(network, settings)
    optimizer = torch.optim.AdamW(model.parameters(), betas=settings.betas, weight_decay=0.0)
    for update in range(1, settings.updates + 1):
        rate = learning_rate(update, settings)
        adam.rate.fill_(rate)
        adam.step(*batch)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        (loss_of(model, *batch, 0.1) / (batch[2] != 0).sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    for name, parameter in model.named_parameters():
        if not name.endswith("key.bias"):  # its gradient is rounding alone, since a softmax does not change with it
            torch.testing.assert_close(network.weights[name].detach(), parameter.detach(), rtol=1e-4, atol=1e-5)


def test_an_epoch_holds_every_pair_at_its_length():
    generator = np.random.default_rng(0)
    pairs = [([*generator.integers(3, 40, size), 2], list(generator.integers(3, 40, size))) for size in range(1, 50)] * 3
    buckets = gpu.Buckets(pairs, 64, torch.device("cpu"))
    rows_read = set()
    for length, rows in buckets.epoch(generator):
        source, target, labels = (tensor[rows] for tensor in buckets.tensors[length])
        for row in range(len(rows)):
            size = int((source[row] != 0).sum()) - 1
            assert length in gpu.LENGTHS
            assert length >= size + 1 > max((each for each in gpu.LENGTHS if each < length), default=0)
            assert target[row, : size + 1].tolist() == [1, *labels[row, :size].tolist()]
            assert int(labels[row, size]) == 2
            rows_read.add((tuple(source[row, :size].tolist()), tuple(labels[row, :size].tolist())))
    assert rows_read == {(tuple(map(int, source[:-1])), tuple(map(int, target))) for source, target in pairs}


def recipe_of(folder, extra="", training=""):
    words = ["one", "two", "three", "four", "five", "six"]
    french = ["un", "deux", "trois", "quatre", "cinq", "six"]
    lines = [f"{a} {b}\t{x} {y}" for a, x in zip(words, french, strict=True) for b, y in zip(words, french, strict=True)]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    sizes = "\n".join(f"{name} = {json.dumps(value)}" for name, value in SIZES.items())
    text = f"""[data]
format = "pairs"
folder = "{folder.as_posix()}"
train = ["pairs.tsv"]
held_out = [2, 2]
{extra}
[tokens]
merges = 30
[model]
kind = "Transformer"
{sizes}
[training]
updates = 60
tokens_per_batch = 256
learning_rate = 0.01
schedule = "trapezoid"
warmup = 5
keep = 4
average = 4
{training}
"""
    (folder / "recipe.toml").write_text(text)
    return folder / "recipe.toml"


def test_a_run_learns_and_its_folder_is_one_of_overt(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train_on_gpu.py", str(recipe_of(tmp_path)), "--out", str(tmp_path / "run")])
    gpu.main()
    reports = capsys.readouterr().out
    assert "update 60: loss" in reports
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["updates"] == 60
    assert results["command"] == "python recipes/train_on_gpu.py recipes/recipe.toml"
    assert results["validation"]["perplexity"] < 20
    assert Translator.load(tmp_path / "run").translate(["one two"])[0].text


@pytest.mark.parametrize(
    ("training", "got"),
    [
        ("r_drop = 1.0", "'r_drop': 1.0"),
        ("weight_decay = 0.1", "'weight_decay': 0.1"),
        ("accumulate = 2", "'accumulate': 2"),
        ('precision = "float16"', "'precision': 'float16'"),
    ],
)
def test_settings_that_it_does_not_compute_are_refused(training, got, tmp_path, monkeypatch):
    path = recipe_of(tmp_path, training=training)
    monkeypatch.setattr(sys, "argv", ["train_on_gpu.py", str(path), "--out", str(tmp_path / "run")])
    with pytest.raises(InputError, match=f"{got}.*Fix: use overt train"):
        gpu.main()


def test_synthetic_pairs_are_the_originals_and_each_translation_once():
    translator = by_heart()
    examples = [CorpusExample(english, "autre") for english in ENGLISH]
    pairs = synthetic.synthetic_pairs([*examples, examples[0]], [translator, translator], [])
    assert pairs == [*examples, *(CorpusExample(*pair) for pair in zip(ENGLISH, FRENCH, strict=True))]


def test_a_backward_translator_makes_the_sources():
    examples = [CorpusExample("other", english) for english in ENGLISH]
    pairs = synthetic.synthetic_pairs(examples, [], [by_heart()])
    assert pairs[len(examples) :] == [CorpusExample(french, english) for english, french in zip(ENGLISH, FRENCH, strict=True)]
