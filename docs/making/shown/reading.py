"""What heads were found to do, and what recording and a page cost."""

from typing import Any

import torch
from pictures import result, table

from shown import interval, machine, runs, seconds

LAYERS = range(6)


def marks(recording: Any, norms: Any) -> str:
    """How much of the weight, and of the length that is added, comes from the tokens at both ends of a text."""
    weights, by_norm = (
        torch.stack([each[head.captured.number, head.head].weights()[0] for head in recording.heads()])
        for each in (recording, norms)
    )
    ends = [0, weights.shape[-1] - 1]
    lengths = by_norm[..., ends].sum(-1)  # (heads, Q)
    weight, by_head, pooled = (
        weights[..., ends].sum(-1).mean(),
        (lengths / by_norm.sum(-1)).mean(),
        lengths.sum() / by_norm.sum(),
    )
    return (
        f"The {len(weights)} heads give {_percent(weight)} of their weight to [CLS] and [SEP], but on average only {_percent(by_head)} of "
        f"the length that a head adds to a token ({_percent(pooled)} of all length added) comes from there."
    )


def _percent(share: Any) -> str:
    return f"{100 * float(share):.0f} %"


def syntax() -> str:
    """The best head of each relation beside the best offset."""
    rows = [
        (
            f"**{row['relation']}**" if row["offset"] is None else row["relation"],
            f"{row['arcs']:,}",
            row["head"],
            f"{row['right']:.3f}",
            "" if row["offset"] is None else f"{row['offset']:+d}".replace("-", "−"),
            f"{row['right_by_offset']:.3f}",
            interval(row["difference"], "+"),
            f"{row['untrained']:.3f}",
        )
        for row in result("findings")["syntax"]["rows"]
    ]
    heads = ["relation", "arcs", "head", "right", "best offset", "right", "difference", "untrained"]
    return table(rows, heads, "lrlrrrrr")


def pronouns() -> str:
    """The best heads, and what is right as often without this attention."""
    actual = result("findings")["pronouns"]
    rows = [
        (head["name"], interval({"right": head["accuracy"], "interval": head["interval"]}), f"{head['p_value']:.3f}")
        for head in actual["heads"]
    ]
    rows += [(f"without: {name}", f"{right:.3f}", "") for name, right in actual["baselines"].items()]
    return table(rows, ["", "right", "p (all heads)"], "lrr")


def rollout() -> str:
    """Correlations with erasing, layer by layer."""
    actual = result("findings")["rollout"]["correlations"]
    rows = [
        (
            str(layer),
            interval(actual[f"raw {layer}"]),
            interval(actual[f"rollout {layer}"]),
            interval(actual[f"rollout − raw {layer}"], "+") if layer else "0",
            interval(actual[f"norms {layer}"]),
        )
        for layer in LAYERS
    ]
    return table(rows, ["layer", "raw attention", "rollout", "rollout − raw", "norms"], "lrrrr")


def at_length() -> str:
    """What recording a model and summarizing a layer cost at length, beside what they are recorded of."""
    message = {
        "plain": "GPT-2's shape (12 layers of 12 heads, 768 wide, random weights), {length:,} tokens: the forward pass",
        "recorded": '`record(model, keep="summary", map_size=256)`: maps, entropy, received, top 8, roles, residuals',
        "in one pass": "the same with `one_pass=True`",
        "fused attention": "{length:,} tokens, 8 heads of 64: torch's fused attention alone",
        "summarize": "`overt.summarize` with maps of 1,024 × 1,024 cells, entropy, received, top 8",
    }
    rows = []
    for name in ("recording-gpt2", "recording-layer"):
        for length, contenders in result(name)["lengths"].items():
            (_, plain), *_ = contenders.items()
            for contender, each in contenders.items():
                times = [f" ({each[kind] / plain[kind]:.2f} times)" if each is not plain else "" for kind in ("wall", "peak")]
                taken, memory = f"{seconds(each['wall'])}{times[0]}", f"{each['peak'] / 1e9:.2f} GB{times[1]}"
                rows.append((message[contender].format(length=int(length)), taken, memory))
    return f"{table(rows, ['', 'time', 'memory'])}\n\n({runs(result('recording-layer')['runs'])})"


def edited_at_length() -> str:
    """What one blocked arc in every layer costs, beside the plain pass."""
    measured = result("edit-at-length")
    ((length, contenders),) = measured["lengths"].items()
    plain, edited = contenders["plain"], contenders["edited"]
    return (
        f"{int(length):,} tokens, threads: {measured['threads']}, beside other work. With one arc blocked in all heads of all layers "
        f"it takes {edited['cpu'] / plain['cpu']:.2f} times the processor time ({seconds(edited['cpu'])} and {seconds(plain['cpu'])}), "
        f"{edited['wall'] / plain['wall']:.2f} times the time by the clock, and {edited['peak'] / plain['peak']:.2f} times the memory. "
        f"Medians of {measured['runs']} alternating runs."
    )


def named_parts() -> str:
    """Which part the split names in the induction lab, and the loss without it in the key, the query or the value, by seed."""
    ways = [f"loss without it in the {into}" for into in ("key", "query", "value")]
    rows = [
        (
            str(run["seed"]),
            f"{run['part']} ({run['texts']} of {run['of']} texts)",
            *(f"{run[way]:.2f}" for way in ("loss", *ways)),
        )
        for run in result("induction-why")["runs_by_seed"]
    ]
    return table(rows, ["seed", "named first", "loss", *ways], "rlrrrr")


def why() -> str:
    """What one score takes, beside the forward pass."""
    measured = result("why")
    taken = measured["seconds"]
    following, first, forward = (taken[step] for step in ("next score", "first score of a recording", "forward"))
    return (
        f"{seconds(following)} for each score of a recording after the first, {following / forward:.1f} forward passes of "
        f"{seconds(forward)}, and {seconds(first)} for the first one, which runs the model again. MiniLM, a sentence of 15 tokens, "
        f"medians of {measured['runs']} alternating runs ({machine(measured)})."
    )


def after_recording() -> str:
    """What is asked of a recording beside the forward pass that it is of."""
    measured = result("after-recording")
    message = {
        "forward": "the forward pass",
        "forward, recorded": "the forward pass, recorded",
        "verify": "`verify`",
        "roles": "`roles`, without tokens",
        "roles, with tokens": "`roles`, with tokens that all repeat",
        "roles, once more": "`roles` once more",
    }
    models = measured["models"].values()
    rows = [
        (name, *(f"{seconds(each[step])} ({each[step] / each['forward']:.2f} passes)" for each in models))
        for step, name in message.items()
    ]
    return table(rows, ["", *(f"{name}'s shape" for name in measured["models"])], "lrr")


def baselines() -> str:
    """What knows no attention."""
    actual = result("findings")["rollout"]["correlations"]
    return f"Vocabulary number: {interval(actual['vocabulary'])}. Place: {interval(actual['position'])}."


def pages() -> str:
    """The size and the time of a page, and how it moves."""
    actual = result("page")
    (_, short), (_, long), (_, head) = actual["pages"].items()
    slowest = min(actual["frames_a_second"].values())
    return (
        f"A page (`recording.page()`) of one causal head over 32,768 tokens takes {head['bytes'] / 1e6:.1f} MB and {head['seconds']:.1f} s "
        f"to make; in headless Chromium at 1280 × 800 the first picture comes after {actual['first_picture']:.2f} s, and zooming and "
        f"dragging keep {slowest:.0f} frames a second or more, whole map or single cells. All 72 heads of MiniLM take "
        f"{short['bytes'] / 1e6:.1f} MB at 128 tokens and {long['bytes'] / 1e6:.1f} MB at 512, made in {long['seconds']:.1f} s."
    )


def over_corpora() -> str:
    """What heads do in Winogender, and whether they do it elsewhere."""
    compared = result("survey")["compared"]
    measures = next(iter(compared.values()))["top"]
    shown = {
        name: [f"{each['top'][name]} of 5, {each['clear'][name]} differ" for each in compared.values()] for name in measures
    }
    rows = [(name, *cells) for name, cells in shown.items()]
    rows.append(("heads of one role", *(f"{each['roles']['same']} of {each['roles']['named']}" for each in compared.values())))
    return table(rows, ["measure", *compared], "lrr")


def pronoun_heads() -> str:
    """Heads picked by pronouns in Winogender, elsewhere."""
    rows = []
    for name, each in result("survey")["compared"].items():
        numbers = each["pronouns"]
        cells = [_ends(numbers[key]) for key in ("in Winogender", "here", "over all heads")]
        rows.append((name, str(numbers["texts"]), *cells, f"{numbers['among the five here']} of 5"))
    heads = ["corpus", "texts", "picked heads in Winogender", "here", "more than all heads here", "among the five here"]
    return table(rows, heads, "lrrrrr")


def survey_cost() -> str:
    """What a survey took."""
    measured = result("survey")
    tokens, time = sum(measured["tokens"].values()), sum(measured["seconds"].values())
    memory, page = measured["peak_bytes"] / 1e6, measured["page"]["bytes"] / 1e6
    return (
        f"{tokens:,} tokens in {time:.0f} s on {measured['threads']} thread, at most {memory:.0f} MB; a page of {page:.1f} MB"
    )


def _ends(numbers: list[float]) -> str:
    value, low, high = numbers
    return f"{value:.3f} [{low:.3f}, {high:.3f}]".replace("-", "−")


def effects() -> str:
    """What the effects of all arcs of one query take."""
    measured = result("effects")
    (_, forward), (what, taken) = measured["seconds"].items()
    return (
        f"{what.capitalize()} take {seconds(taken)}, {taken / forward:.0f} forward passes of {seconds(forward)}: MiniLM, each head "
        f'without the arc from "it" to each token, {measured["threads"]} threads, beside other work ({machine(measured)}).'
    )
