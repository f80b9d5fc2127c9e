"""Whether overt became slower beside others: stored results against new ones of the same kind of machine.

    overt bench --quick --out first.json
    python -m benchmarks.regression stored.json first.json second.json

Compared are ratios, how many times as fast as the best other library overt was in the same run, since times differ between machines. A case
fails if its ratio is more than 15 % below the stored one in every new file: one slow run of a shared machine is not enough.
"""

import argparse
import json
import sys
from pathlib import Path

LARGEST_FALL = 0.15


def ratios(file: Path) -> dict[str, float]:
    """Of each case, how many times as fast as the best other overt's fastest path was."""
    cases = json.loads(file.read_text(encoding="utf-8"))["cases"]
    current = {}
    for case in cases:
        contenders = case["contenders"].items()
        beside = [result.get("times_best_other") for name, result in contenders if name.startswith("overt")]
        if numbers := [ratio for ratio in beside if ratio]:
            current[case["name"]] = max(numbers)
    return current


def falls(stored: dict[str, float], runs: list[dict[str, float]]) -> dict[str, list[float]]:
    """The cases that fell in every run, with what is left of their ratio in each."""
    common = stored.keys() & set.intersection(*(set(run) for run in runs))
    left = {name: [run[name] / stored[name] for run in runs] for name in sorted(common)}
    return {name: shares for name, shares in left.items() if max(shares) < 1 - LARGEST_FALL}


def main() -> int:
    """Print each case, and give 1 where one fell."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("stored", type=Path)
    options.add_argument("runs", type=Path, nargs="+")
    arguments = options.parse_args()
    stored, runs = ratios(arguments.stored), [ratios(file) for file in arguments.runs]
    common = stored.keys() & set.intersection(*(set(run) for run in runs))
    if not common:
        print("no case is in all of these files", file=sys.stderr)
        return 2
    fallen = falls(stored, runs)
    for name in sorted(common):
        now = ", ".join(f"{run[name]:.2f}" for run in runs)
        print(f"{name}: {stored[name]:.2f} times the best other, now {now}{'  FELL' if name in fallen else ''}")
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
