"""The house keeps its rules: imports go down, names do not hide each other, functions and files stay short, examples run."""

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import overt

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "overt"
FILES = sorted(SOURCE.rglob("*.py"))

# Each part may import the parts before it; parts in one set do not import each other.
ORDER = [
    {"errors"},
    {"files", "pieces", "check"},
    {"scores", "masks", "biases", "normalizers"},
    {"kernels"},
    {"mechanism"},
    {"trace", "summary"},
    {"layers"},
    {"lens", "smoothing"},
    {"cli"},
    {"__main__"},
]
FLOOR = {part: floor for floor, parts in enumerate(ORDER) for part in parts}


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def module_of(path):
    return ".".join(("overt", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def imported_parts(path):
    """The parts of overt that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" if node.module == "overt" else node.module or "" for alias in node.names]
        for name in names:
            if name.startswith("overt."):
                yield name.split(".")[1]


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "__init__.py" or path.parent != SOURCE], ids=module_of)
def test_imports_go_down_only(path):
    own = part_of(path)
    for other in imported_parts(path):
        if other in FLOOR and other != own:
            assert FLOOR[other] < FLOOR[own], f"{module_of(path)} imports {other}"


@pytest.mark.parametrize(
    "package", sorted(path.parent for path in FILES if path.name == "__init__.py"), ids=lambda path: path.name
)
def test_no_submodule_shares_a_name_that_its_package_exports(package):
    module = importlib.import_module(module_of(package / "__init__.py"))
    submodules = {path.stem for path in package.glob("*.py")} | {path.name for path in package.iterdir() if path.is_dir()}
    modules = {
        name for name in getattr(module, "__all__", ()) if hasattr(getattr(module, name), "__path__") or name in overt._MODULES
    }
    assert not (set(getattr(module, "__all__", ())) - modules) & (submodules - {"__init__", "__main__"})


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_files_have_at_most_400_lines_and_functions_40(path):
    assert len(path.read_text().splitlines()) <= 400
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            length = (body[-1].end_lineno or 0) - body[0].lineno + 1
            assert length <= 40, f"{node.name} has {length} lines"


@pytest.mark.parametrize(
    "statement", ["import overt", "import overt; overt.smooth", "import overt.smoothing", "import overt.cli.main"]
)
def test_torch_is_not_loaded_before_it_is_needed(statement):
    code = f"{statement}; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there_and_has_a_docstring_with_an_example():
    for name in overt.__all__:
        thing = getattr(overt, name)
        if name == "__version__":
            continue
        assert thing.__doc__, f"overt.{name} has no docstring"
        if callable(thing) and name not in ("Plan", "Steps", "Summary"):  # results; their makers have the examples
            assert ">>>" in thing.__doc__, f"overt.{name} has no example"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'overt' has no attribute 'attent'"):
        overt.attent  # noqa: B018


def test_without_torch_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\nimport overt\n"
        "try:\n    overt.attend\nexcept ImportError as error:\n    print(error)\n"
        "import numpy; overt.smooth(numpy.arange(5.0))"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found == 'overt.attend needs torch, which is not installed. To mend it, run: pip install "overt[torch]"\n'


@pytest.mark.parametrize(
    "name", [found.name for found in pkgutil.walk_packages(overt.__path__, "overt.") if "__main__" not in found.name]
)
def test_the_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_the_python_blocks_of_the_readme_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), "README.md", "exec"), {"__name__": "readme"})
    assert "blocked: any score" in capsys.readouterr().out


def test_the_mechanism_fits_one_screen():
    assert len((SOURCE / "mechanism.py").read_text().splitlines()) <= 80
