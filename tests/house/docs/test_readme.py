"""What the README claims is so: its code prints what it says, its commands run, its names, links, options and counts are there."""

import ast
import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import warnings
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import overt
from overt import native
from overt.cli.main import COMMANDS, app
from overt.explain import text_model

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s#\s(.*)$")


def statements(block):
    """Each statement of a block, with what the comments behind it and under it say that it prints; None where it prints nothing."""
    lines = block.splitlines()
    for node in ast.parse(block).body:
        calls = [each for each in ast.walk(node) if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "print"]
        yield node, [expected(lines, call) for call in calls]


def expected(lines, call):
    """A comment behind a print is what it prints; where it ends in a colon, the comment lines that follow are."""
    message = COMMENT.search(lines[call.end_lineno - 1][call.end_col_offset :])
    if message is None:
        return ""
    if not message[1].endswith(":"):
        return message[1].partition(": ")[0]
    following = []
    for line in lines[call.end_lineno :]:
        if not line.startswith("#"):
            break
        following.append(line.removeprefix("#").strip())
    return "\n".join(following)


def matches(printed, wanted):
    """Line by line, blanks and all that … stands for aside."""
    printed, wanted = ([" ".join(line.split()) for line in text.strip().splitlines()] for text in (printed, wanted))
    pattern = [re.sub(r"([\[?*])", r"[\1]", line).replace("…", "*") for line in wanted]
    return len(printed) == len(pattern) and all(map(fnmatchcase, printed, pattern))


def run(blocks, namespace):
    """Run blocks one after the other; what each print printed, and what it was said to print."""
    pairs = []
    for block in blocks:
        for node, wanted in statements(block):
            stdout = io.StringIO()
            with contextlib.redirect_stdout(stdout):
                exec(compile(ast.Module([node], []), "README.md", "exec"), namespace)
            assert wanted or not stdout.getvalue()
            if wanted:
                pairs.append((stdout.getvalue(), "\n".join(wanted)))
    return pairs


def test_every_block_prints_what_the_comments_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's own, of nested tensors and of flash attention
        pairs = run(BLOCKS, {})
    assert len(pairs) >= 6
    assert not [(printed, wanted) for printed, wanted in pairs if not matches(printed, wanted)]


def test_every_print_says_what_it_prints():
    silent = [ast.unparse(node) for block in BLOCKS for node, message in statements(block) if not all(message)]
    assert not silent


def test_a_wrong_comment_is_found():
    assert [matches(*pair) for pair in run(["print(1 + 1)  # 3\nprint('nan')  # 0.5"], {})] == [False, False]
    assert [matches(*pair) for pair in run(["print([1, 2], 1e-7)  # [1, 2] …e-…"], {})] == [True]
    assert not matches("[1, 2]", "[1]")


def test_what_records_is_in_evaluation_and_no_number_is_nan(tmp_path, monkeypatch):
    [block] = [block for block in BLOCKS if "lens.record(model" in block]
    namespace = {"torch": torch, "nn": torch.nn}
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    run([block], namespace)
    verified = namespace["recording"].verify()
    assert "nan" not in str(verified)
    assert "holds" in str(verified)
    assert torch.isfinite(namespace["weights"]).all()


@pytest.mark.skipif(text_model.packaged_folder() is None, reason="needs all-MiniLM-L6-v2")
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="the picture needs matplotlib")
def test_the_picture_is_what_its_command_makes_and_every_number_is_recomputed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [command] = re.findall(r"^    (overt explain .+ --png \S+)$", README, flags=re.MULTILINE)
    message = CliRunner().invoke(app, shlex.split(command)[1:], env={"COLUMNS": "100"}).stdout
    assert (tmp_path / "explain.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"recomputed vs\. model: \S+ ✓ within the rounding bound", message)


def test_the_translation_is_the_one_that_is_told():
    [(command, wanted)] = re.findall(r"^    (overt translate .*?) +# (.*)$", README, flags=re.MULTILINE)
    _, *arguments = shlex.split(command)
    first, *rest = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"}).stdout.splitlines()
    assert first == wanted
    assert len(rest) > len(wanted.split()), "a map, a row for each word"


def test_smoothing_loads_no_torch(tmp_path):
    message = "import sys, overt; overt.smooth([1.0, 2.0, 4.0]); print('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, "-c", message], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
    )
    assert run.stdout == "False\n"


def test_every_command_and_option_that_is_named_is_there():
    named = set(re.findall(r"\bovert ([a-z]+)\b(?= |`)", README)) & set(COMMANDS)
    assert {"explain", "play", "view", "smooth", "train", "translate", "atlas", "replay", "bench", "doctor"} <= named
    helped = {name: CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).stdout for name in named}
    for option in set(re.findall(r" (--[a-z]+)", README)) - {"--from", "--spec"}:
        assert any(option in message for message in helped.values()), option


BIN = Path(sys.executable).parent
PROSE = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
COMMAND_LINES = re.findall(r"^    (\S.*?)(?: +# .*)?$", PROSE, flags=re.MULTILINE)
# Commands that end by themselves, within seconds, and need nothing that this machine may lack.
SHORT = [line for line in COMMAND_LINES if line.startswith(("overt translate", "overt explain"))]


def in_a_new_shell(line, folder):
    """Run a line as in a terminal that is in the clone's environment, and nowhere else."""
    shell = ["bash", "-c", f"source {shlex.quote(str(BIN / 'activate'))} && {line}"]
    environment = {"HOME": str(folder), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(shell, capture_output=True, text=True, cwd=folder, env=environment)


def test_the_environment_is_entered_before_the_first_command_that_is_in_it():
    first = next(index for index, line in enumerate(COMMAND_LINES) if line.startswith("overt "))
    assert COMMAND_LINES[:first] == ["make demo", "source .venv/bin/activate"]
    assert {line.split()[0] for line in COMMAND_LINES} == {"make", "source", "overt", "printf"}


@pytest.mark.skipif(not (BIN / "overt").exists(), reason="overt's command is not installed in this environment")
@pytest.mark.parametrize("line", SHORT)
@pytest.mark.few_cases(1)
def test_a_command_works_as_printed_in_a_new_shell(line, tmp_path):
    result = in_a_new_shell(line, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.skipif(not (BIN / "overt").exists(), reason="overt's command is not installed in this environment")
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="the picture needs matplotlib")
def test_the_lines_that_smooth_write_a_table_and_a_picture(tmp_path):
    result = in_a_new_shell("\n".join(line for line in COMMAND_LINES if "levels.csv" in line), tmp_path)
    assert result.returncode == 0, result.stderr
    assert "levels.csv · level" in result.stdout
    assert len((tmp_path / "smoothed.csv").read_text().splitlines()) == 9
    assert (tmp_path / "levels.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("line", [line for line in COMMAND_LINES if line.startswith("make ")])
def test_make_knows_what_is_printed(line):
    result = subprocess.run([*shlex.split(line), "--dry-run"], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr


def test_the_demonstration_installs_text_training_and_plots():
    printed = subprocess.run(
        ["make", "--always-make", "--dry-run", "demo"], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout
    assert re.search(r'--constraint constraints\.txt --editable "\.\[text,train,plot\]" > \S+install\.log', printed)


@pytest.mark.skipif(os.name != "posix", reason="whoever may not write is another user of the system")
def test_a_clone_that_cannot_be_written_to_is_named_with_the_command_that_works():
    someone = 65534 if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "Makefile", folder)
        os.chmod(folder, 0o555)
        result = subprocess.run(["make", ".venv/bin/python"], capture_output=True, text=True, cwd=folder, user=someone)
        os.chmod(folder, 0o755)
    assert result.returncode == 2
    assert "cannot be written to. Copy it: cp -r . /tmp/overt && make -C /tmp/overt demo" in result.stderr


def test_every_name_in_code_is_there():
    for name in re.findall(r"`(overt(?:\.\w+)+)\b", README):
        actual = overt
        for part in name.split(".")[1:]:
            actual = getattr(actual, part)
    for name in re.findall(r"`([A-Z]\w+)` ·|· `([A-Z]\w+)`", README):
        assert hasattr(overt, "".join(name))


@pytest.mark.skipif(not native.available(), reason="there is no native core here")
def test_under_a_softmax_what_is_named_runs_in_the_native_core():
    x, heads = torch.randn(2, 4, 6, 8), torch.rand(4)
    scores = [overt.Dot(), overt.Bilinear(torch.eye(8)), overt.Additive(torch.ones(8)), overt.Cosine(), overt.Gaussian(4.0)]
    remaining = torch.rand(2, 1, 6, 6) > 0.5
    masks = [
        overt.Causal(),
        overt.Window(2, 0),
        overt.Lengths(torch.tensor([6, 3])),
        overt.Documents(torch.arange(6) // 2),
        remaining,
    ]
    masks += [overt.Causal() & overt.Window(3, 1) | ~overt.Documents(torch.arange(6) // 3), None]
    biases = [None, torch.zeros(6, 6), overt.ALiBi(heads), overt.RelativePositionBias(torch.zeros(4, 5))]
    for score in scores:
        for mask in masks:
            for bias in biases:
                options = {"score": score, "mask": mask, "bias": bias, "normalizer": overt.Softmax(sink=heads)}
                assert overt.plan(x, x, x, **options, dropout=0.1).path == "native", options


def test_every_link_leads_to_a_file():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_targets_of_make_and_the_python_are_those_that_are_told():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"^    make ([a-z-]+)", README, flags=re.MULTILINE)) <= targets
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"].removeprefix(">=") == re.search(r"Python ([\d.]+) or later", README)[1]
    assert "all" in project["optional-dependencies"]


def test_the_counts_are_those_of_the_repository():
    assert "the six chapters" in README
    assert len(list((ROOT / "docs" / "chapters").glob("*.md"))) == len(list((ROOT / "notebooks").glob("*.ipynb"))) == 6


def test_the_readme_stays_short():
    assert len(README.encode()) <= 7168


def test_without_torch_numpy_alone_is_120_megabytes():
    """What the distributions of a bare installation hold; the rest is Python's own `pip`, and compiled bytecode."""
    from importlib.metadata import PackageNotFoundError, distribution

    from packaging.requirements import Requirement

    def closure(names, observed=frozenset()):
        for name in names:
            if name.lower() not in observed:
                with contextlib.suppress(PackageNotFoundError):
                    needed = [Requirement(each) for each in distribution(name).requires or []]
                    needed = [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
                    observed = closure(needed, observed | {name.lower()})
        return observed

    files = [
        actual.locate_file(file)
        for name in closure(["numpy", "typer", "rich"])
        for actual in [distribution(name)]
        for file in actual.files or []
    ]
    package_files = [
        path for path in Path(overt.__file__).parent.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    assert 80 < sum(os.path.getsize(path) for path in [*files, *package_files] if os.path.exists(path)) / 1e6 < 125


def test_the_line_to_try_out_names_a_wheel_of_this_version_and_smooths():
    [(numbers, wheel, arguments)] = re.findall(
        r"^    printf '([^']+)' \| uvx --from (\S+) overt (.+)$", README, flags=re.MULTILINE
    )
    assert wheel == f"dist/overt-{overt.__version__}-py3-none-any.whl"
    table = numbers.replace("\\n", "\n")
    command = [sys.executable, "-m", "overt", *shlex.split(arguments)]
    result = subprocess.run(command, input=table, capture_output=True, text=True, encoding="utf-8", check=True)
    assert "before  ▁▂█▄▅▆▆▇\nafter   ▂▃▅▅▅▆▆▆" in result.stdout
