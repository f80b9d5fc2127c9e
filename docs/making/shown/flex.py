"""FlexAttention's interface, as benchmarks/kernels/flex_attention.py measured it."""

from pictures import result, table

from shown import machine, runs, seconds


def speeds() -> str:
    """Forward and backward beside the definition with all scores in memory, the slowest first."""
    measured = result("flex-attention")
    rows = [
        (row["case"], row["path"], seconds(row["overt"]), seconds(row["dense"]), f"{row['ratio']:.1f}")
        for row in measured["rows"]
    ]
    head = [
        f"{measured['tokens']:,} tokens, {measured['heads']} heads of {measured['features']}",
        "path",
        "overt",
        "dense",
        "times",
    ]
    return f"{table(rows, head, 'llrrr')}\n\n{machine(measured)}; medians of {runs(measured['runs'])}, in turns."


def in_blocks() -> str:
    """How many times as fast as the definition a mod that no kernel knows is."""
    ratios = [row["ratio"] for row in result("flex-attention")["rows"] if row["path"] == "blocked"]
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def memory() -> str:
    """By how much memory grows."""
    measured = result("flex-attention")
    rows = [(each["case"], *(f"{size:.0f}" for size in each["MB"])) for each in measured["memory"]]
    return table(rows, ["MB above the input, one head", *(f"{length:,} tokens" for length in measured["lengths"])], "lrrr")
