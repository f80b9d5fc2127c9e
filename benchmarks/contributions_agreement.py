"""How the sizes of the heads' contributions rank beside what ablating the heads does: the part `agreement` of contributions.py."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

import overt
from overt.lens.analysis.contributions.targets import Target

SEEDS, STEPS, WORDS, PERIODS = (0, 1, 2), 700, 40, (6, 14)
TEXTS, SENTENCES = 24, 40
MEASURES = ("contribution", "gradient × input", "norm", "largest weight", "random")


def agreement() -> dict[str, Any]:
    """Language models trained here, and the translator that comes with overt."""
    torch.set_num_threads(1)
    results: dict[str, Any] = {"language model": {}}
    for seed in SEEDS:
        model, loss = trained(seed)
        draw = torch.Generator().manual_seed(1000 + seed)
        rows = [of_language_model(model, repeated(1, 32, draw)) for _ in range(TEXTS)]
        results["language model"][f"seed {seed}"] = {"loss": round(loss, 4), **scored(rows)}
        print("language model", seed, results["language model"][f"seed {seed}"], flush=True)
    rows = [of_translator(text) for text in sentences()]
    results["translator"] = scored(rows)
    print("translator", results["translator"], flush=True)
    return results


def repeated(batch: int, length: int, draw: torch.Generator) -> Tensor:
    """Random tokens that repeat themselves with a period that varies: (B, length)."""
    rows = []
    for _ in range(batch):
        period = int(torch.randint(*PERIODS, (1,), generator=draw))
        rows.append(torch.randint(3, WORDS, (period,), generator=draw).repeat(length // period + 1)[:length])
    return torch.stack(rows)


def trained(seed: int) -> tuple[nn.Module, float]:
    """A language model of 3 layers of 4 heads, and its last loss on the second half of a text."""
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    model = overt.models.LanguageModel(
        WORDS, width=64, heads=4, layers=3, feed_forward=128, dropout=0.0, positions="sinusoidal"
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loss = torch.tensor(0.0)
    for _ in range(STEPS):
        tokens = repeated(32, 32, draw)
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(scores[:, 15:].flatten(0, 1), tokens[:, 16:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), float(loss.detach())


def of_language_model(model: nn.Module, tokens: Tensor) -> dict[str, np.ndarray]:
    """The measures of the heads on the next token of a text that repeats itself, rather than another one."""
    inputs = {"tokens": tokens[:, :-1]}
    return measured(model, inputs, (int(tokens[0, -1]), int(tokens[0, 0]) if tokens[0, 0] != tokens[0, -1] else 3), -1)


def sentences() -> list[str]:
    """English sentences, drawn from parts."""
    draw = random.Random(0)
    who, did = ["The man", "My sister", "A friend", "The children", "Tom"], ["saw", "lost", "bought", "wanted", "forgot"]
    what, when = (
        ["the book", "a red car", "his keys", "some bread", "the letter"],
        ["yesterday", "this morning", "again", "in Paris", "too late"],
    )
    return [f"{draw.choice(who)} {draw.choice(did)} {draw.choice(what)} {draw.choice(when)}." for _ in range(SENTENCES)]


def of_translator(text: str) -> dict[str, np.ndarray]:
    """The measures of the decoder's heads on the third word piece of a translation, rather than the next best one."""
    from overt.learn import Translator

    translator = Translator.bundled()
    source, target = translator.teacher_forced(text, translator.translate([text])[0])
    inputs = {"source": source, "target": target[:, :3]}
    with torch.no_grad():
        best = translator.model(**inputs)[0, -1].topk(2).indices.tolist()
    return measured(translator.model, inputs, (best[0], best[1]), -1)


def measured(model: nn.Module, inputs: Mapping[str, Any], pair: tuple[int, int], position: int) -> dict[str, np.ndarray]:
    """What ablating each head takes from the logit difference, and each measure of the head, in one order of heads."""
    with torch.no_grad(), overt.lens.record(model) as recording:
        logits = model(**inputs)
    added = overt.lens.contributions(recording, model, pair, position=position, inputs=inputs)
    assert added.holds, added
    heads, target = sorted(added.by_head), Target(pair, ("", ""), position)
    effect = [float(target.of(logits) - _ablated(model, inputs, target, head)) for head in heads]
    norms, gradients = overt.lens.norm_weights(recording, model), _gradients(model, inputs, target, recording, heads)
    random_numbers = np.random.default_rng(0).random(len(heads))
    weights = {head: recording[head].weights(position)[0, 0] for head in heads}
    return {
        "effect": np.array(effect),
        "contribution": np.array([added.by_head[head] for head in heads]),
        "gradient × input": np.array(gradients),
        "norm": np.array([float(norms[head].weights(position).sum()) for head in heads]),
        "largest weight": np.array([float(weights[head].max()) for head in heads]),
        "random": random_numbers,
    }


def _ablated(model: nn.Module, inputs: Mapping[str, Any], target: Target, head: tuple[int, int]) -> Tensor:
    with torch.no_grad(), overt.lens.without_heads(model, [head]):
        return target.of(model(**inputs))


def _gradients(
    model: nn.Module, inputs: Mapping[str, Any], target: Target, recording: Any, heads: list[tuple[int, int]]
) -> list[float]:
    """The gradient of the target with respect to each head's output, nothing frozen, times that output, over all positions."""
    caught: dict[str, Tensor] = {}
    layers = {recording.call_of(call).layer for call, _ in heads}

    def keep(name: str) -> Callable:
        def hook(_: nn.Module, args: tuple) -> None:
            caught[name] = args[0]
            args[0].retain_grad()

        return hook

    modules = dict(model.named_modules())
    handles = [modules[name].output.register_forward_pre_hook(keep(name)) for name in layers]
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    with torch.enable_grad():
        target.of(model(**inputs)).backward()
    for handle in handles:
        handle.remove()
    model.zero_grad()
    results = []
    for call, head in heads:
        captured = recording.call_of(call)
        tensor = caught[captured.layer]
        product = (tensor.grad * tensor).detach().unflatten(-1, (captured.total, -1))
        results.append(float(product[..., head, :].sum()))
    return results


def scored(rows: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """Of each measure: Spearman's correlation of sizes with the effect's, its standard deviation over texts, and how many of the
    quarter of heads with the largest effect it has among its own; for measures with a sign, the correlation with the sign too."""
    results = {"texts": len(rows), "heads": len(rows[0]["effect"])}
    for measure in MEASURES:
        sizes = [_rank(np.abs(row[measure]), np.abs(row["effect"])) for row in rows]
        entry = {"spearman": round(float(np.mean(sizes)), 3), "spread": round(float(np.std(sizes)), 3)}
        entry["top quarter"] = round(float(np.mean([_overlap(row[measure], row["effect"]) for row in rows])), 3)
        if measure in ("contribution", "gradient × input"):
            entry["spearman with sign"] = round(float(np.mean([_rank(row[measure], row["effect"]) for row in rows])), 3)
        results[measure] = entry
    return results


def _rank(first: np.ndarray, second: np.ndarray) -> float:
    return float(spearmanr(first, second).statistic)


def _overlap(first: np.ndarray, second: np.ndarray) -> float:
    count = max(len(first) // 4, 1)
    return len({*np.argsort(-np.abs(first))[:count]} & {*np.argsort(-np.abs(second))[:count]}) / count
