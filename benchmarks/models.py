"""The matrix of models: every model type of transformers that can be made small, timm, x-transformers and others, judged.

    HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 python -m benchmarks.models [--only NAME …] [--out docs/results/models.json]

Each is built with random weights and run alone, recorded by overt.lens under "eager" and "sdpa", and on overt's backend; a judge that is
not overt (matrix/judge.py) sees what attention ran. Arcs that overt.lens.edit blocks are removed by the judge too (matrix/edits.py).
`--sample COUNT` judges as many models, drawn by `--seed`. `--log FILE` keeps each line as it comes, and a run that is started again with it
goes on where it ended. The verdicts: exact, missing (why), refused (why), wrong, crashed; what cannot be built is listed with its reason.
"""

import argparse
import json
import os
import random
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.matrix import cases
from benchmarks.matrix.isolation import apart

# Set before any library is imported. The last runs flash-linear-attention's kernels on the processor.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
SECONDS = 90
WAYS = ("recording eager", "recording sdpa", "backend")


def main() -> None:
    """Run all, or some, and write what came of it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="+", metavar="NAME", help="these models, or libraries (transformers, timm, …)")
    options.add_argument("--sample", type=int, metavar="COUNT", help="as many of them, drawn at random")
    options.add_argument("--seed", type=int, default=0, help="what the draw begins from")
    options.add_argument("--log", type=Path, help="keep each line here as it comes, and leave out those that are there already")
    options.add_argument("--seconds", type=float, default=SECONDS, help="the time that one model gets")
    results.takes_out(options)
    requested = options.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    cases.prepare()
    lines = _logged(requested.log)
    chosen = cases.chosen(requested.only)
    if requested.sample is not None:
        chosen = random.Random(requested.seed).sample(chosen, min(requested.sample, len(chosen)))
    for case in chosen:
        if case.name not in lines:
            lines[case.name] = line = one(case, requested.seconds)
            _log(requested.log, line)
            print(_sentence(line), flush=True)
    models = [lines[case.name] for case in cases.all_cases() if case.name in lines]
    counts, seconds = counted(models), round(sum(line["seconds"] for line in models))
    print(json.dumps(counts))
    results.write(requested.out, seconds=seconds, versions=cases.versions(), counts=counts, models=models)
    sys.exit(bool(sum(each.get("wrong", 0) + each.get("crashed", 0) for each in counts["ways"].values())))


def one(case: cases.Case, seconds: float) -> dict[str, Any]:
    """One model in a process of its own: its line of the results."""
    start = time.perf_counter()
    line = {"name": case.name, "library": case.library} | apart(case.run, seconds)
    died = line.pop("died", None)
    if died is not None:
        line |= {way: {"verdict": "crashed", "why": died} for way in WAYS}
    return line | {"seconds": round(time.perf_counter() - start, 2)}


def counted(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """How many models there are of each verdict in each way, and how many could not be built."""
    built = [line for line in lines if "not built" not in line]
    ways = {way: dict(Counter(line[way]["verdict"] for line in built if way in line)) for way in WAYS}
    return {"models": len(lines), "built": len(built), "ways": ways, "edited": edited(built)}


def edited(lines: list[dict[str, Any]]) -> dict[str, int]:
    """Of the kinds that are recorded exactly and have an arc to remove: how many there are, and in how many all edits are exact."""
    exact = [line[way] for line in lines for way in WAYS[:2] if line.get(way, {}).get("edits")]
    kinds = {line["name"] for line in lines for way in WAYS[:2] if line.get(way, {}).get("edits")}
    wrong = {
        line["name"]
        for line in lines
        for way in WAYS[:2]
        if line.get(way, {}).get("edited", 0) < line.get(way, {}).get("edits", 0)
    }
    edits = sum(verdict["edits"] for verdict in exact)
    return {
        "kinds": len(kinds),
        "exact": len(kinds - wrong),
        "edits": edits,
        "exact edits": sum(each["edited"] for each in exact),
    }


def _sentence(line: dict[str, Any]) -> str:
    if "not built" in line:
        return f"{line['name']:32} not built: {line['not built'][:150]}"
    said = []
    for way in WAYS:
        verdict = line.get(way)
        if verdict is not None:
            why = f" ({verdict['why'][:160]})" if verdict["verdict"] in ("wrong", "crashed") else ""
            edits = f", edited {verdict['edited']} of {verdict['edits']}" if verdict.get("edits") else ""
            why += f" ({verdict['edit why'][:200]})" if "edit why" in verdict else ""
            said.append(f"{way} {verdict['verdict']}{edits}{why}")
    return f"{line['name']:32} {'; '.join(said)}"


def _logged(log: Path | None) -> dict[str, Any]:
    if log is None or not log.exists():
        return {}
    lines = [json.loads(each) for each in log.read_text(encoding="utf-8").splitlines()]
    return {line["name"]: line for line in lines}


def _log(log: Path | None, line: dict[str, Any]) -> None:
    if log is not None:
        with log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()
