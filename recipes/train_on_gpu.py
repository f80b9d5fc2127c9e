"""Train the Transformer of a translation recipe on one GPU, by CUDA graphs.

    python recipes/train_on_gpu.py RECIPE [--out RUN]

A small model's update is some thousand kernels, and launching them from Python takes longer than running them: `overt train` waits for the
processor. Here pairs are padded to one of a few lengths, and all kernels of an update, from the lookup of the tokens to AdamW's step, are
recorded once for each length and launched together. The model, the loss, the optimizer and the run's folder are those of `overt train`.
Weights at equal distances in the last tenth of the updates are averaged, `average` of them, and a run cannot be resumed. Without a GPU the
same updates run one kernel after another, for tests.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from overt.cli.train import run_results
from overt.errors import InputError
from overt.files import whole
from overt.learn.config.recipe import read_recipe
from overt.learn.config.settings import Recipe, Training
from overt.learn.data.tokenizer import END, PADDING, START
from overt.learn.loop.schedule import learning_rate
from overt.learn.loop.training import RunState, TrainingResult
from overt.learn.run.model_folder import save_model
from overt.learn.run.weights import get_weights, load_weights
from overt.learn.tasks.build import build_task

LENGTHS = (
    4,
    6,
    8,
    10,
    12,
    14,
    16,
    18,
    20,
    24,
    28,
    32,
    40,
    48,
    64,
    96,
    128,
)  # that pairs are padded to; longer ones are left out
EXCLUDED = -1e4  # added to the score of a masked key
FIXED = {
    "norm": "pre",
    "positions": "sinusoidal",
    "activation": "relu",
    "tied": "all",
    "kv_heads": None,
    "attention_dropout": 0.0,
}
LAST = 0.1  # the share of the updates over which weights are averaged


class Lookup(torch.autograd.Function):
    """table[ids], whose gradient is added up without sorting the ids, which a graph cannot hold."""

    @staticmethod
    def forward(ctx, table, ids):
        """The rows of the table, (..., width)."""
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table[ids]

    @staticmethod
    def backward(ctx, gradient):
        """The gradient of the table, and none of the ids."""
        [ids] = ctx.saved_tensors
        total = torch.zeros(ctx.shape, dtype=gradient.dtype, device=gradient.device)
        return total.index_add_(0, ids.flatten(), gradient.flatten(0, -2)), None


class Network:
    """The forward pass of `overt.models.Transformer` on weights that are parts of one vector, `flat`."""

    def __init__(self, model, device: torch.device, dtype: torch.dtype):
        config = model.config
        self.heads, self.width, self.dropout, self.dtype = config["heads"], config["width"], config["dropout"], dtype
        self.layers = config["encoder_layers"], config["decoder_layers"]
        weights = get_weights(model)
        self.flat = torch.cat([each.flatten() for each in weights.values()]).to(device)
        self.weights: dict[str, Tensor] = {}
        for (name, each), part in zip(
            weights.items(), self.flat.split([each.numel() for each in weights.values()]), strict=True
        ):
            self.weights[name] = part.view(each.shape).detach().requires_grad_()
        self.table = self.weights["encoder.embedding.table.weight"]
        longest = LENGTHS[-1]
        self.positions = model.encoder.embedding.positions(torch.zeros(1, longest, self.width))[0].to(device)
        self.causal = torch.full((longest, longest), EXCLUDED, device=device, dtype=dtype).triu(1)

    def loss(self, source: Tensor, target: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        """The summed cross-entropy of the labels (B, T), without padding."""
        scores = (self.states(source, target) @ self.table.to(self.dtype).T).flatten(0, 1).float()
        return functional.cross_entropy(
            scores, labels.flatten(), ignore_index=PADDING, label_smoothing=smoothing, reduction="sum"
        )

    def states(self, source: Tensor, target: Tensor) -> Tensor:
        """The states that words are scored from, (B, T, width)."""
        excluded = (source == PADDING)[:, None, None, :].to(self.dtype) * EXCLUDED
        x = self._embedded(source)
        for layer in range(self.layers[0]):
            name = f"encoder.layers.{layer}."
            x = self._self_attention(x, name, "attention", excluded)
            x = self._feed_forward(x, name)
        memory = self._norm(x, "encoder.norm")
        x, causal = self._embedded(target), self.causal[: target.shape[1], : target.shape[1]]
        for layer in range(self.layers[1]):
            name = f"decoder.layers.{layer}."
            x = self._self_attention(x, name, "self_attention", causal)
            [query] = self._heads(self._norm(x, f"{name}around_cross_attention.norm"), f"{name}cross_attention.query")
            key, value = self._heads(memory, f"{name}cross_attention.key", f"{name}cross_attention.value")
            x = x + self._attended(query, key, value, excluded, f"{name}cross_attention.output")
            x = self._feed_forward(x, name)
        return self._norm(x, "decoder.norm")

    def _embedded(self, tokens: Tensor) -> Tensor:
        x = Lookup.apply(self.table, tokens) * self.width**0.5
        return functional.dropout(x + self.positions[: tokens.shape[1]], self.dropout)

    def _self_attention(self, x: Tensor, layer: str, part: str, excluded: Tensor) -> Tensor:
        names = (f"{layer}{part}.{name}" for name in ("query", "key", "value"))
        query, key, value = self._heads(self._norm(x, f"{layer}around_{part}.norm"), *names)
        return x + self._attended(query, key, value, excluded, f"{layer}{part}.output")

    def _heads(self, x: Tensor, *names: str) -> Tensor:
        """Linear maps of x, side by side: (maps, B, H, n, head_width)."""
        return self._linear(x, *names).unflatten(-1, (len(names), self.heads, -1)).permute(2, 0, 3, 1, 4)

    def _attended(self, query: Tensor, key: Tensor, value: Tensor, excluded: Tensor, output: str) -> Tensor:
        scores = (query * query.shape[-1] ** -0.5) @ key.mT + excluded
        mixed = (torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2)
        return functional.dropout(self._linear(mixed, output), self.dropout)

    def _feed_forward(self, x: Tensor, layer: str) -> Tensor:
        inner = functional.relu(self._linear(self._norm(x, f"{layer}around_feed_forward.norm"), f"{layer}feed_forward.widen"))
        return x + functional.dropout(self._linear(inner, f"{layer}feed_forward.narrow"), self.dropout)

    def _linear(self, x: Tensor, *names: str) -> Tensor:
        weight, bias = (torch.cat([self.weights[f"{name}.{part}"] for name in names]) for part in ("weight", "bias"))
        return functional.linear(x, weight.to(self.dtype), bias.to(self.dtype))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        gain, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return functional.layer_norm(x, (self.width,), gain, bias).to(self.dtype)


class Adam:
    """AdamW without decay on a network's vector of weights; all that changes between updates is in tensors, as a graph needs it."""

    def __init__(self, network: Network, settings: Training):
        self.network, self.settings = network, settings
        self.mean, self.square = torch.zeros_like(network.flat), torch.zeros_like(network.flat)
        self.updates, self.rate, self.loss, self.count = (torch.zeros((), device=network.flat.device) for _ in range(4))

    def step(self, source: Tensor, target: Tensor, labels: Tensor) -> None:
        """One update; adds the loss and the number of labels to `loss` and `count`."""
        loss = self.network.loss(source, target, labels, self.settings.label_smoothing)
        gradients = torch.autograd.grad(loss, list(self.network.weights.values()))
        with torch.no_grad():
            count = (labels != PADDING).sum()
            gradient = torch.cat([each.flatten() for each in gradients]) / count
            if self.settings.clip is not None:
                gradient *= (self.settings.clip / (gradient.norm() + 1e-6)).clamp(max=1.0)
            first, second = self.settings.betas
            self.updates += 1
            self.mean.lerp_(gradient, 1 - first)
            self.square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            deviation = (self.square / (1 - second**self.updates)).sqrt_().add_(1e-8)
            self.network.flat.sub_(self.mean / deviation * (self.rate / (1 - first**self.updates)))
            self.loss += loss
            self.count += count

    def reset(self) -> None:
        """Forget all updates."""
        for tensor in (self.mean, self.square, self.updates, self.rate, self.loss, self.count):
            tensor.zero_()


class Buckets:
    """Pairs by padded length, on the device: source (N, n), target START y, labels y END."""

    def __init__(self, pairs: list[tuple[list[int], list[int]]], tokens: int, device: torch.device):
        sizes = np.searchsorted(LENGTHS, [max(len(source), len(target) + 1) for source, target in pairs])
        self.tensors: dict[int, tuple[Tensor, ...]] = {}
        self.rows: dict[int, int] = {}  # of a batch
        for number, length in enumerate(LENGTHS):
            group = [pairs[index] for index in np.flatnonzero(sizes == number)]
            if group:
                sides = [source for source, _ in group], [[START, *y] for _, y in group], [[*y, END] for _, y in group]
                self.tensors[length] = tuple(_padded(side, length).to(device) for side in sides)
                self.rows[length] = min(max(8, tokens // length // 8 * 8), len(group))

    def epoch(self, generator: np.random.Generator) -> list[tuple[int, Tensor]]:
        """Batches as a length and the indices of rows; the last one of each length is filled up with rows of the same length."""
        batches: list[tuple[int, Tensor]] = []
        for length, (source, *_) in self.tensors.items():
            order, rows = generator.permutation(len(source)), self.rows[length]
            order = np.concatenate([order, generator.integers(0, len(source), -len(order) % rows)])
            batches += [(length, torch.from_numpy(each)) for each in order.reshape(-1, rows)]
        return [batches[index] for index in generator.permutation(len(batches))]


class Updates:
    """An update of a batch: its graph's launch on a GPU, the same kernels one by one elsewhere."""

    def __init__(self, adam: Adam, buckets: Buckets):
        self.adam, self.buckets = adam, buckets
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        if adam.network.flat.is_cuda:
            self._record()

    def __call__(self, length: int, rows: Tensor) -> None:
        """Update by the rows of a length."""
        if length in self.graphs:
            graph, index = self.graphs[length]
            index.copy_(rows, non_blocking=True)
            graph.replay()
        else:
            self.adam.step(*(tensor[rows] for tensor in self.buckets.tensors[length]))

    def _record(self) -> None:
        """Record a graph for each length, in memory that they share, and leave weights and optimizer as they were."""
        before, flat = self.adam.network.flat.clone(), self.adam.network.flat
        stream, pool = torch.cuda.Stream(), None
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # the libraries allocate what they need at their first calls
            for length in list(self.buckets.tensors)[:2]:
                self.adam.step(*(tensor[: self.buckets.rows[length]] for tensor in self.buckets.tensors[length]))
        torch.cuda.current_stream().wait_stream(stream)
        for length in sorted(self.buckets.tensors, reverse=True):
            index, graph = torch.zeros(self.buckets.rows[length], dtype=torch.long, device=flat.device), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self.adam.step(*(tensor[index] for tensor in self.buckets.tensors[length]))
            pool = pool or graph.pool()
            self.graphs[length] = graph, index
        flat.copy_(before)
        self.adam.reset()


def train(model, pairs: list[tuple[list[int], list[int]]], settings: Training) -> RunState:
    """Train a Transformer on pairs of token ids, the source with its end; its weights are the average of the last ones."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = Network(model, device, torch.bfloat16 if settings.precision == "bfloat16" else torch.float32)
    adam, buckets = Adam(network, settings), Buckets(pairs, settings.tokens_per_batch, device)
    torch.manual_seed(settings.seed)
    generator, state, started = np.random.default_rng(settings.seed), RunState(), time.perf_counter()
    update_of, queue = Updates(adam, buckets), []
    total, averaged = torch.zeros_like(network.flat, dtype=torch.float64), 0
    count = max(1, settings.average)
    chosen = {settings.updates - round(LAST * settings.updates * each / count) for each in range(count)}
    while state.update < settings.updates:
        if not queue:
            queue, state.epoch = buckets.epoch(generator), state.epoch + 1
        state.update += 1
        adam.rate.fill_(learning_rate(state.update, settings))
        update_of(*queue.pop())
        if state.update in chosen:
            total, averaged = total + network.flat, averaged + 1
        if state.update % 500 == 0 or state.update == settings.updates:
            _report(adam, state, time.perf_counter() - started)
    flat = (total / averaged).float().split([each.numel() for each in network.weights.values()])
    finished = {name: part.view(each.shape).cpu() for (name, each), part in zip(network.weights.items(), flat, strict=True)}
    load_weights(model, finished, "the training")
    return state


def main() -> None:
    """Read the arguments, train, score the test set and write the run's folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--out", type=Path, help="the run's folder (default: runs/ and the recipe's name)")
    arguments = parser.parse_args()
    recipe, folder = read_recipe(arguments.recipe), arguments.out or Path("runs") / arguments.recipe.stem
    task, model = build_task(recipe, folder)
    _check(recipe, model)
    state = train(model, task.training_pairs, recipe.training)
    save_model(model.eval(), folder / "model", task.tokenizer)
    result = TrainingResult(state, task.evaluate(model), folder / "model", stopped_early=False)
    results = run_results(arguments.recipe, recipe, task, model, result)
    results["command"] = f"python recipes/train_on_gpu.py recipes/{arguments.recipe.name}"
    with whole(folder / "results.json") as temporary:
        temporary.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{folder}: validation {result.measures}, test BLEU {results['test']['bleu']:.2f}")


def _padded(rows: list[list[int]], length: int) -> Tensor:
    padded = np.full((len(rows), length), PADDING)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    return torch.from_numpy(padded)


def _report(adam: Adam, state: RunState, seconds: float) -> None:
    """Print the mean loss since the last report, and the speed."""
    loss, count = adam.loss.item(), adam.count.item()
    adam.loss.zero_()
    adam.count.zero_()
    state.tokens, state.seconds = state.tokens + round(count), seconds
    if not np.isfinite(loss):
        raise InputError("a finite loss", got=f"{loss} at update {state.update}", fix="lower training.learning_rate")
    print(f"update {state.update:,}: loss {loss / count:.4f}, {state.tokens / seconds:,.0f} target tokens a second", flush=True)


def _check(recipe: Recipe, model) -> None:
    """Raise InputError for a model or settings that this script does not compute."""
    config = getattr(model, "config", {})
    other = {name: config.get(name) for name, value in FIXED.items() if config.get(name) != value}
    training = recipe.training
    other |= {"dropout in [tokens]": recipe.tokens.dropout} if recipe.tokens.dropout else {}
    other |= {
        name: value for name in ("r_drop", "weight_decay", "start_share", "patience") if (value := getattr(training, name))
    }
    other |= {"accumulate": training.accumulate} if training.accumulate > 1 else {}
    other |= {"precision": training.precision} if training.precision == "float16" else {}
    if recipe.task != "translate" or other:
        raise InputError(f"a translation by a Transformer with {FIXED}", got=str(other or recipe.task), fix="use overt train")


if __name__ == "__main__":
    main()
