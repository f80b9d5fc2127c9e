"""Mutants: one change of a module each, and whether any test fails on it. A mutant that survives is a rule that no test holds.

    make mutants MODULE=attention/normalizers    # or: python tests/house/mutants.py MODULE … [--sample 40] [--seed 0] [--out FILE]

cosmic-ray's operators make the changes; what is in an annotation is not changed. Each mutant is imported in a process of its own, forked from
one that has loaded torch and the like, in the place of the module's source: no file is touched, and the native core of an editable installation
stays where it is. Tests that start Python in another process would not see the mutant, and are left out. A module is tested by the files that TESTS names for it.
"""

import argparse
import ast
import difflib
import importlib
import importlib.machinery
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "overt"
RESULTS = Path(__file__).with_name("mutants.json")
PRELOADED = [
    *("torch._dynamo", "transformers", "accelerate", "tokenizers", "safetensors.torch", "sacrebleu", "pandas"),
    *("matplotlib.pyplot", "typer", "rich.progress"),
]
TESTS = {
    "attention/normalizers": ["attention/pieces/test_normalizers.py", "attention/promises/test_meaning.py"],
    "attention/scores": ["attention/test_attend.py", "attention/promises/test_laws.py", "attention/inputs/test_bad_input.py"],
    "attention/masks/base": ["attention/pieces/test_masks.py", "attention/inputs/test_bad_input.py"],
    "attention/masks/convert": ["attention/pieces/test_masks.py", "attention/inputs/test_bad_input.py"],
    "attention/masks/kinds": ["attention/pieces/test_masks.py", "attention/inputs/test_bad_input.py"],
    "attention/masks/ranges": ["attention/pieces/test_masks.py", "attention/inputs/test_bad_input.py"],
    "attention/kernels/call": [
        "attention/test_call.py",
        "attention/test_attend.py",
        "attention/inputs/test_bad_input.py",
        "attention/test_plan.py",
    ],
    "learn/metrics": ["learn/test_metrics.py"],
    "learn/translator": ["learn/test_translator.py"],
    "learn/config/recipe": ["learn/test_recipe.py"],
    "learn/data/batches": ["learn/data/test_batches.py"],
    "learn/data/corpora": ["learn/data/test_corpora.py"],
    "learn/data/tokenizer": ["learn/data/test_tokenizer.py"],
    "learn/data/vocabulary": ["learn/data/test_vocabulary.py"],
    "learn/loop/averaging": ["learn/run/test_checkpoint.py"],
    "learn/loop/distributed": ["learn/loop/test_distributed.py", "learn/loop/test_training.py"],
    "learn/loop/gradient": ["learn/loop/test_training.py"],
    "learn/loop/loss": ["learn/loop/test_loss.py"],
    "learn/loop/optimizer_step": ["learn/loop/test_training.py", "learn/loop/test_distributed.py"],
    "learn/loop/schedule": ["learn/loop/test_schedule.py"],
    "learn/loop/training": ["learn/loop/test_training.py", "learn/run/test_resuming.py"],
    "learn/run/checkpoint": ["learn/run/test_checkpoint.py"],
    "learn/run/model_folder": ["learn/run/test_model_folder.py"],
    "learn/run/run_record": ["learn/run/test_resuming.py"],
    "learn/tasks/build": ["learn/test_tasks.py"],
    "learn/tasks/labelling": ["learn/test_tasks.py"],
    "learn/tasks/language_model": ["learn/test_tasks.py"],
    "learn/tasks/translation": ["learn/test_tasks.py"],
    "cli/bench": ["cli/test_bench.py"],
    "cli/demo": ["cli/test_demo.py"],
    "cli/doctor": ["cli/test_doctor.py"],
    "cli/evaluate": ["cli/test_evaluate.py"],
    "cli/explain": ["cli/test_explain.py", "cli/shared/test_outputs.py"],
    "cli/shared/inputs": ["cli/shared/test_inputs.py"],
    "cli/main": ["cli/test_main.py"],
    "cli/smooth": ["cli/test_smooth.py"],
    "cli/train": ["cli/test_train.py"],
    "cli/translate": ["cli/test_translate.py"],
    "cli/shared/translator_as_text_model": ["cli/test_translate.py"],
    "cli/view": ["cli/test_view.py"],
}


class Mutant(NamedTuple):
    """A changed source, and where and how it differs."""

    source: str
    line: int
    column: int
    operator: str
    change: str


def mutants(path: Path) -> list[Mutant]:
    """All mutants of a file, in the order of cosmic-ray's operators."""
    from cosmic_ray.ast import ast_nodes, get_ast  # pyright: ignore[reportMissingImports]
    from cosmic_ray.mutating import mutate_code  # pyright: ignore[reportMissingImports]
    from cosmic_ray.plugins import get_operator, operator_names  # pyright: ignore[reportMissingImports]

    source = path.read_text(encoding="utf-8")
    tree, annotated, changes = get_ast(source), _annotated(source), []
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments():
            continue
        starts = [start for node in ast_nodes(tree) for start, _ in kind().mutation_positions(node)]
        for number, start in enumerate(starts):
            changed = mutate_code(source, kind(), number)
            if (
                changed
                and changed != source
                and _compiles(changed)
                and not any(first <= start < last for first, last in annotated)
            ):
                changes.append(Mutant(changed, start[0], start[1], name.removeprefix("core/"), _change(source, changed)))
    return changes


def _compiles(source: str) -> bool:
    """Whether it is Python: cosmic-ray takes the stars of f(*many) for operators."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of "is" beside a number, for one
            compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _annotated(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations stand, which compute nothing."""
    hints: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg | ast.AnnAssign):
            hints.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            hints.append(node.returns)
    return [((e.lineno, e.col_offset), (e.end_lineno or 0, e.end_col_offset or 0)) for e in hints if e is not None]


def _change(source: str, changed: str) -> str:
    lines = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
    return " → ".join(line[1:].strip() for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def tested(path: Path, source: str, tests: list[str], seconds: float) -> str:
    """What tests in a process of its own say of a source in the place of the file: "survived", "killed" or "timeout"."""
    with tempfile.TemporaryDirectory() as folder:  # where a mutant may leave what it wrongly writes
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.chdir(folder)
            _test(path, source, tests)
        return _verdict(child, seconds)


def _verdict(child: int, seconds: float) -> str:
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
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # pytest warns of plugins whose packages are loaded before it
    import pytest

    class Popen(subprocess.Popen):
        def __init__(self, args: Any, *others: Any, **options: Any):
            if args[0] == sys.executable:
                pytest.skip("another process has no mutant")
            super().__init__(args, *others, **options)

    subprocess.Popen = Popen  # type: ignore[misc]
    chosen = [str(ROOT / "tests" / name) for name in tests]
    os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *chosen])) != 0)


def judged(path: Path, tests: list[str], sample: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Each mutant and what the tests say of it, once they have passed without one."""
    start, plain = time.monotonic(), path.read_text(encoding="utf-8")
    if (verdict := tested(path, plain, tests, 1200)) != "survived":
        sys.exit(f"{' '.join(tests)}: {verdict} without a mutant")
    seconds = 60 + 6 * (time.monotonic() - start)
    for mutant in sample:
        yield mutant, tested(path, mutant.source, tests, seconds)


def main() -> None:
    """Judge a sample of each module's mutants, or all, and note what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", choices=TESTS, metavar="module")
    parser.add_argument("--sample", type=int, help="how many mutants, drawn at random (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    preload()
    for module in options.modules:
        write(options.out, module, judge(module, options.sample, options.seed))


def preload() -> None:
    """Load the packages of others that tests need, so that a forked process has them at once."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg", "TOKENIZERS_PARALLELISM": "false"}
    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    import torch

    torch.set_num_threads(1)


def judge(module: str, size: int | None, seed: int) -> dict[str, Any]:
    """How many mutants of a module's sample the tests killed, and which survived."""
    path = SOURCE / f"{module}.py"
    every = mutants(path)
    sample = every if size is None else drawn(every, size, random.Random(seed))
    counts, survivors = {"killed": 0, "timeout": 0, "survived": 0}, []
    for number, (mutant, verdict) in enumerate(judged(path, TESTS[module], sample), 1):
        counts[verdict] += 1
        print(f"{module} {number}/{len(sample)} {verdict}: line {mutant.line}, {mutant.operator}: {mutant.change}", flush=True)
        if verdict == "survived":
            survivors.append({"line": mutant.line, "change": mutant.change})
    return {"seed": seed, "mutants": len(every), "sample": len(sample), **counts, "survivors": survivors}


def drawn(every: list[Mutant], size: int, generator: random.Random) -> list[Mutant]:
    """At most `size` mutants, one of each place: an operator has eleven replacements, most of which any test notices."""
    groups: dict[tuple[int, int, str], list[Mutant]] = {}
    for mutant in every:
        groups.setdefault((mutant.line, mutant.column, mutant.operator.partition("_")[0]), []).append(mutant)
    return [generator.choice(one) for one in generator.sample(list(groups.values()), min(size, len(groups)))]


def write(path: Path, module: str, run: dict[str, Any]) -> None:
    """Put a run into the file, in the place of an earlier one of the same seed; why a survivor is no fault stays."""
    from overt.bench.compact_json import compact_json
    from overt.bench.provenance import provenance
    from overt.files import whole

    modules = json.loads(path.read_text())["modules"] if path.is_file() else {}
    earlier = modules.get(module, [])
    reasons = {each["change"]: each["why"] for each in chain(*(one["survivors"] for one in earlier)) if "why" in each}
    for survivor in run["survivors"]:
        if survivor["change"] in reasons:
            survivor["why"] = reasons[survivor["change"]]
    # What tests say does not depend on the machine.
    origin = {name: value for name, value in provenance().items() if name != "machine"}
    others = [one for one in earlier if one["seed"] != run["seed"]]
    modules[module] = sorted([*others, origin | run], key=lambda one: one["seed"])
    with whole(path) as temporary:
        temporary.write_text(compact_json({"modules": dict(sorted(modules.items()))}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
