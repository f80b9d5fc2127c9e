"""Training: the ladder on Multi30k, hidden states with their context, and speed beside other libraries."""

from statistics import mean
from typing import Any

import pictures
from pictures import result, table

from shown import runs

LETTERS = {"one context vector": "(a)", "additive attention": "(b)", "and self-attention [h, c]": "(c)", "Transformer": "(d)"}
_SCORES = {"perplexity": 2, "validation": 1, "bleu": 2}  # digits
_PUBLISHED = {"additive attention": 39.00, "Transformer": 41.02}  # BLEU on the test, Wu et al. 2021, at this size


def ladder() -> str:
    """What each translator came to."""
    runs = {f"{LETTERS[name]} {name}": run for name, run in pictures.ladder("single").items()}
    runs["(b) trained as (a) and (c)"] = pictures.ladder("alike")["additive attention"]
    rows = [
        (
            name,
            f"{run['seed']} of {len(seeds(run['recipe']))}",
            f"{run['bleu']:.2f}",
            f"{run['chrf']:.2f}",
            f"{run['validation']:.1f}",
            f"{run['parameters'] / 1e6:.1f}",
            f"{run['updates']:,}",
            f"{run['tokens'] / 1e6:.1f}",
            f"{run['seconds'] / 60:.0f}",
        )
        for name, run in runs.items()
    ]
    heads = [
        "",
        "seed, of runs",
        "BLEU, test",
        "chrF",
        "BLEU, validation",
        "parameters, 10⁶",
        "updates",
        "target tokens, 10⁶",
        "minutes",
    ]
    return table(rows, heads, "l" + "r" * 8)


def published() -> str:
    """How far the seeds of (b) and of (d) are from the published numbers."""
    parts = []
    for model, score in _PUBLISHED.items():
        scores = [run["bleu"] for run in seeds(pictures.ladder("single")[model]["recipe"])]
        away = mean(scores) - score
        parts.append(
            f"{LETTERS[model]} comes to {mean(scores):.2f} on average, {abs(away):.2f} {'above' if away > 0 else 'below'} the published "
            f"{score:.2f}, and to {max(scores):.2f} at best"
        )
    return f"Over three seeds {'; '.join(parts)}."


def seeds(recipe: str) -> list[dict[str, Any]]:
    """Every run of a recipe, by its seed."""
    return sorted((run for run in result("ladder")["runs"] if run["recipe"] == recipe), key=lambda run: run["seed"])


def spread() -> str:
    """What every seed of (b) and of (d) came to, and how far apart they are."""
    rows = []
    for model in ("additive attention", "Transformer"):
        shown = pictures.ladder("single")[model]
        runs = seeds(shown["recipe"])
        scores = [run["bleu"] for run in runs]
        apart = f"{mean(scores):.2f}; {max(scores) - min(scores):.2f}" if len(scores) > 1 else "one run tells no spread"
        cells = (
            ", ".join(str(run["seed"]) for run in runs),
            ", ".join(f"{run['validation']:.1f}" for run in runs),
            ", ".join(f"{score:.2f}" for score in scores),
            apart,
        )
        rows.append((f"{LETTERS[model]} `{shown['recipe']}`", *cells))
    return table(rows, ["", "seeds", "BLEU, validation", "BLEU, test", "mean on the test; largest less smallest"])


def tried() -> str:
    """What was tried on the way, and the recipes that came of it."""
    runs, rows = result("ladder")["runs"], []
    variants = {"multi30k-gru-attention-previous": "asked by s_{t−1}, the last row of the first table"}
    variants |= {"multi30k-gru-attention": "asked by s_t, which has read c_{t−1}"}
    variants |= {"multi30k-transformer-tiny": "post-norm, as published"}
    for model in ("additive attention", "Transformer"):
        for run in sorted(runs, key=lambda run: run["part"] == "single"):
            message = run.get("tried") or variants.get(run["recipe"])
            if run["model"] == model and message:
                cells = (run["seed"], f"{run['tokens_per_batch']:,}", run["learning_rate"], run["dropout"])
                cells += (run.get("stopped") or f"{run['updates']:,}",)
                scores = (f"{run[name]:.{digits}f}" if run[name] is not None else "" for name, digits in _SCORES.items())
                rows.append((f"{LETTERS[model]} {message}", *cells, *scores))
    heads = ["", "seed", "target tokens a batch", "learning rate", "dropout", "updates"]
    return table(rows, [*heads, "perplexity, validation", "BLEU, validation", "BLEU, test"], "l" + "r" * 8)


def by_length(part: str) -> str:
    """BLEU by the words of the source, of single captions or of joined ones."""
    runs = pictures.ladder(part)
    lengths = [f"{shortest}–{longest}" for shortest, longest, *_ in next(iter(runs.values()))["by_length"]]
    rows = [(f"BLEU of {LETTERS[name]}", *(f"{row[-1]:.1f}" for row in run["by_length"])) for name, run in runs.items()]
    return table(rows, ["words of the source", *lengths], "l" + "r" * len(lengths))


def bottleneck() -> str:
    """How far one vector is behind additive attention that was trained alike, on single captions, short ones and long ones."""
    one = pictures.ladder("single")["one context vector"]["by_length"]
    other = pictures.ladder("alike")["additive attention"]["by_length"]
    lost = [(longest, more - less) for (_, longest, _, less), (*_, more) in zip(one, other, strict=True)]
    middle = lost[len(lost) // 2][0]
    short, long = ([by for longest, by in lost if (longest <= middle) is which] for which in (True, False))
    return (
        f"At every length one vector is behind attention that was trained alike: by {min(short):.0f} to {max(short):.0f} points of BLEU "
        f"up to {middle} words, and by {min(long):.0f} to {max(long):.0f} beyond."
    )


def level(message: str) -> str:
    """What self-attention in the encoder adds to additive attention that was trained alike."""
    alike = pictures.ladder("alike")["additive attention"]["bleu"]
    context = pictures.ladder("single")["and self-attention [h, c]"]["bleu"]
    return (
        f"States of the encoder that attend to each other as well, {message}, come to {context:.2f}, and plain attention that was "
        f"trained like them, in larger batches and asked by the previous state, to {alike:.2f}: with one seed, no difference that counts."
    )


def falls() -> str:
    """How BLEU falls from the shortest to the longest eighth of the joined captions."""
    runs = pictures.ladder("joined")
    named = {("the Transformer" if name == "Transformer" else name): run for name, run in runs.items()}
    ends = {name: (run["by_length"][0][-1], run["by_length"][-1][-1]) for name, run in named.items()}
    message = [f"from {first:.1f} to {last:.1f} with {name}" for name, (first, last) in ends.items()]
    overall = [f"{run['bleu']:.2f} with {name}" for name, run in named.items()]
    return (
        f"From the shortest eighth of the sources to the longest BLEU goes {', '.join(message)}. Over all lengths it is "
        f"{', '.join(overall)}."
    )


def hidden_context() -> str:
    """A table for each task, the gain over the first model of the same words seed by seed."""
    message = "{mean:.2f} ± {deviation:.2f}".format
    actual = []
    for task in result("hidden-context")["tasks"]:
        rows = [
            (
                model["model"],
                message(**model["validation"]),
                message(**model["test"]),
                "{mean:+.2f} ± {deviation:.2f}".format(**model["gain"]).replace("-", "−") if "gain" in model else "",
            )
            for model in task["models"]
        ]
        actual.append(table(rows, [task["name"], "validation", "test", "gain on the test"], "lrrr"))
    return "\n\n".join(actual)


def beside(part: str, unit: str, first: str) -> str:
    """How much each does a second, and times the first."""
    actual: dict[str, Any] = result("translation")["a_second"][part]
    rows = [(name, f"{rate:,.0f}", f"{rate / actual[first]:.2f}") for name, rate in actual.items()]
    count = result("translation")["runs"]
    return f"{table(rows, [part, unit, f'× {first}'], 'lrr')}\n\n({runs(count and count[part])})"


def copying() -> str:
    """What the translators copy, and what agrees, in sentences made of patterns."""
    counted: dict[str, Any] = result("copying")["counts"]
    kinds = next(iter(counted.values()))
    rows = [(kind, *(f"{each[kind][0]} of {each[kind][1]}" for each in counted.values())) for kind in kinds]
    return table(rows, ["", "the box before", "the box"], "lrr")


def caches() -> str:
    """What caches are worth in greedy translation, and batches of like length beside `generate()`."""
    rate = result("translation")["a_second"]["greedy translation"]
    as_they_come = rate["overt, 64 as they come"] / rate["generate()"]
    by_length = rate["overt, 64 sorted"] / rate["generate(), sorted"]
    return (
        f"So caches are worth a factor of {rate['overt'] / rate['nothing kept']:.1f}. Batch by batch overt is a little ahead, "
        f"{as_they_come:.2f} times as fast with texts as they come and {by_length:.2f} times with sorted ones: a step of so small a model "
        "is half what both must compute, half what Python takes to ask for it. The rest of the lead is batches of like length, as large as "
        "4,096 tokens allow, which texts leave when they end."
    )
