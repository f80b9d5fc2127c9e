"""Smoothing, as `benchmarks/denoising/compare.py` measured it: errors, times, real series."""

from statistics import geometric_mean, mean, median
from typing import Any

from pictures import result, table

from benchmarks.denoising.peers import PEERS
from benchmarks.denoising.published import best_published

OURS = "overt"
WINDOWED = ("both", "patch")
SERIES = {
    "taxi": "taxi rides, New York",
    "machine": "a machine's temperature",
    "tweets": "tweets that name a company",
    "oil": "a transformer's oil",
}


def scores() -> dict[str, dict[str, float]]:
    """The mean score of each smoother, by case."""
    actual = result("smoothing")["accuracy"]["scores"]
    return {name: {case: mean(each) for case, each in of.items()} for name, of in actual.items()}


def draws() -> int:
    """How many draws of the noise a score is the mean of."""
    return len(result("smoothing")["accuracy"]["scores"][OURS]["spikes 1"])


def best_other(case: str) -> tuple[str, float]:
    """The peer that leaves the least error."""
    return min(((name, of[case]) for name, of in scores().items() if name != OURS), key=lambda item: item[1])


def beside_the_best() -> str:
    """Ours, the best of the others chosen for each case afterwards, and the best published."""
    ours, rows = scores()[OURS], []
    for signal in dict.fromkeys(case.rpartition(" ")[0] for case in ours):
        pair = [f"{signal} {snr}" for snr in (1, 3)]
        others = [best_other(case) for case in pair]
        published = [best_published(signal, snr) for snr in (1, 3)]
        names = ", ".join(dict.fromkeys(name for name, _ in others))
        rows.append(
            (
                signal,
                " · ".join(f"{ours[case]:.1f}" for case in pair),
                " · ".join(f"{score:.1f}" for _, score in others) + f" ({names})",
                " · ".join(f"{each[1]:.1f}" for each in published if each),
            )
        )
    return table(rows, ["signal, SNR 1 · 3", "overt", "best of nine others", "best published"], "lrrr")


def others() -> str:
    """Whose each of the others is, and how it chooses."""
    return "; ".join(f"{each.name}: {each.description}" for each in PEERS) + "."


def ratios(name: str) -> list[float]:
    """A smoother's scores over those of the best peer in each case."""
    return [score / best_other(case)[1] for case, score in scores()[name].items()]


def overall() -> str:
    """The geometric mean of all scores of each smoother, and its worst ratio to the best peer."""
    means = {name: geometric_mean(of.values()) for name, of in scores().items()}
    names = sorted(means, key=lambda name: means[name])
    rows = [
        ("geometric mean of all", *(f"{means[name]:.1f}" for name in names)),
        ("worst ratio to the best other", *(f"{max(ratios(name)):.2f}" for name in names)),
    ]
    return table(rows, ["", *names], "l" + "r" * len(names))


def over_published() -> str:
    """How the scores compare with the best published ones."""
    actual = []
    for case, score in scores()[OURS].items():
        signal, _, snr = case.rpartition(" ")
        published = best_published(signal, int(snr))
        actual += [score / published[1]] if published else []
    return (
        f"Over the best published scores, of four of the signals, it comes to {geometric_mean(actual):.2f} in geometric mean and "
        f"{max(actual):.2f} at worst."
    )


def kinds_of_noise(measured: str = "noise-kinds", kinds: str = "noise") -> str:
    """Ours over the best peer of each cell, on the signals of the settings and on those kept aside; the largest losses first."""
    halves = result(measured)["halves"]
    development, test = halves["development"], halves["test"]
    rows = []
    for kind in sorted(test, key=lambda kind: -test[kind]["geometric mean"]):
        cell = test[kind]
        low, middle, high = cell["stated over true"]
        rows.append(
            (
                kind,
                *(f"{half[kind]['geometric mean']:.2f} · {half[kind]['worst']:.1f}" for half in (development, test)),
                cell["worst signal"],
                f"{cell['ahead']:.0%}",
                f"{middle:.2g} ({low:.2g} – {high:.2g})",
                _in_the_band(cell),
            )
        )
    heads = [kinds, "chosen on", "kept aside", "worst on", "ahead in", "stated / true risk", "truth in the band"]
    return table(rows, heads, "lrrlrrr")


def of_several_draws(measured: str = "noise-white-draws") -> str:
    """Ours over the peer of the least mean error over several draws of each signal and level, on the signals kept aside."""
    case = result(measured)["halves"]["test"]["white"]["by case"]
    return (
        f"Of so many peers one is lucky in each series. With {case['draws']} draws of each signal and level, and the peer whose mean error "
        f"over them is least, white noise has {case['geometric mean']:.2f} · {case['worst']:.2f} over {case['cases']} cases "
        f"(`--kind white --draws {case['draws']}`)."
    )


def with_periods(measured: str) -> str:
    """What `period="auto"` makes of the errors on signals that repeat."""
    key, test = 'error with period="auto"', result(measured)["halves"]["test"]
    errors = ", ".join(f"{kind} {cell[key]:.2f}" for kind, cell in test.items())
    return f'With `period="auto"` the error on the signals kept aside that repeat is so many times as large: {errors}.'


def _in_the_band(cell: dict[str, Any]) -> str:
    """The mean share of the truth inside the band, and how many series have none."""
    withheld = f"{cell['withheld']} withheld" if cell["withheld"] else ""
    inside = "" if cell["inside the band"] is None else f"{cell['inside the band']:.0%}"
    return ", ".join(part for part in (inside, withheld) if part)


def ablation() -> str:
    """The ratio of the errors without a part and with it: the part that helps most first."""
    variants = result("smoothing-ablation")["variants"]
    rows = []
    for name, row in sorted(variants.items(), key=lambda item: -item[1]["geometric mean"]):
        if name == "all":
            continue
        kind, most = max(row["kinds"].items(), key=lambda item: item[1])
        counts = f"{row['carried']} · {row['hindered']}"
        rows.append(
            (name, f"{row['geometric mean']:.3f}", f"{most:.3f}, {kind}", f"{row['largest']:.3g}, {row['largest of']}", counts)
        )
    return table(
        rows, ["part", "all series", "the kind that needs it most", "the series that needs it most", "worse · better"], "lrllr"
    )


def peers_of_noise() -> str:
    """What the default was compared with, and how many cells there are."""
    actual = result("noise-kinds")
    cells = sum(cell["cells"] for cell in actual["halves"]["test"].values())
    return f"{'; '.join(actual['peers'])}. There are {cells} cells of {actual['points']:,} points kept aside."


def real(errors: str) -> str:
    """Points left out of real series, alone ("errors") or in gaps ("gap_errors"); the best of a row is bold."""
    actual = result("smoothing-real")["real"]
    names = [OURS, *(name for name in actual[0][errors] if name != OURS)]
    rows = []
    for one in actual:
        least = min(one[errors].values())
        cells = [f"{one[errors][name]:.4f}" for name in names]
        rows.append((SERIES[one["name"]], *(f"**{cell}**" if cell == f"{least:.4f}" else cell for cell in cells)))
    heads = [{"line": "a line through the neighbours"}.get(name, name) for name in names]
    return table(rows, ["", *heads], "l" + "r" * len(heads))


def left_out() -> str:
    """Points left out of many real series: ours and each peer over the best peer of the series, picked afterwards."""
    measured = result("gaps")
    rows = []
    for half, name in (("development", "chosen on"), ("test", "kept aside")):
        for how, cell in measured["halves"][half].items():
            peers = (f"{cell['peers'][peer]:.2f}" for peer in measured["peers"])
            ours = f"{cell['mean']:.2f} · {cell['worst'][0]['ratio']:.1f}"
            rows.append((f"{name}, {cell['series']} series, {how}", ours, f"{cell['ahead']:.0%}", *peers))
    names = [{"line": "a line through the neighbours"}.get(name, name) for name in measured["peers"]]
    return table(rows, ["", OURS, "ahead in", *names], "l" + "r" * (2 + len(names)))


def far_behind() -> str:
    """The series kept aside where ours is farthest behind."""
    halves = result("gaps")["halves"]["test"]
    each = ("; ".join(f"{one['name']} {one['ratio']:.1f}" for one in cell["worst"]) for cell in halves.values())
    return ". ".join(f"{how.capitalize()}: {series}" for how, series in zip(halves, each, strict=True)) + "."


def _dials() -> dict[str, Any]:
    """All properties that were changed in small steps; the length of the series in a run of its own."""
    return result("cliffs")["dials"] | result("cliffs-length")["dials"]


def cliffs() -> str:
    """Where a small step of one property of the series changes a ratio by more than a half: first those where most bands stay."""
    jumps = [(dial, jump) for dial, turned in _dials().items() for jump in turned["jumps"]]
    jumps.sort(key=lambda pair: (not pair[1]["silent"], -max(pair[1]["factor"], 1 / pair[1]["factor"])))
    rows = [
        (
            dial,
            f"{jump['from']} to {jump['to']}",
            jump["of"],
            f"{jump['factor']:.2f}",
            "stays" if jump["silent"] else "withheld",
        )
        for dial, jump in jumps
    ]
    return table(rows, ["property", "step", "ratio", "changes by", "most bands"], "lllrl")


def steady() -> str:
    """The properties without such a step, and what was smoothed."""
    measured = result("cliffs")
    names = [dial for dial, turned in _dials().items() if not turned["jumps"]]
    count = len(measured["signals"])
    drawn = f"{count} development signals of {measured['points']} points, draws of each: {measured['draws']}"
    return f"{drawn}; peers: {'; '.join(measured['peers'])}." + (f" Without such a step: {', '.join(names)}." if names else "")


def beyond() -> str:
    """One season beyond the data: how often the band holds the truth, and root mean square errors, the worst trend first."""
    names = ["truth inside", "error", "of the last level", "of the last slope", "half width"]
    measured = sorted(result("smoothing-ends")["rows"], key=lambda row: row["of the last level"] / row["error"])
    rows = [(row["trend"], f"{row['truth inside']:.0%}", *(f"{row[name]:.2f}" for name in names[1:])) for row in measured]
    return table(rows, ["trend", *names], "lrrrrr")


def changes() -> str:
    """Changes of level and slope: the smooth curves that have one first, then hits and false alarms."""
    measured = result("smoothing-changes")
    hits, reported, true = measured["hits, reported, true"]
    still, series = measured["series without changes that have one"]
    curves = [(f"{name}s with a change", f"{some} of {of}") for name, (some, of) in measured["smooth"].items()]
    rows = [
        *curves,
        ("series without changes that have one", f"{still} of {series}"),
        ("changes located within two points", f"{hits} of {true}, {reported} reported"),
        ("F1", f"{measured['F1']:.2f}"),
        ("Brier score of the probability that an interval holds a change", f"{measured['Brier score of intervals']:.3f}"),
    ]
    others = sorted(measured["peers"].items(), key=lambda peer: -peer[1]["F1"])
    compared = [
        (
            name,
            f"{peer['F1']:.2f}",
            f"{peer['series without changes that have one']} of {series}",
            f"{peer['penalty']:.0f} log n",
        )
        for name, peer in others
    ]
    ours = ("overt", f"{measured['F1']:.2f}", f"{still} of {series}", "none")
    of_detectors = table([ours, *compared], ["", "F1", "series without changes that have one", "penalty"], "lrrr")
    title = "Other detectors, each with the penalty that is best for it on other seeds:"
    return f"{table(rows, ['', ''], 'lr')}\n\n{title}\n\n{of_detectors}"


def taken() -> str:
    """Seconds by length: single heads with their bandwidths given, and the default."""
    actual = result("smoothing-speed")
    columns = {
        "value": actual["heads"]["value"],
        "time, local lines": actual["heads"]["time"],
        "fastlowess": actual["heads"]["fastlowess"],
        "bilateral, ±200": actual["heads"]["both"],
        "patches, ±200": actual["heads"]["patch"],
        "the default": actual["speed"][OURS],
        "a tenth missing": actual["speed"][f"{OURS}, a tenth missing"],
    }
    sizes = list(columns["value"]["seconds"])
    rows = [
        (
            f"{int(size):,}",
            *(f"{each['seconds'][size]:.2g}" if size in each["seconds"] else "over 60" for each in columns.values()),
        )
        for size in sizes
    ]
    return table(rows, ["points", *columns], "r" * (len(columns) + 1))


def resources() -> str:
    """A sentence: what the whole command takes for many short series, and the memory of the default."""
    actual = result("smoothing-speed")["resources"]
    *shorter, (size, memory) = actual["memory"].items()
    others = " and ".join(f"{int(points):,} ({peak / 1e6:.0f} MB)" for points, peak in shorter)
    return (
        f"The whole command `overt smooth --group` takes {median(actual['seconds']):.1f} s for {actual['series']:,} series of"
        f" {actual['points']} points, from its start to the written file. The default's peak memory for {int(size):,} points is"
        f" {memory / 1e6:.0f} MB above the input; for {others}."
    )


def slopes() -> str:
    """Errors of slopes over those of PyNumDiff's methods, which are tuned with the truth: the largest losses first."""
    rows = []
    for half, parts in result("smoothing-derivatives")["halves"].items():
        for name, row in parts.items():
            over = f"{row['over the best method']:.2f} · {row['over the best of each series']:.2f}"
            rows.append((f"{half}, {name}", over, row["best method"], f"{row['inside the band']:.2f}", str(row["withheld"])))
    return table(
        rows, ["", "over the best method · over the best of each series", "method", "in the band", "withheld"], "lrlrr"
    )
