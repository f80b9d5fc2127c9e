"""What the kernels reach beside their targets, as kernel_rows.py, llama_cpp.py and scheduling.py of benchmarks/kernels measured it."""

from typing import Any, NamedTuple

from pictures import result, table

Measured = dict[str, Any]


class Row(NamedTuple):
    """One number beside its target, by how much that was reached, and what bounds it where it was not."""

    what: str
    measured: str
    target: str
    reached: float
    bound: str


def part(name: str) -> list[Measured]:
    """The rows of a part."""
    return result("kernel-rows")["parts"][name]


def ratio(row: Measured) -> float:
    """How many times as fast as torch."""
    return row["theirs"] / row["ours"]


def chosen(rows: list[Measured], **values: Any) -> list[Measured]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def times(what: str, rows: list[Measured], target: float, bound: str) -> Row:
    """The least that the rows reach, in times as fast as torch."""
    ratios = sorted(map(ratio, rows))
    measured = f"{ratios[0]:.2f} ×" if len(ratios) == 1 else f"{ratios[0]:.2f} to {ratios[-1]:.2f} ×"
    return Row(what, measured, f"{target:g} ×", ratios[0] / target, bound)


def decoding() -> str:
    """The time of a token's attention by what its keys are stored in, and how many times that of adding up the same bytes it is."""
    lines = {}
    for row in part("decoding"):
        heads, kv_heads = row["heads"]
        shape = "16 heads × 576 over 1, values a slice of keys" if kv_heads == 1 else f"{heads} heads × 128 over {kv_heads}"
        cell = f"{1e3 * row['ours']:.1f} ms, {row['ours'] / row['sum']:.2f} ×"
        lines.setdefault((shape, f"{row['keys']:,}"), {})[row["stored"]] = cell
    stores = ("float32", "bfloat16", "int8")
    rows = [(*shape, *(cells.get(store, "–") for store in stores)) for shape, cells in lines.items()]
    return table(rows, ["", "keys", *stores], "lrrrr")


def beside_llama_cpp() -> str:
    """One token's attention by llama.cpp and by `KVCache.step`, the fastest first, with what the outputs differ by from float64."""
    rows = []
    for row in sorted(result("llama-cpp")["rows"], key=lambda row: row["milliseconds"]):
        program = row["program"] if row["program"].startswith("llama.cpp") else f"overt, {row['program']}"
        rows.append((program, f"{row['milliseconds']:.1f} ms", f"{row['difference']:.1e}", f"{row['bound']:.1e}"))
    return table(rows, ["", "a token", "largest error", "error that rounding explains"], "lrrr")


_HALVES = "of 32 queries and 32 keys, which use registers less well than tiles of 64; dense, products are at 80 % of their peak"
# What keeps the named rows from their targets, by profile (`perf record` of the calls).
NAMED_BOUNDS = {
    "gates": "86 % are products, as without gates; two additions of a bias to each pair are the rest",
    "a 32nd": f"tiles {_HALVES}",
    "the same": f"tiles {_HALVES}",
    "summarize": "74 % are products, as many as in a forward pass; exponentials, entropies and the eight largest are 21 %, sums by key 3 %",
    "16 packed": "79 % are products, 6 % of them of pairs of two documents; softmax 12 %, transposed queries and output 8 %, which wait "
    "for memory. A loop of overt's own calls takes 0.96 of this time",
}


def named() -> str:
    """Named gates, blocks and statistics as a share of plain calls, those that are furthest from their targets first."""
    shares = [(row["ours"] / row["theirs"], row["target"], row["what"]) for row in part("named")]
    bounds = [next(text for start, text in NAMED_BOUNDS.items() if what.startswith(start)) for _, _, what in shares]
    rows = [
        (what, f"{share:.3f}", f"{target:.2f}", "" if share <= target else bound)
        for (share, target, what), bound in sorted(zip(shares, bounds, strict=True), key=lambda row: row[0][1] / row[0][0])
    ]
    return table(rows, ["", "share of the time", "target", "what bounds it"], "lrrl")


def units() -> str:
    """Half precision, and both passes, beside torch's fused kernel; those that fall shortest of their targets first."""
    goals = {
        ("bfloat16", False): ((2.2, 2.2), (3.0, 3.8)),
        ("bfloat16", True): ((2.0, 2.0), (2.5, 2.5)),
        ("float16", False): ((2.0, 2.0), (2.6, 2.6)),
        ("float32", True): ((1.35, 1.25), None),
    }
    shapes, rows = ([1, 8, 1024, 64], [4, 8, 512, 128]), []
    for (dtype, backward), by_mask in goals.items():
        for causal, targets in enumerate(by_mask):
            for shape, target in zip(shapes, targets or (), strict=bool(targets)):
                [row] = chosen(part("units"), shape=shape, dtype=dtype, causal=bool(causal), backward=backward)
                rate = _flops(row) * (3.5 if backward else 1)
                limit = row["multiply_adds"] * (4 if dtype == "bfloat16" else 2)
                what = f"{dtype}, {'both passes' if backward else 'forward'}, {tuple(shape)}, {'causal' if causal else 'dense'}"
                cells = (what, f"{ratio(row):.2f} ×", f"{target:g} ×", f"{rate / 1e9:.0f}", f"{100 * rate / limit:.0f} %")
                rows.append((ratio(row) / target, cells))
    cells = [row for _, row in sorted(rows)]
    return table(cells, ["", "measured", "wanted", "GFLOP/s", "of the unit's products"], "lrrrr")


def target_rows() -> list[Row]:
    """All rows."""
    return [*_calls(), *_short_and_long(), *_bias(), *_additive(), *_window()]


def _calls() -> list[Row]:
    bound = "torch's engine and its `autograd.Function` take about 40 of them with two empty kernels; torch's own operator takes {:.0f}"
    rows = []
    for backward, target in ((False, 12), (True, 60)):
        [row] = chosen(part("calls"), causal=False, backward=backward)
        theirs = 1e6 * row["theirs"]
        text = (
            bound.format(theirs)
            if backward
            else "the call into the core, a tensor for the output, and the conditions of a plain call; torch's own operator takes "
            f"{theirs:.0f}"
        )
        name = "a call with its backward pass" if backward else "a call"
        rows.append(Row(name, f"{1e6 * row['ours']:.0f} µs", f"{target} µs", target / (1e6 * row["ours"]), text))
    return rows


def _short_and_long() -> list[Row]:
    rows = []
    for backward, name in ((False, "forward"), (True, "with the backward pass")):
        text = "the call's Python, and tiles of 64 lanes of which 20 to 32 are used"
        rows.append(times(f"(32, 4, 32, 32) and (16, 8, 20, 32), {name}", chosen(part("short"), backward=backward), 1, text))
    for causal, target in ((False, 2), (True, 2.5)):
        here = chosen(part("long"), causal=causal, backward=False)
        shares = [_flops(row) / row["multiply_adds"] / 2 for row in here]
        limit = max(ratio(row) / share for row, share in zip(here, shares, strict=True))
        text = (
            f"multiply-adds: {100 * min(shares):.0f} to {100 * max(shares):.0f} % of their peak, all of which would be {limit:.1f} ×; "
            "more takes matrix units (AMX)"
        )
        name = "causal" if causal else "dense"
        rows.append(times(f"1,024 tokens and more, float32, {name}, forward", here, target, text))
    for causal in (False, True):
        here = chosen(part("avx2"), causal=causal)
        name = "causal" if causal else "dense"
        text = "the call's Python, where sequences are short"
        rows.append(times(f"both held to AVX2, {name}, short and long, both passes", here, 1, text))
    return rows


def _flops(row: Measured) -> float:
    batch, heads, length, width = row["shape"]
    pairs = length * (length + 1) / 2 if row["causal"] else length**2
    return 4 * batch * heads * pairs * width / row["ours"]


def _bias() -> list[Row]:
    return [times("a learned bias, forward", part("bias"), 1.3, "adding the bias's numbers, which are transposed for that")]


def _additive() -> list[Row]:
    rows = []
    for row in part("additive"):
        rate, products = row["terms"] / row["ours"], 9 / 4 + (11 + row["features"]) / row["features"]
        limit = row["multiply_adds"] / products
        bound = (
            f"products: {products:.2f} a term are {100 * rate / limit:.0f} % of this core's multiply-adds, all of which would be "
            f"{limit / 1e9:.1f}; and a division, a quarter a term, takes as long as six products in the units that multiply"
        )
        what = f"additive, {row['features']} features, forward, one core"
        rows.append(Row(what, f"{rate / 1e9:.1f}·10⁹ terms/s", "18", rate / 18e9, bound))
    return rows


def _window() -> list[Row]:
    rates = [row["operations"] / row["ours"] for row in part("window")]
    bound = "nothing is lost with the length: the shortest pass is the slowest here"
    measured = f"{rates[0] / 1e9:.0f} at 4,096 tokens to {rates[-1] / 1e9:.0f} GFLOP/s at 131,072"
    return [Row("a window of 512", measured, "within 10 %", min(1.0, min(rates) / max(rates) / 0.9), bound)]


def shown() -> str:
    """All rows as a table, those that fall shortest of their targets first."""
    rows = sorted(target_rows(), key=lambda row: row.reached)
    cells = [(row.what, row.measured, row.target, "" if row.reached >= 1 else row.bound) for row in rows]
    return table(cells, ["", "measured", "target", "what bounds it"], "lrrl")


def busy() -> str:
    """How busy many threads would be."""
    names = {"dot": "dot", "dot_gradients": "dot, backward", "additive": "additive", "additive_gradients": "additive, backward"}
    file = result("scheduling")
    rows = [
        (names[row["kernel"]], "{} × {}".format(*row["shape"]), *(f"{100 * each:.0f} %" for each in row["busy"]))
        for row in sorted(file["rows"], key=lambda row: min(row["busy"]))
    ]
    return table(
        rows,
        ["kernel", "heads × tokens", *(f"{count} threads" for count in file["simulated"])],
        "ll" + "r" * len(file["simulated"]),
    )
