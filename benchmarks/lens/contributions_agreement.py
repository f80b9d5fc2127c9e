"""How the sizes of the heads' contributions rank beside what ablating the heads does: the part `agreement` of contributions.py."""

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

import overt
from overt.learn import Translator
from overt.learn.config.settings import Data
from overt.learn.data.corpora import CorpusExample, read_corpus
from overt.learn.data.vocabulary import WordVocabulary
from overt.lens.analysis.contributions.targets import Target

SEEDS, STEPS, WORDS, PERIODS = (0, 1, 2), 700, 40, (6, 14)
TEXTS, SENTENCES, TAGGER_STEPS = 24, 40, 800
MEASURES = ("contribution", "gradient × input", "norm", "largest weight", "random")


def agreement() -> dict[str, Any]:
    """Language models and taggers trained here, and the translator that comes with overt."""
    torch.set_num_threads(1)
    results: dict[str, Any] = {"language model": {}, "tagger": {}}
    for seed in SEEDS:
        model, loss = trained(seed)
        draw = torch.Generator().manual_seed(1000 + seed)
        rows = [of_language_model(model, repeated(1, 32, draw)) for _ in range(TEXTS)]
        results["language model"][f"seed {seed}"] = {"loss": round(loss, 4), **scored(rows)}
        print("language model", seed, results["language model"][f"seed {seed}"], flush=True)
    corpus = read_corpus(treebank())
    vocabulary = WordVocabulary.learn(corpus.train, minimum_count=3, lower=True)
    for seed in SEEDS:
        tagger, right = trained_tagger(seed, corpus.train, corpus.test, vocabulary)
        draw_words = random.Random(seed)
        examples = draw_words.sample([example for example in corpus.test if 6 <= len(example.source) <= 30], TEXTS)
        rows = [of_tagger(tagger, example, vocabulary, draw_words) for example in examples]
        results["tagger"][f"seed {seed}"] = {"tags right": round(right, 4), **scored(rows)}
        print("tagger", seed, results["tagger"][f"seed {seed}"], flush=True)
    translator = Translator.bundled()
    results["translator"] = scored([of_translator(translator, text) for text in sentences()])
    print("translator", results["translator"], flush=True)
    return results


def treebank() -> Data:
    """Universal Dependencies English EWT, in the folder that OVERT_DATA names."""
    folder = Path(os.environ.get("OVERT_DATA", "."), "ud-ewt")
    parts = {part: (f"en_ewt-ud-{name}.conllu.gz",) for part, name in (("train", "train"), ("valid", "dev"), ("test", "test"))}
    return Data(format="conllu", folder=str(folder), **parts)


def trained_tagger(
    seed: int, train: list[CorpusExample], test: list[CorpusExample], vocabulary: WordVocabulary
) -> tuple[nn.Module, float]:
    """A Transformer of 3 layers of 4 heads that tags parts of speech, and how many tags of the test part are right."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    model = overt.models.Tagger(
        vocabulary.words, len(vocabulary.labels), 64, encoder="transformer", layers=3, positions="sinusoidal", dropout=0.1
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(TAGGER_STEPS):
        tokens, lengths, tags = tagged(draw.sample(train, 32), vocabulary)
        scores = model(tokens, lengths=lengths)
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=-1).backward()
        optimizer.step()
    model.eval()
    right = words = 0
    with torch.no_grad():
        for start in range(0, len(test), 64):
            tokens, lengths, tags = tagged(test[start : start + 64], vocabulary)
            best = model(tokens, lengths=lengths).argmax(-1)
            right += int(((best == tags) & (tags >= 0)).sum())
            words += int((tags >= 0).sum())
    return model, right / words


def tagged(examples: list[CorpusExample], vocabulary: WordVocabulary) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (B, n), lengths (B,) and tags (B, n), −1 at padding."""
    lengths = torch.tensor([len(example.source) for example in examples])
    tokens, tags = (torch.full((len(examples), int(lengths.max())), fill) for fill in (0, -1))
    for row, example in enumerate(examples):
        tokens[row, : lengths[row]] = torch.tensor(vocabulary.encode(example.source))
        tags[row, : lengths[row]] = torch.tensor([vocabulary.labels.index(tag) for tag in example.target])
    return tokens, lengths, tags


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


def of_tagger(
    model: nn.Module, example: CorpusExample, vocabulary: WordVocabulary, draw: random.Random
) -> dict[str, np.ndarray]:
    """The measures of the heads on the tag of a word of the sentence, rather than the next best one."""
    tokens, _, _ = tagged([example], vocabulary)
    position = draw.randrange(tokens.shape[1])
    with torch.no_grad():
        best = model(tokens)[0, position].topk(2).indices.tolist()
    return measured(model, {"tokens": tokens}, (best[0], best[1]), position)


def of_translator(translator: Translator, text: str) -> dict[str, np.ndarray]:
    """The measures of the decoder's heads on the third word piece of a translation, rather than the next best one."""
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
    effect = [float(target.logit(logits) - _ablated(model, inputs, target, head)) for head in heads]
    direct = [float(target.logit(logits) - each) for each in _left_out_at_the_end(model, inputs, target, recording, heads)]
    norms, gradients = overt.lens.norm_weights(recording, model), _gradients(model, inputs, target, recording, heads)
    random_numbers = np.random.default_rng(0).random(len(heads))
    weights = {head: recording[head].weights(position)[0, 0] for head in heads}
    return {
        "effect": np.array(effect),
        "direct effect": np.array(direct),
        "contribution": np.array([added.by_head[head] for head in heads]),
        "gradient × input": np.array(gradients),
        "norm": np.array([float(norms[head].weights(position).sum()) for head in heads]),
        "largest weight": np.array([float(weights[head].max()) for head in heads]),
        "random": random_numbers,
    }


def _ablated(model: nn.Module, inputs: Mapping[str, Any], target: Target, head: tuple[int, int]) -> Tensor:
    with torch.no_grad(), overt.lens.without_heads(model, [head]):
        return target.logit(model(**inputs))


def _left_out_at_the_end(
    model: nn.Module, inputs: Mapping[str, Any], target: Target, recording: Any, heads: list[tuple[int, int]]
) -> Iterator[Tensor]:
    """The target where the last norm alone does not read what a head writes at the position: its scale is another one then."""
    modules = dict(model.named_modules())
    last_norm = [module for module in model.modules() if isinstance(module, nn.LayerNorm)][-1]
    layers = {recording.call_of(call).layer for call, _ in heads}
    states: dict[str, Tensor] = {}
    with torch.no_grad():
        with _before({modules[name].output: lambda x, name=name: states.update({name: x}) for name in layers}):
            model(**inputs)
        for call, head in heads:
            captured = recording.call_of(call)
            output, state = modules[captured.layer].output, states[captured.layer][0, target.position]
            size = len(state) // captured.total
            part = slice(head * size, (head + 1) * size)
            written = output.weight[:, part] @ state[part]

            def without(x: Tensor, written: Tensor = written) -> Tensor:
                x = x.clone()
                x[0, target.position] -= written
                return x

            with _before({last_norm: without}):
                yield target.logit(model(**inputs))


@contextmanager
def _before(changes: Mapping[nn.Module, Callable[[Tensor], Tensor | None]]) -> Iterator[None]:
    """Pass each module's input to a function, which may return another one."""
    handles = [
        module.register_forward_pre_hook(
            lambda _, args, change=change: None if (other := change(args[0])) is None else (other, *args[1:])
        )
        for module, change in changes.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


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
        target.logit(model(**inputs)).backward()
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
    quarter of heads with the largest effect it has among its own; for measures with a sign, the correlation with the sign too. And the
    correlation of sizes with the direct effect's, of leaving out at the last norm alone what the head writes at the position."""
    results = {"texts": len(rows), "heads": len(rows[0]["effect"])}
    for measure in MEASURES:
        sizes = [_rank(np.abs(row[measure]), np.abs(row["effect"])) for row in rows]
        entry = {"spearman": round(float(np.mean(sizes)), 3), "spread": round(float(np.std(sizes)), 3)}
        entry["top quarter"] = round(float(np.mean([_overlap(row[measure], row["effect"]) for row in rows])), 3)
        if measure in ("contribution", "gradient × input"):
            entry["spearman with sign"] = round(float(np.mean([_rank(row[measure], row["effect"]) for row in rows])), 3)
        direct = [_rank(np.abs(row[measure]), np.abs(row["direct effect"])) for row in rows]
        entry["spearman, direct"] = round(float(np.mean(direct)), 3)
        results[measure] = entry
    return results


def _rank(first: np.ndarray, second: np.ndarray) -> float:
    return float(spearmanr(first, second).statistic)


def _overlap(first: np.ndarray, second: np.ndarray) -> float:
    count = max(len(first) // 4, 1)
    return len({*np.argsort(-np.abs(first))[:count]} & {*np.argsort(-np.abs(second))[:count]}) / count
