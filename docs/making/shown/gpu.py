"""The kernels for GPUs: times of `benchmarks/attention`, and what they take of a GPU, by benchmarks/kernels/gpu_resources.py."""

from typing import Any

from pictures import result, table

# The least instructions a term: of the forward pass; of scores made again, and of sums, with queries and with keys of a program's own.
LEAST = (3, (3, 6.25), (3, 5.25))
MULTIPROCESSORS, LANES, CLOCK, TANHS = 132, 4 * 32, 1.755e9, 16  # of an H100; tanhs are its special-function units', a clock
SHAPE, TERMS = (8, 2048, 2048, 128), 8 * 2048 * 2048 * 128


def times() -> str:
    """The cases of `benchmarks/attention --device cuda`, the slowest beside other libraries first."""
    rows = []
    for case in sorted(result("gpu")["cases"], key=_ratio, reverse=True):
        others = sorted((one["median"], name) for name, one in case["contenders"].items() if not name.startswith("overt"))
        ours = case["contenders"]["overt triton"]
        memory = f"{ours['bytes_above_inputs'] / 1e6:.0f} MB" if ours["bytes_above_inputs"] else ""
        rows.append(
            (
                case["name"],
                f"{1e3 * ours['median']:.1f}",
                ", ".join(f"{name} {1e3 * median:.1f}" for median, name in others),
                f"{_ratio(case):.2f}" if others else "",
                f"{100 * ours['share_of_bound']:.0f} %",
                memory,
            )
        )
    heads = ["case", "overt, ms", "others, ms", "× the fastest other's time", "of bound", "memory above the inputs"]
    return table(rows, heads)


def _ratio(case: dict[str, Any]) -> float:
    """Overt's time over that of the fastest other; 0 where there is none."""
    times_other = case["contenders"]["overt triton"]["times_best_other"]
    return 1 / times_other if times_other else 0.0


def kernels(name: str) -> list[dict[str, Any]]:
    """The kernels of that name, in order."""
    return [kernel for kernel in result("gpu-resources")["kernels"] if kernel["kernel"] == name]


def loops(kernel: dict[str, Any]) -> list[float]:
    """Instructions a term in each loop over features."""
    return [sum(loop.values()) for loop in kernel["a_term"]]


def resources() -> str:
    """Registers, memory, and instructions a term."""
    [forward], (query_rows, key_rows) = kernels("forward"), kernels("gradients")
    [query_statistics], [key_statistics] = kernels("query_statistics"), kernels("key_statistics")
    message = {
        "forward": ([forward], (LEAST[0],)),
        "gradients, own queries: scores again · sums": ([query_rows], LEAST[1]),
        "gradients, own keys: scores again · sums": ([key_rows], LEAST[2]),
        "summary, own queries (8 largest weights) · own keys (map)": ([query_statistics, key_statistics], ()),
    }
    rows = []
    for name, (actual, least) in message.items():
        rates = " · ".join(f"{rate:.2f}" for rate in loops(actual[0]))
        rows.append(
            (
                name,
                " · ".join(str(kernel["registers"]) for kernel in actual),
                " · ".join(str(kernel["spilled"]) for kernel in actual),
                " · ".join(f"{kernel['shared'] / 1024:.0f}" for kernel in actual) + " KiB",
                f"{actual[0]['programs']}, of {actual[0]['warps']} warps",
                f"{rates}, {' · '.join(map(str, least))}" if least else "",
            )
        )
    heads = [
        "kernel",
        "registers",
        "spilled, B a thread",
        "shared memory",
        "programs a multiprocessor",
        "instructions a term, the least",
    ]
    return table(rows, heads)


def least_time() -> str:
    """What the instructions allow on an H100, and what they are."""
    [forward], gradients = kernels("forward"), kernels("gradients")
    [rate], loop = loops(forward), forward["a_term"][0]
    both, least = rate + sum(map(sum, map(loops, gradients))), LEAST[0] + sum(map(sum, LEAST[1:]))
    a_second = MULTIPROCESSORS * LANES * CLOCK
    tanhs = TERMS / (MULTIPROCESSORS * TANHS * CLOCK)
    return (
        f"Of the {rate:.2f} in the forward pass {loop['FFMA']:g} are multiply-adds, {loop['FMUL']:g} multiplications, {loop['FADD']:g} "
        f"additions, {loop['MUFU.RCP']:g} reciprocals; the rest reads features ({loop['LDG']:.2f}), counts, and "
        f"computes addresses.\n\n"
        f"An H100 issues {MULTIPROCESSORS} · 4 · 32 of them a clock: at {CLOCK / 1e9:g} GHz the forward pass at (B, Q, K, D) = {SHAPE}, "
        f"{TERMS / 1e9:.1f}·10⁹ terms, cannot take less than {1e3 * rate * TERMS / a_second:.2f} ms as it is compiled, which is "
        f"{100 * LEAST[0] / rate:.0f} % of what three instructions a term would allow, where its special-function units would need "
        f"{1e3 * tanhs:.2f} ms for a tanh a term. Forward and backward together issue {both:.0f} instructions a term, so "
        f"{1e3 * both * TERMS / a_second:.1f} ms; the least is {least:g}."
    )
