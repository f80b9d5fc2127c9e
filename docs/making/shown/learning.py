"""Training: the ladder on Multi30k, hidden states with their context, and speed beside other libraries."""

from typing import Any

from pictures import result, table

from overt.learn.boxing import spent

LETTERS = {"one context vector": "(a)", "additive attention": "(b)", "and self-attention [h, c]": "(c)", "Transformer": "(d)"}


def ladder() -> str:
    """What each translator came to."""
    rows = [
        (
            f"{LETTERS[name]} {name}",
            f"{run['bleu']:.2f}",
            f"{run['chrf']:.2f}",
            f"{run['validation']:.1f}",
            f"{run['parameters'] / 1e6:.1f} million",
            f"{run['updates']:,}",
            spent(run["seconds"]),
        )
        for name, run in result("ladder")["single"].items()
    ]
    heads = ["", "BLEU, test 2016", "chrF", "BLEU, validation", "parameters", "updates", "time"]
    return table(rows, heads, "l" + "r" * 6)


def by_length(part: str) -> str:
    """BLEU by the words of the source, of single captions or of joined ones."""
    runs = result("ladder")[part]
    lengths = [f"{shortest}–{longest}" for shortest, longest, *_ in next(iter(runs.values()))["by_length"]]
    rows = [(f"BLEU of {LETTERS[name]}", *(f"{row[-1]:.1f}" for row in run["by_length"])) for name, run in runs.items()]
    return table(rows, ["words of the source", *lengths], "l" + "r" * len(lengths))


def bottleneck() -> str:
    """How far one vector is behind additive attention on single captions, short ones and long ones."""
    one, other = (result("ladder")["single"][name]["by_length"] for name in ("one context vector", "additive attention"))
    lost = [(longest, more - less) for (_, longest, _, less), (*_, more) in zip(one, other, strict=True)]
    middle = lost[len(lost) // 2][0]
    short, long = ([by for longest, by in lost if (longest <= middle) is which] for which in (True, False))
    return (
        f"One vector is behind attention at every length: by {min(short):.0f} to {max(short):.0f} points of BLEU up to {middle} words, "
        f"and by {min(long):.0f} to {max(long):.0f} beyond."
    )


def falls() -> str:
    """How BLEU falls from the shortest to the longest eighth of the joined captions."""
    runs = result("ladder")["joined"]
    named = {("the Transformer" if name == "Transformer" else name): run for name, run in runs.items()}
    ends = {name: (run["by_length"][0][-1], run["by_length"][-1][-1]) for name, run in named.items()}
    told = [f"from {first:.1f} to {last:.1f} with {name}" for name, (first, last) in ends.items()]
    overall = [f"{run['bleu']:.2f} with {name}" for name, run in named.items()]
    return (
        f"From the shortest eighth of the sources to the longest BLEU goes {', '.join(told)}. Over all lengths it is "
        f"{', '.join(overall)}."
    )


def hidden_context() -> str:
    """A table for each task, the gain over the first model of the same words seed by seed."""
    told = "{mean:.2f} ± {deviation:.2f}".format
    found = []
    for task in result("hidden-context")["tasks"]:
        rows = [
            (
                model["model"],
                told(**model["validation"]),
                told(**model["test"]),
                "{mean:+.2f} ± {deviation:.2f}".format(**model["gain"]).replace("-", "−") if "gain" in model else "",
            )
            for model in task["models"]
        ]
        found.append(table(rows, [task["name"], "validation", "test", "gain on the test"], "lrrr"))
    return "\n\n".join(found)


def beside(part: str, unit: str, first: str) -> str:
    """How much each does a second, and times the first."""
    found: dict[str, Any] = result("translation")["a_second"][part]
    rows = [(name, f"{rate:,.0f}", f"{rate / found[first]:.2f}") for name, rate in found.items()]
    return table(rows, [part, unit, f"× {first}"], "lrr")


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
