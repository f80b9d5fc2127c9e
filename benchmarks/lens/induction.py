"""An induction circuit while it forms: a language model of two layers with one head each, on texts that repeat.

    python -m benchmarks.lens.induction [--seeds 3] [--updates 400] [--out docs/results/induction.json]
    python -m benchmarks.lens.induction --part why [--out docs/results/induction-why.json]

Every text is a row of random words that starts again after 6 to 16 of them. At checkpoints `overt.lens.probe` measures the heads, and the
loss is that of the last 8 words, which stand earlier in their text. At the end each head is taken out. The same command trains the same
models; the chapter docs/chapters/5-induction.md shows the numbers.

`why`: in each of 64 new texts `overt.lens.score_contributions` splits the score of the induction head's strongest key, relative to the
row's others. Is the part that it names a cause? `overt.lens.edit` takes that part's output out of the induction head's key, query or value,
and of nothing else, and the loss is measured again.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import results
from overt.lens import edit, probe, record, score_contributions, without_heads
from overt.lens.analysis.scores.sides import name_of_part
from overt.models import LanguageModel

WORDS, LENGTH, LAST, BATCH = 32, 32, 8, 64
TEXTS = 64  # that are split by part


def main() -> None:
    """Train with every seed, print what was measured, and write it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--updates", type=int, default=400)
    options.add_argument("--part", choices=["forming", "why"], default="forming")
    options.add_argument("--every", type=int, default=25, help="updates between checkpoints")
    results.takes_out(options)
    arguments = options.parse_args()
    torch.set_num_threads(1)
    if arguments.part == "why":
        runs = [why_of(seed, arguments.updates) for seed in range(arguments.seeds)]
    else:
        runs = [run_of(seed, arguments.updates, arguments.every) for seed in range(arguments.seeds)]
    results.write(arguments.out, words=WORDS, length=LENGTH, runs_by_seed=runs)


def run_of(seed: int, updates: int, every: int) -> dict[str, Any]:
    """Train one model: its checkpoints, what is left without each head, and the seconds of the processor that training took."""
    checkpoints = []

    def show(update: int, model: LanguageModel) -> None:
        if update % every == 0:
            checkpoints.append({"update": update, "loss": round(loss_on_repeats(model), 4)} | scores_of(model))
            print(f"seed {seed}", checkpoints[-1], flush=True)

    model, seconds = trained(seed, updates, show)
    without = {}
    for name, heads in {"no head": [], "previous-token head": [(0, 0)], "induction head": [(1, 0)]}.items():
        without[name] = round(loss_on_repeats(model, heads), 4)
    print(f"seed {seed}: loss without {without}, {seconds:.1f} s of training", flush=True)
    return {"seed": seed, "seconds": round(seconds, 1), "checkpoints": checkpoints, "loss_without": without}


def why_of(seed: int, updates: int) -> dict[str, Any]:
    """How often the split names each part first, and the loss with each part of the head's key that was named taken out by edit."""
    model, _ = trained(seed, updates)
    named = Counter(named_in(model, text) for text in repeating(TEXTS, torch.Generator().manual_seed(2000 + seed)))
    (part, before), texts = named.most_common(1)[0]
    result = {"seed": seed, "part": part, "token before": before, "texts": texts, "of": TEXTS, "loss": loss_on_repeats(model)}
    for into in ("key", "query", "value"):
        with edit(model) as edits:
            edits.path((0, 0), (1, 0), into=into)
            result[f"loss without it in the {into}"] = loss_on_repeats(model)
    print(result, flush=True)
    return result


def named_in(model: LanguageModel, text: Tensor) -> tuple[str, bool]:
    """The part that wrote most of what the induction head reads in its strongest key, and whether it brought the token before that."""
    with torch.no_grad(), record(model) as recording:
        model(text[None])
    row = LENGTH - 2
    key = int(recording[1, 0].top(row, 1).keys[0, 0])
    side = score_contributions(recording, model, head=(1, 0), query=row, key=key, relative=True).key
    part = side.strongest(1)[0]
    name = name_of_part(part)
    return name, part.kind == "head" and int(side.by_token[part.call, part.head].argmax()) == key - 1


def trained(
    seed: int, updates: int, show: Callable[[int, LanguageModel], None] = lambda update, model: None
) -> tuple[LanguageModel, float]:
    """The model after so many updates, and the seconds of the processor that these took; `show` sees it before each."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = LanguageModel(WORDS, width=64, heads=1, layers=2, feed_forward=64, positions="rotary", dropout=0.0, tied=False)
    optimizer, seconds = torch.optim.Adam(model.parameters(), lr=3e-3), 0.0
    for update in range(updates):
        show(update, model)
        start = time.process_time()
        tokens = repeating(BATCH, generator)
        loss = losses(model, tokens).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds += time.process_time() - start
    show(updates, model)
    return model.eval(), seconds


def repeating(count: int, generator: torch.Generator) -> Tensor:
    """Texts (count, LENGTH) of random words that start again after 6 to 16 of them."""
    texts = []
    for _ in range(count):
        period = int(torch.randint(6, LENGTH // 2 + 1, (1,), generator=generator))
        texts.append(torch.randint(WORDS, (period,), generator=generator).repeat(LENGTH // period + 1)[:LENGTH])
    return torch.stack(texts)


def losses(model: LanguageModel, tokens: Tensor) -> Tensor:
    """−log of the probability of each next word, (B, n − 1)."""
    return functional.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:], reduction="none")


@torch.no_grad()
def loss_on_repeats(model: LanguageModel, without: list[tuple[int | str, int]] | None = None) -> float:
    """The mean loss of the last words of 256 new texts, with some heads taken out."""
    tokens = repeating(256, torch.Generator().manual_seed(1000))
    if not without:
        return float(losses(model, tokens)[:, -LAST:].mean())
    with without_heads(model, without):
        return float(losses(model, tokens)[:, -LAST:].mean())


def scores_of(model: LanguageModel) -> dict[str, list[float]]:
    """The probe's shares, intervals and chance: of the previous token in layer 0, and of induction in layer 1."""
    heads = probe(model, sequences=16, length=64)
    measured = {"previous": heads[0, 0].scores["previous token"], "induction": heads[1, 0].scores["induction"]}
    return {
        name: [round(number, 4) for number in (score.share, score.low, score.high, score.chance)]
        for name, score in measured.items()
    }


if __name__ == "__main__":
    main()
