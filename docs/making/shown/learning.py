"""Training: the ladder on Multi30k, hidden states with their context, and speed beside other libraries."""

from typing import Any

from pictures import result, table

LETTERS = {"one context vector": "(a)", "additive attention": "(b)", "and self-attention [h, c]": "(c)", "Transformer": "(d)"}


def ladder() -> str:
    """What each translator came to."""
    runs = {f"{LETTERS[name]} {name}": run for name, run in result("ladder")["single"].items()}
    runs["(b) trained as (a) and (c)"] = result("ladder")["alike"]["additive attention"]
    rows = [
        (
            name,
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
    heads = ["", "BLEU, test", "chrF", "BLEU, validation", "parameters, 10⁶", "updates", "target tokens, 10⁶", "minutes"]
    return table(rows, heads, "l" + "r" * 7)


def by_length(part: str) -> str:
    """BLEU by the words of the source, of single captions or of joined ones."""
    runs = result("ladder")[part]
    lengths = [f"{shortest}–{longest}" for shortest, longest, *_ in next(iter(runs.values()))["by_length"]]
    rows = [(f"BLEU of {LETTERS[name]}", *(f"{row[-1]:.1f}" for row in run["by_length"])) for name, run in runs.items()]
    return table(rows, ["words of the source", *lengths], "l" + "r" * len(lengths))


def bottleneck() -> str:
    """How far one vector is behind additive attention that was trained alike, on single captions, short ones and long ones."""
    one = result("ladder")["single"]["one context vector"]["by_length"]
    other = result("ladder")["alike"]["additive attention"]["by_length"]
    lost = [(longest, more - less) for (_, longest, _, less), (*_, more) in zip(one, other, strict=True)]
    middle = lost[len(lost) // 2][0]
    short, long = ([by for longest, by in lost if (longest <= middle) is which] for which in (True, False))
    return (
        f"At every length one vector is behind attention that was trained alike: by {min(short):.0f} to {max(short):.0f} points of BLEU "
        f"up to {middle} words, and by {min(long):.0f} to {max(long):.0f} beyond."
    )


def level(told: str) -> str:
    """What self-attention in the encoder adds to additive attention that was trained alike."""
    alike = result("ladder")["alike"]["additive attention"]["bleu"]
    context = result("ladder")["single"]["and self-attention [h, c]"]["bleu"]
    return (
        f"States of the encoder that attend to each other as well, {told}, come to {context:.2f}, and plain attention that was "
        f"trained like them, in larger batches and asked by the previous state, to {alike:.2f}: with one seed, no difference that counts."
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
