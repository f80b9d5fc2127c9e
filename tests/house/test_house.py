"""The rules of the house, read from its files: who may import whom, how long things are, that every example runs."""

import ast
import doctest
import functools
import importlib
import io
import pkgutil
import re
import subprocess
import sys
import tokenize
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import overt
from overt.errors import install_command

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

# Imports go down: a module may import what stands on a lower floor, and its own package.
FLOORS = [
    {"errors"},
    {"reading"},
    {"files", "native"},
    {"attention.check"},
    {"attention.pieces"},
    {"attention.scores", "attention.masks", "attention.biases", "attention.normalizers", "attention.keywords"},
    {"attention.typing"},
    {"attention.arrays", "attention.expressions"},
    {"attention.kernels"},
    {"attention.mechanism"},
    {"attention.trace", "attention.summary"},
    {"layers"},
    {"models"},
    {"learn"},
]
BELOW_LAYERS = {package for floor in FLOORS[: FLOORS.index({"layers"})] for package in floor}
# Beside the floors: what these may import, and nothing else of ours.
ASIDE = {
    "attention": set(),
    "drawing": {"errors", "files", "reading"},
    "smoothing": {"errors", "files", "reading", "native", "drawing", "__init__"},  # drawing for its page
    "lens": BELOW_LAYERS | {"layers", "drawing", "__init__"},
    "explain": BELOW_LAYERS | {"layers", "drawing", "lens"},
    "play": BELOW_LAYERS | {"layers", "models", "learn", "drawing", "lens", "explain"},
    "integrations": BELOW_LAYERS | {"layers"},
    "bench": BELOW_LAYERS | {"smoothing", "__init__"},
    "cli": BELOW_LAYERS
    | {"layers", "models", "learn", "lens", "explain", "play", "smoothing", "integrations", "bench", "drawing", "__init__"},
    "__main__": {"cli"},
}
PLACES = {index for floor in FLOORS for index in floor} | set(ASIDE)

FILES = sorted(SOURCE.rglob("*.py"))
OTHERS = sorted(path for folder in ("tests", "benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py"))
UNTYPED = sorted(path for path in [*(ROOT / "native").rglob("*.[ch]pp"), *SOURCE.rglob("*.js"), *SOURCE.rglob("*.css")])
UNTYPED = [path for path in UNTYPED if "vendored" not in path.parts]
MODULES = sorted(
    {"overt", *(actual.name for actual in pkgutil.walk_packages(overt.__path__, "overt."))} - {"overt.__main__"},
)
WITH_TRITON = re.compile(r"kernels\.triton|gpu_resources")
PACKAGES = [name for name in MODULES if (SOURCE / name.replace(".", "/")).is_dir()]


def with_triton_slow(cases: Iterable[Any]) -> list[Any]:
    """Modules or paths as cases, of which those that import Triton are slow: it comes with the extra slow."""
    return [pytest.param(case, marks=pytest.mark.slow) if WITH_TRITON.search(str(case)) else case for case in cases]


def offences(rule: Callable[[Path], Any], paths: Iterable[Path]) -> dict[str, Any]:
    """What a rule finds wrong in each file that breaks it."""
    return {str(path.relative_to(ROOT)): wrong for path in paths if (wrong := rule(path))}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """The part of the house that a module is in: `overt.layers.pooling` is in layers, `overt.attention.masks.base` in attention.masks."""
    parts = module.split(".")[1:]
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in names if name in PLACES), names[-1] if names else "__init__")


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file's syntax tree, its root first."""
    return list(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imports(path: Path, *, at_import: bool = False) -> set[str]:
    """The modules that a file imports, those for type checkers left out; only what runs on import, if `at_import`."""
    actual: set[str] = set()
    todo: list[ast.AST] = nodes(path)[:1]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            todo += node.orelse
            continue
        if at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Import):
            actual |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            actual |= imported_from(path, node)
        todo += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return actual


def imported_from(path: Path, node: ast.ImportFrom) -> set[str]:
    """`from overt.lens import minilm` imports a module, `from overt.lens import record` a name of one."""
    base = node.module or ""
    if node.level:
        home = name_of(path).split(".")
        home = home if path.name == "__init__.py" else home[:-1]
        base = ".".join([*home[: len(home) - node.level + 1], *([node.module] if node.module else [])])
    inside = {f"{base}.{alias.name}" for alias in node.names}.intersection(MODULES)
    return inside or {base}


def may_import(package: str, other: str) -> bool:
    if package in ASIDE:
        return any(other == allowed or other.startswith(f"{allowed}.") for allowed in ASIDE[package])
    level = next((level for level, packages in enumerate(FLOORS) if package in packages), None)
    assert level is not None, f"overt.{package} has no place in the house: give it one in FLOORS or ASIDE"
    return any(package_of(f"overt.{other}") in packages for packages in FLOORS[:level])


def imports_upward(path: Path) -> set[str]:
    package = package_of(name_of(path))
    ours = {name for name in imports(path) if name.partition(".")[0] == "overt"}
    others = {name.removeprefix("overt.") if name != "overt" else "__init__" for name in ours}
    return {other for other in others if package_of(f"overt.{other}") != package and not may_import(package, other)}


def test_imports_go_down_only():
    assert offences(imports_upward, [path for path in FILES if name_of(path) != "overt"]) == {}


# Modules that import each other all the same, each with its reason.
CIRCLES_ALLOWED: dict[frozenset[str], str] = {}


def circles(graph: dict[str, set[str]]) -> list[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    components: list[frozenset[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in graph[module]:
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            components.append(frozenset(stack[stack.index(module) :]))
            del stack[stack.index(module) :]

    for module in graph:
        if module not in number:
            visit(module)
    return [component for component in components if len(component) > 1]


def test_a_circle_is_found_wherever_it_is_entered():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert circles(graph) == [frozenset("bc")]


def test_no_modules_import_each_other():
    files = {name_of(path): path for path in FILES}
    graph = {name: imports(path) & files.keys() - {name} for name, path in files.items()}
    assert [sorted(circle) for circle in circles(graph) if circle not in CIRCLES_ALLOWED] == []


def private_names(path: Path) -> list[str]:
    modules = {alias.asname or alias.name for node in nodes(path) if isinstance(node, ast.ImportFrom)
               for alias in node.names if f"{node.module}.{alias.name}" in MODULES}  # fmt: skip
    imported = [
        f"{node.module}.{alias.name}"
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("overt")
        for alias in node.names
        if re.match("_[a-z]", alias.name, re.IGNORECASE) and alias.name != "_native"
    ]
    return imported + [
        ast.unparse(node)
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        and node.value.id in modules and re.match("_[a-z]", node.attr, re.IGNORECASE)
    ]  # fmt: skip


def test_no_private_name_of_another_module_is_used():
    assert offences(private_names, FILES) == {}


ENTRIES = 14
TREES = [SOURCE / "overt", ROOT / "tests", ROOT / "benchmarks", ROOT / "native"]
FOLDERS = [folder for tree in TREES for folder in [tree, *tree.rglob("*")] if folder.is_dir()]


def too_many_entries(folder: Path) -> list[str]:
    markers = {"__init__.py", "__main__.py", "__pycache__", "conftest.py", "py.typed", "_without_native.py"}
    entries = {path.name for path in folder.iterdir() if path.name not in markers and path.suffix != ".so"}
    return sorted(entries) if len(entries) > (16 if folder == SOURCE / "overt" else ENTRIES) else []


def test_a_folder_shows_at_most_fourteen_entries():
    assert offences(too_many_entries, [folder for folder in FOLDERS if folder.name != "__pycache__"]) == {}


# Words of a private dialect, each with the field's word that it stood for: they are no part of an identifier.
DIALECT = {
    "given": "arguments, inputs", "told": "arguments, options", "asked": "query, requested", "found": "result, weights, …",
    "held": "stored, registered", "kept": "recorded, stored", "seen": "visible, watched", "room": "workspace, space",
    "desk": "workspace", "heat": "inverse_temperature", "settle": "finish", "fold": "online_softmax", "crew": "entry_group",
    "again": "recompute", "cure": "fix", "place": "position, index", "places": "positions, indices", "own": "",
}  # fmt: skip


# Names of files' formats that have such a word.
FORMATS = {"held_out"}  # a recipe's


@functools.cache
def identifiers(path: Path) -> set[str]:
    """The names that a file gives: to modules, classes, functions, arguments and variables. A test's own name is a sentence."""
    names = {path.stem}
    for node in nodes(path):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
    return {name for name in names - FORMATS if not name.startswith("test_")}


# Refused in identifiers, comments and docstrings of the packages that are written in plain English; the other packages follow.
PLAIN = {"attention", "layers", "models", "learn", "integrations", "explain", "play", "cli", "bench", "drawing", "lens"}
PROSE = {
    "wild": "outlier", "company": "others", "beside": "next to, with, compared with", "anew": "again",
    "told": "arguments", "hinted": "annotated", "stands": "is",
}  # fmt: skip
# Of these, identifiers alone are refused: in a sentence they are English.
NOUNS = {"each": "call, head, text, …", "rest": "remaining, body, …", "look": "index, lookup"}
PLAIN_FILES = [path for path in FILES if PLAIN & set(map(str, path.relative_to(SOURCE / "overt").parents))]
# A name says what it is, not where it comes from: `gap_keys(series)` for `keys_of(series)`.
ORIGIN = re.compile(r"_?of(_\w+)?|\w+_of")
PUBLIC_ORIGINS = {"of_block", "of_queries", "of_keys", "sum_of"} | {  # of masks and biases; of recordings, heads, mixers and measures
    "call_of", "head_of", "number_of", "sequence_of", "of_text", "row_of", "rows_of", "keys_of", "part_of", "of_heads", "logits_of",
}  # fmt: skip
# C++, JavaScript and CSS that follow.
PLAIN_FOLDERS = [ROOT / "native", *(SOURCE / "overt" / folder for folder in sorted(PLAIN))]
PLAIN_UNTYPED = [path for path in UNTYPED if any(path.is_relative_to(folder) for folder in PLAIN_FOLDERS)]
OPTIONS = {"beside"}  # of `overt atlas` and `overt play`, and the argument of pages of two recordings


def dialect(path: Path, refused: Iterable[str] = DIALECT) -> set[str]:
    words = {name: set(re.findall("[A-Z]?[a-z]+", name)) for name in identifiers(path)}
    return {name for name, parts in words.items() if {part.lower() for part in parts}.intersection(refused)}


def with_prose(texts: Iterable[str]) -> set[str]:
    """The lines that have a word of PROSE."""
    lines = {line.strip() for text in texts for line in text.splitlines()}
    return {line for line in lines if set(re.findall("[a-z]+", line.lower())) & PROSE.keys()}


def python_comments(code: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def prose(path: Path) -> set[str]:
    """The comments and docstrings of a file that have a word of PROSE, by their lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":  # C++, JavaScript and CSS
        return with_prose(re.findall(r"(?<![:\w\"'`])//[^\n]*|/\*.*?\*/", text, flags=re.DOTALL))
    holders = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    docstrings = [ast.get_docstring(node) or "" for node in nodes(path) if isinstance(node, holders)]
    return with_prose([*python_comments(text), *docstrings])


def prose_in_blocks(page: Path) -> set[str]:
    """The comments and the names of a page's Python that have a word of PROSE."""
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    stored = {
        node.id
        for block in blocks
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return {name for name in stored if PROSE.keys() & set(name.split("_"))} | with_prose(
        comment for block in blocks for comment in python_comments(block)
    )


def test_identifiers_are_the_fields_words():
    assert offences(dialect, [*FILES, *OTHERS]) == {}


def test_packages_in_plain_english_name_what_they_loop_over():
    assert offences(lambda path: dialect(path, PROSE | NOUNS) - OPTIONS, PLAIN_FILES) == {}


def origins(path: Path) -> set[str]:
    return {name for name in identifiers(path) - PUBLIC_ORIGINS if ORIGIN.fullmatch(name)}


def test_names_say_what_they_are():
    assert offences(origins, FILES) == {}


def test_a_name_of_an_origin_is_refused(tmp_path):
    (tmp_path / "file.py").write_text(
        "def gaps_of(of_x, offset, profile):\n    def of(): ...\n    self.off = _of_y = proof = 1\n"
    )
    assert origins(tmp_path / "file.py") == {"gaps_of", "of_x", "of", "_of_y"}


def test_comments_and_docstrings_are_plain_english():
    assert offences(prose, [*PLAIN_FILES, *PLAIN_UNTYPED]) == {}


def test_the_code_of_pages_is_in_the_fields_words():
    assert offences(prose_in_blocks, sorted((ROOT / "docs").rglob("*.md"))) == {}


def test_a_word_of_the_dialect_is_found_in_other_languages_and_in_pages(tmp_path):
    (tmp_path / "file.cpp").write_text('// anew\nf("// told"); /* it\n   stands */\n')
    assert prose(tmp_path / "file.cpp") == {"// anew", "stands */"}
    (tmp_path / "page.md").write_text('```python exec="1"\nwild_value = 1  # beside\nprint("told")\n```\n')
    assert prose_in_blocks(tmp_path / "page.md") == {"wild_value", "# beside"}


def test_a_word_of_the_dialect_is_found_in_a_comment_and_in_a_docstring(tmp_path):
    (tmp_path / "file.py").write_text('"""What stands here."""\n\nx = "told"  # anew\n')
    assert prose(tmp_path / "file.py") == {"What stands here.", "# anew"}


def test_importing_overt_or_its_smoothing_reaches_no_torch():
    files = {name_of(path): path for path in FILES}
    todo, reached = ["overt", "overt.smoothing", "overt.cli.main", "overt.cli.smooth"], {}
    while todo:
        module = todo.pop()
        if module not in files or module in reached:
            continue
        reached[module] = imports(files[module], at_import=True)
        parents = [module.rsplit(".", count)[0] for count in range(1, module.count(".") + 1)]
        todo += [*reached[module], *parents]
    guilty = sorted(
        module for module, names in reached.items() if {name.partition(".")[0] for name in names} & {"torch", "jaxtyping"}
    )
    assert not guilty, f"torch is imported by {', '.join(guilty)}"


def unions(path: Path) -> list[int]:
    """The lines in which `isinstance` has a union of types."""
    calls = [node for node in nodes(path) if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"]
    return [call.lineno for call in calls if isinstance(call.args[1], ast.BinOp)]


def test_what_torch_compiles_names_several_types_in_a_tuple():
    # torch.compile of torch 2.7 knows no union of types.
    compiled = {"attention", "layers", "models", "integrations"}
    assert offences(unions, [path for path in FILES if path.relative_to(SOURCE / "overt").parts[0] in compiled]) == {}


def test_a_class_name_occurs_once():
    names = Counter(node.name for path in FILES for node in nodes(path) if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == set()


def hidden_exports(package: str) -> set[str]:
    home = importlib.import_module(package)
    modules = {actual.name for actual in pkgutil.iter_modules(home.__path__)}
    shared = {name for name in getattr(home, "__all__", []) if name in modules}
    return {name for name in shared if not isinstance(getattr(home, name), types.ModuleType)}


def test_no_submodule_shares_its_name_with_an_export():
    # Importing such a module would put it in the place of the export.
    assert {package: hidden for package in PACKAGES if (hidden := hidden_exports(package))} == {}


def test_a_file_has_at_most_four_hundred_lines():
    def too_many(path: Path) -> int:
        lines = len(path.read_text().splitlines())
        return lines if lines > 400 else 0

    assert offences(too_many, [*FILES, *UNTYPED]) == {}


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function's body, its docstring not counted."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def long_functions(path: Path) -> dict[str, int]:
    functions = [node for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {function.name: lines_of(function) for function in functions if lines_of(function) > 40}


def test_a_function_has_at_most_forty_lines():
    assert offences(long_functions, FILES) == {}


def test_the_mechanism_fits_one_screen():
    assert len((SOURCE / "overt" / "attention" / "mechanism.py").read_text().splitlines()) <= 80


@pytest.mark.parametrize("name", [name for name in overt.__all__ if not name.startswith("__")])
def test_every_public_name_is_there_and_explains_itself(name):
    actual = getattr(overt, name)
    assert actual.__doc__, f"overt.{name} has no docstring"
    # Results have their examples with the functions that make them.
    if not isinstance(actual, types.ModuleType) and name not in {"Plan", "Steps", "Summary"}:
        assert ">>>" in actual.__doc__, f"the docstring of overt.{name} has no example"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'overt' has no attribute 'attent'"):
        overt.attent


def test_without_torch_the_error_says_what_to_install_and_smooth_works():
    program = (
        "import sys; sys.modules['torch'] = None\nimport overt\n"
        "try:\n    overt.attend\nexcept ImportError as error:\n    print(error)\n"
        "overt.smooth([1.0, 2.0, 4.0])"
    )
    actual = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert actual == f"overt.attend needs torch, which is not installed. Fix: run: {install_command('torch')}\n"


@pytest.mark.parametrize(
    ("missing", "extra"),
    [
        ("tokenizers", "text"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [("safetensors", "text"), ("jaxtyping", "torch")]),
    ],
)
def test_a_part_that_needs_another_package_says_which_extra_brings_it(missing, extra):
    program = (
        f"import sys; sys.modules[{missing!r}] = None\nimport overt\n"
        "try:\n    overt.learn\nexcept ImportError as error:\n    print(error)"
    )
    actual = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert actual == f"overt.learn needs {missing}, which is not installed. Fix: run: {install_command(extra)}\n"


@pytest.mark.parametrize(
    "script", with_triton_slow(sorted((ROOT / "benchmarks").rglob("*.py"))), ids=lambda script: script.stem
)
def test_a_benchmark_finds_what_it_imports(script):
    for node in nodes(script):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("overt"):
            for name in node.names:
                pkgutil.resolve_name(f"{node.module}.{name.name}")


# A module whose library is no dependency has no examples that run without it.
OPTIONAL = {"overt.smoothing.estimators.transformer": "aeon"}


@pytest.mark.few_cases(60)
@pytest.mark.parametrize("module", with_triton_slow(name for name in MODULES if name not in OPTIONAL))
def test_the_examples_in_docstrings_run(module):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0


@pytest.mark.parametrize("module", OPTIONAL)
def test_a_module_of_an_optional_library_has_no_examples(module):
    assert ">>>" not in (SOURCE / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")


def test_the_examples_in_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(?:python|pycon)\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    assert blocks, "README.md shows no Python"
    names: dict = {}
    for number, block in enumerate(blocks):
        if ">>>" in block:
            example = doctest.DocTestParser().get_doctest(block, names, f"README block {number}", "README.md", 0)
            assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0
            names = example.globs
        else:
            exec(compile(block, f"README.md, block {number}", "exec"), names)
