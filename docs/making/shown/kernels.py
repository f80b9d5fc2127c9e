"""Dot products and additive attention, as `benchmarks/attention/compare.py` measured them, and whole models of other people's."""

from math import prod
from statistics import geometric_mean
from typing import Any

from pictures import result, table

from shown import runs as told_runs
from shown import seconds

OURS = "overt native"
DOTS = {"forward": "dot", "causal": "causal", "forward + backward": "dotgradients", "causal, both": "causalgradients"}


def cases(name: str) -> dict[str, dict[str, Any]]:
    """The cases of a result by their names."""
    return {case["name"]: case for case in result(name)["cases"]}


def speed(case: dict[str, Any], other: str = "torch SDPA") -> float:
    """How many times as fast overt is as another contender."""
    return case["contenders"][other]["median"] / case["contenders"][OURS]["median"]


def counts(case: dict[str, Any]) -> dict[str, int]:
    """How many runs each contender of a case has."""
    return {name: len(each["runs"]) for name, each in case["contenders"].items()}


def runs(name: str) -> str:
    """How many runs the medians are of: the number that most cases have, and every case that has fewer."""
    every = {case: counts(actual) for case, actual in cases(name).items()}
    most = max(max(each.values()) for each in every.values())
    fewer = {case: each for case, each in every.items() if set(each.values()) != {most}}
    message = f"Medians are of {most} runs, in turns" + ("" if fewer else ".")
    if not fewer:
        return message
    alike: dict[str, list[str]] = {}
    for case, each in fewer.items():
        same = len({*each.values()}) == 1
        what = str(max(each.values())) if same else ", ".join(f"{who} {count}" for who, count in each.items())
        alike.setdefault(what, []).append(f"`{case}`")
    rows = [(what, ", ".join(names)) for what, names in alike.items()]
    return f"{message}, in {len(every) - len(fewer)} of {len(every)} cases, and of fewer in these:\n\n{table(rows, ['runs', 'cases'])}"


def dot_speeds() -> dict[str, list[float]]:
    """Times as fast as torch for each shape (B, H, N, D), in the columns of DOTS."""
    actual: dict[str, list[float]] = {}
    for work in DOTS.values():
        for name, case in cases("dot").items():
            if name.startswith(f"{work}-"):
                batch, heads, length, _, features = case["shape"]
                actual.setdefault(f"{batch}, {heads}, {length}, {features}", []).append(speed(case))
    return actual


def dot_products() -> str:
    """Times as fast as torch, by shape."""
    rows = [(shape, *(f"{each:.2f}" for each in speeds)) for shape, speeds in dot_speeds().items()]
    return table(rows, ["(B, H, N, D)", *DOTS], "lrrrr")


def dot_means() -> str:
    """The geometric means, over all shapes and without the two smallest."""
    every = dot_speeds()
    large = {shape: speeds for shape, speeds in every.items() if prod(map(int, shape.split(", "))) > 2**18}
    (forward, both), (of_large, both_of_large) = (
        [geometric_mean(speed for speeds in of.values() for speed in speeds[columns]) for columns in (slice(2), slice(2, 4))]
        for of in (every, large)
    )
    left = " and ".join(f"({shape})" for shape in every if shape not in large)
    return (
        f"The geometric mean is **{forward:.2f}** forward and **{both:.2f}** with the backward pass; {of_large:.2f} and "
        f"{both_of_large:.2f} without the two smallest shapes, {left}."
    )


def dot_ceiling() -> str:
    """How near long forward passes come to a matrix product."""
    limit = result("dot")["ceilings"]["matmul"]
    long = [case for name, case in cases("dot").items() if name.startswith("dot-") and case["shape"][-2] >= 1024]
    rates = sorted(4 * case["terms"] / case["contenders"][OURS]["median"] for case in long)
    return (
        f"At N ≥ 1024 a forward pass runs at {rates[0] / 1e9:.0f} to {rates[-1] / 1e9:.0f} GFLOP/s, "
        f"{100 * rates[0] / limit:.0f} to {100 * rates[-1] / limit:.0f} % of the {limit / 1e9:.0f} of a matrix product of 2,048²."
    )


def dot_others() -> str:
    """What torch has no fused kernel for."""
    message = {"dropout": "dropout 0.1", "bias": "a learned bias (8, 1024, 1024)", "wide": "values of 128 features"}
    rows = [(message[case["work"]], f"{speed(case):.1f}") for case in cases("dot").values() if case["work"] in message]
    return table(rows, ["(1, 8, 1024, 64), forward + backward", "× torch"], "lr")


def derivatives(
    prefix: str = "",
    singles: tuple[str, str] = ("dot", "dotgradients"),
    others: tuple[str, ...] = ("torch MATH", "PyTorch eager"),
) -> str:
    """Derivatives of second order, with their first passes: times, and how many times as fast as others'."""
    message = {
        "derivativestangent": ("output and tangent, forward mode", singles[0]),
        "derivativesquery": ("the query's gradient, differentiated again", singles[1]),
        "derivatives": ("all gradients, differentiated again", singles[1]),
    }
    actual = {case["work"]: case for case in cases("derivatives").values()}
    rows = []
    for work, (text, single) in message.items():
        ours, first = actual[prefix + work]["contenders"][OURS]["median"], actual[single]["contenders"][OURS]["median"]
        rows.append(
            (text, seconds(ours), f"{ours / first:.1f}", *(f"{speed(actual[prefix + work], other):.1f}" for other in others))
        )
    names = (f"× {other.removeprefix('PyTorch ')}" for other in others)
    return table(rows, ["", "overt", "× first order", *names], "lrr" + "r" * len(others))


NORMALIZERS = ("sigmoid", "sum", "sparsemax", "entmax1.5", "entmax1.3")
SPREADS = {"normal": "", "queries × 6": ".peaked", "near-equal": ".equal"}


def normalizers() -> str:
    """Times as shares of a softmax's on the same call, forward · forward and backward; and how many times as fast as eager PyTorch."""
    measured = {case["work"]: case for case in cases("normalizers").values()}

    def pair(ratio: Any, work: str) -> str:
        both = [measured.get(work), measured.get(f"{work}.gradients")]
        return " · ".join(f"{ratio(case):.2f}" if case["contenders"] else "–" for case in both if case)

    def share(case: dict[str, Any]) -> float:
        return case["contenders"][OURS]["median"] / case["contenders"]["overt native, a softmax"]["median"]

    rows = [
        (
            name,
            *(pair(share, f"normalizers.{name}{ending}") for ending in SPREADS.values()),
            pair(lambda case: speed(case, "PyTorch eager"), f"normalizers.{name}"),
        )
        for name in NORMALIZERS
    ]
    return table(rows, ["", *SPREADS, "× eager, normal"], "lrrrr")


SCORES = {"manhattan": "−Σ\\|q − k\\|", "rectified": "Σ w relu(q + k)", "polynomial": "(1 + q · k / 8)²"}


def scores() -> str:
    """Scores of one's own at each length: times, and how many times as fast as warm torch.compile, forward · forward and backward."""
    measured = {(case["work"], case["shape"][2]): case for case in cases("scores").values()}
    rows = []
    for name, formula in SCORES.items():
        for tokens in sorted({length for work, length in measured if work == f"scores{name}"}):
            both = [measured[f"scores{name}{ending}", tokens] for ending in ("", "gradients")]
            rows.append(
                (
                    formula,
                    f"{tokens:,}",
                    " · ".join(seconds(case["contenders"][OURS]["median"]) for case in both),
                    " · ".join(f"{speed(case, 'torch.compile'):.1f}" for case in both),
                )
            )
    return table(rows, ["score", "tokens", "overt", "× torch.compile"], "lrrr")


def half_precision() -> str:
    """Times as fast as torch in half precision, by shape and number type."""
    works = {
        "forward": "half",
        "causal": "halfcausal",
        "forward + backward": "halfgradients",
        "causal, both": "halfcausalgradients",
    }
    actual: dict[tuple[str, str], list[str]] = {}
    for work in works.values():
        for case in (case for case in cases("dot-more").values() if case["work"] == work):
            batch, heads, length, _, features = case["shape"]
            actual.setdefault((case["dtype"], f"{batch}, {heads}, {length}, {features}"), []).append(f"{speed(case):.2f}")
    return table([(*row, *speeds) for row, speeds in actual.items()], ["", "(B, H, N, D)", *works], "llrrrr")


def masks_of_values() -> str:
    """Times as fast as torch under masks whose values alone say what they are: three that are ranges, and one that is not."""
    works = {
        "packed": "32 documents of 8,254 tokens, beside a loop over them",
        "padding": "padding as a bool tensor (4, 1, 1, 1024)",
        "tril": "a causal mask as a bool tensor (1024, 1024)",
        "scattered": "a bool tensor that allows 7 of 10 pairs, here and there (1024, 1024)",
    }
    actual = {case["work"]: f"{speed(case):.1f}" for case in cases("dot-more").values()}
    rows = [(message, actual[work], actual[f"{work}gradients"]) for work, message in works.items()]
    return table(rows, ["", "forward", "forward + backward"], "lrr")


LIBRARIES = {
    "torch.compile": ("dot", "causal", "dotgradients", "causalgradients"),
    "FlexAttention": ("dot", "causal"),
    "ONNX Runtime": ("dot", "causal"),
}


def dot_libraries() -> str:
    """Times as fast as other ways to dot products, by shape; those that fall shortest come first."""
    columns = [(name, work) for name, works in LIBRARIES.items() for work in works]
    by_shape: dict[str, dict[tuple[str, str], float]] = {}
    for case in cases("dot").values():
        for name in LIBRARIES:
            if name in case["contenders"] and (name, case["work"]) in columns:
                batch, heads, length, _, features = case["shape"]
                by_shape.setdefault(f"{batch}, {heads}, {length}, {features}", {})[name, case["work"]] = speed(case, name)
    names = {work: name for name, work in DOTS.items()}
    ordered = sorted(by_shape.items(), key=lambda row: min(row[1].values()))
    rows = [(shape, *(f"{ratios[column]:.2f}" if column in ratios else "" for column in columns)) for shape, ratios in ordered]
    return table(rows, ["(B, H, N, D)", *(f"{name}, {names[work]}" for name, work in columns)], "l" + "r" * len(columns))


def flex_forward() -> str:
    """The least and the most of how many times as fast as FlexAttention a forward pass is, on a CPU."""
    ratios = [speed(case, "FlexAttention") for case in cases("dot").values() if "FlexAttention" in case["contenders"]]
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def half_behind() -> str:
    """By how many percent torch is faster in a long dense forward pass in bfloat16, at most."""
    here = [case for case in cases("dot-more").values() if case["work"] == "half" and case["dtype"] == "bfloat16"]
    return f"{100 * (1 / min(map(speed, here)) - 1):.0f} %"


def dot_step() -> str:
    """One query against a long cache."""
    [case] = [case for case in cases("dot").values() if case["work"] == "step"]
    copy, of_eight_heads = result("dot")["ceilings"]["copy"], 2 * 4 * 8 * prod(case["shape"][-2:])
    rate = of_eight_heads / case["contenders"][OURS]["median"]
    return (
        f"One query for each of 32 heads over 8 of keys and values, 16,384 of them cached: **{speed(case):.1f}** times as fast as torch "
        f"with `enable_gqa`, {speed(case, 'torch SDPA, heads packed'):.1f} times with the heads of a group packed by hand and "
        f"{speed(case, 'ONNX Runtime'):.1f} times as fast as ONNX Runtime's GroupQueryAttention, reading {rate / 1e9:.1f} GB/s, "
        f"{100 * rate / copy:.0f} % of what copying runs at ({copy / 1e9:.1f} GB/s)."
    )


def dot_batch() -> str:
    """One query for each of many short texts."""
    [case] = [case for case in cases("dot").values() if case["work"] == "batch"]
    texts, heads, _, keys, features = case["shape"]
    return (
        f"One query for each of {heads} heads of {texts} texts, {keys} keys of {features} features each, as translating a batch asks at "
        f"every word: **{speed(case):.1f}** times as fast as torch."
    )


def hugging_face() -> str:
    """Whole models of other people's."""
    rows = [
        (message, seconds(times["sdpa"]), seconds(times["overt"]), f"{times['sdpa'] / times['overt']:.2f}")
        for message, times in result("hugging-face")["seconds"].items()
    ]
    actual = table(rows, ["Hugging Face models", "`sdpa`", "`overt`", "times as fast"], "lrrr")
    return f"{actual}\n\nMedians; {told_runs(result('hugging-face')['runs'])}."


def additive(*, bounds: bool = True) -> str:
    """Additive attention beside the fastest other, and with `bounds` what share of the machine's limit it reaches."""
    actual, rows = cases("additive"), []
    for name in [name for name in actual if name.startswith("additive-")]:
        cells = [f"({', '.join(map(str, actual[name]['shape']))})"]
        for case in (actual[name], actual[name.replace("additive-", "gradients-")]):
            ours = case["contenders"][OURS]
            cells += [seconds(ours["median"]), f"{speed(case, best_other(case)):.1f} ({best_other(case)})"]
            cells += [f"{100 * ours['share_of_bound']:.0f} %"] if bounds else []
        rows.append(cells)
    heads = [head for both in ("forward", "forward and backward") for head in (both, "× best other", "of bound")[: 2 + bounds]]
    return table(rows, ["additive attention (B, Q, K, D = E)", *heads], "l" + "r" * len(heads))


def best_other(case: dict[str, Any]) -> str:
    """The fastest that is not overt's."""
    others = {name: each["median"] for name, each in case["contenders"].items() if not name.startswith("overt")}
    return min(others, key=others.__getitem__)


def divider() -> str:
    """How long the divisions of the first case take by themselves, beside its products."""
    bound = next(iter(cases("additive").values()))["bound"]
    share = bound["division"] / max(bound["arithmetic"], bound["memory"])
    return f"At the rates of this machine the divisions of the first row take {100 * share:.0f} % of what its products do, beside them."


def additive_long() -> str:
    """A long sequence's memory, and a summary."""
    by_work = {case["work"]: case for case in cases("additive").values()}
    memory, summary = by_work["memory"], by_work["summary"]
    ours, fused = memory["contenders"][OURS], summary["contenders"]["torch SDPA"]
    written = 4 * 4 * prod(memory["shape"][-2:])  # output, and gradients of queries, keys and values
    used = (
        f"{ours['bytes_above_inputs'] / 1e6:.1f} MB above the inputs, of which {written / 1e6:.1f} MB are output and gradients"
    )
    beside = f"{seconds(summary['contenders'][OURS]['median'])}; one forward pass of torch SDPA {seconds(fused['median'])}"
    rows = [
        ("(1, 16384, 16384, 128), forward and backward", f"{seconds(ours['median'])}, {used}"),
        ("summary (top 8, entropy, received, 512 × 512 map) of (1, 8, 8192, 64), dot", beside),
    ]
    return table(rows, ["", ""])
