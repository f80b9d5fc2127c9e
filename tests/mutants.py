"""Mutants: one change of a module each, and whether any test fails on it. A mutant that survives is a rule that no test holds.

    make mutants MODULE=normalizers              # or: python tests/mutants.py normalizers [--sample 40] [--seed 0] [--out FILE]

cosmic-ray's operators make the changes; what is in an annotation is not changed. Each mutant is imported in a process of its own, forked from
one that has loaded torch, in the place of the module's source: no file is touched, and the native core of an editable installation
stays where it is. So tests that start overt in another process do not see it. A module is tested by the files that TESTS names for it.
"""

import argparse
import ast
import difflib
import importlib.machinery
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "overt"
RESULTS = ROOT / "tests" / "mutants.json"
TESTS = {
    "attention/normalizers": ["test_normalizers.py", "test_meaning.py"],
    "attention/scores": ["test_attend.py", "test_laws.py", "test_bad_input.py"],
    "attention/masks/base": ["test_masks.py", "test_bad_input.py"],
    "attention/masks/convert": ["test_masks.py", "test_bad_input.py"],
    "attention/masks/kinds": ["test_masks.py", "test_bad_input.py"],
    "attention/masks/ranges": ["test_masks.py", "test_bad_input.py"],
    "attention/kernels/call": ["test_attend.py", "test_bad_input.py", "test_plan.py"],
    "learn/loop/averaging": ["learn/test_checkpoint.py", "learn/test_training.py"],
    "learn/data/batches": ["learn/test_batches.py"],
    "learn/run/checkpoint": ["learn/test_checkpoint.py", "learn/test_training.py"],
    "learn/data/corpora": ["learn/test_corpora.py"],
    "learn/loop/gradient": ["learn/test_training.py"],
    "learn/tasks/labelling": ["learn/test_tasks.py"],
    "learn/tasks/language_model": ["learn/test_tasks.py"],
    "learn/loop/loss": ["learn/test_loss.py"],
    "learn/metrics": ["learn/test_metrics.py"],
    "learn/config/recipe": ["learn/test_recipe.py"],
    "learn/run/run_record": ["learn/test_resuming.py", "learn/test_training.py"],
    "learn/loop/schedule": ["learn/test_schedule.py"],
    "learn/tasks/build": ["learn/test_tasks.py"],
    "learn/data/tokenizer": ["learn/test_tokenizer.py"],
    "learn/loop/training": ["learn/test_training.py", "learn/test_resuming.py"],
    "learn/tasks/translation": ["learn/test_tasks.py"],
    "learn/translator": ["learn/test_translator.py"],
    "learn/loop/optimizer_step": ["learn/test_training.py", "learn/test_distributed.py"],
    "learn/data/vocabulary": ["learn/test_vocabulary.py"],
    "cli/evaluate": ["cli/test_train.py"],
    "cli/smooth": ["cli/test_smooth.py"],
    "cli/train": ["cli/test_train.py"],
    "cli/translate": ["cli/test_translate.py"],
}


class Mutant(NamedTuple):
    """A changed source, and where and how it differs."""

    source: str
    line: int
    operator: str
    change: str


def mutants(path: Path) -> list[Mutant]:
    """All mutants of a file, in the order of cosmic-ray's operators."""
    from cosmic_ray.ast import ast_nodes, get_ast  # pyright: ignore[reportMissingImports]
    from cosmic_ray.mutating import mutate_code  # pyright: ignore[reportMissingImports]
    from cosmic_ray.plugins import get_operator, operator_names  # pyright: ignore[reportMissingImports]

    source = path.read_text(encoding="utf-8")
    tree, annotated, found = get_ast(source), _annotated(source), []
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments():
            continue
        places = [start for node in ast_nodes(tree) for start, _ in kind().mutation_positions(node)]
        for number, place in enumerate(places):
            changed = mutate_code(source, kind(), number)
            if changed and changed != source and not any(first <= place < last for first, last in annotated):
                found.append(Mutant(changed, place[0], name.removeprefix("core/"), _change(source, changed)))
    return found


def _annotated(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations stand, which compute nothing."""
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            found.append(node.returns)
    return [((e.lineno, e.col_offset), (e.end_lineno or 0, e.end_col_offset or 0)) for e in found if e is not None]


def _change(source: str, changed: str) -> str:
    lines = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
    return " → ".join(line[1:].strip() for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def tested(path: Path, source: str, tests: list[str], seconds: float) -> str:
    """What tests in a process of its own say of a source in the place of the file: "survived", "killed" or "timeout"."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        _test(path, source, tests)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "killed"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def _test(path: Path, source: str, tests: list[str]) -> None:
    """Run the tests and end the process; the file's source, and no compiled copy of it, is what is given."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    loader = importlib.machinery.SourceFileLoader
    read, stats = loader.get_data, loader.path_stats

    def get_data(self: Any, name: str) -> bytes:
        return source.encode() if Path(name) == path else read(self, name)

    def path_stats(self: Any, name: str) -> Any:
        if Path(name) == path:
            raise OSError("not from a file")
        return stats(self, name)

    loader.get_data, loader.path_stats = get_data, path_stats  # type: ignore[method-assign]
    sys.dont_write_bytecode = True
    import pytest

    chosen = [str(ROOT / "tests" / name) for name in tests]
    os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", *chosen])) != 0)


def judged(path: Path, tests: list[str], sample: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Each mutant and what the tests say of it, once they have passed without one."""
    start, plain = time.monotonic(), path.read_text(encoding="utf-8")
    if (said := tested(path, plain, tests, 1200)) != "survived":
        sys.exit(f"{' '.join(tests)}: {said} without a mutant")
    seconds = 60 + 6 * (time.monotonic() - start)
    for mutant in sample:
        yield mutant, tested(path, mutant.source, tests, seconds)


def main() -> None:
    """Judge a sample of a module's mutants, or all, and note what came of them."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("module", choices=TESTS, metavar="module")
    asked.add_argument("--sample", type=int, help="how many mutants, drawn at random (default: all)")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--out", type=Path, default=RESULTS)
    told = asked.parse_args()
    import torch

    torch.set_num_threads(1)
    path = SOURCE / f"{told.module}.py"
    every = mutants(path)
    sample = every if told.sample is None else random.Random(told.seed).sample(every, min(told.sample, len(every)))
    count, survivors = {"killed": 0, "timeout": 0, "survived": 0}, []
    for number, (mutant, said) in enumerate(judged(path, TESTS[told.module], sample), 1):
        count[said] += 1
        print(f"{number}/{len(sample)} {said}: line {mutant.line}, {mutant.operator}: {mutant.change}", flush=True)
        if said == "survived":
            survivors.append({"line": mutant.line, "change": mutant.change})
    write(told, {"mutants": len(every), "sample": len(sample), **count, "survivors": survivors})


def write(told: argparse.Namespace, found: dict[str, Any]) -> None:
    """Put a module's counts into the file, beside those of the others."""
    from overt.bench.compact_json import compact_json
    from overt.bench.provenance import provenance
    from overt.files import whole

    held = json.loads(told.out.read_text()) if told.out.is_file() else {"modules": {}}
    sample = "" if told.sample is None else f" SAMPLE={told.sample}"
    head = {"command": f"make mutants MODULE={told.module}{sample}"} | provenance()
    # What tests say does not depend on the machine; why a survivor is no fault is written by hand, and stays.
    del head["machine"]
    reasons = {
        each["change"]: each["why"] for each in held["modules"].get(told.module, {}).get("survivors", []) if "why" in each
    }
    for each in found["survivors"]:
        if each["change"] in reasons:
            each["why"] = reasons[each["change"]]
    held["modules"][told.module] = head | found
    with whole(told.out) as place:
        place.write_text(compact_json({"modules": dict(sorted(held["modules"].items()))}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
