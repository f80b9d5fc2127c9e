"""ARCHITECTURE.md stays short, and each file, folder and name on it exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
FOLDERS = [ROOT / name for name in ("src", "native", "tests", "benchmarks", "docs", "recipes")]
PATHS = [path for folder in FOLDERS for path in (folder, *folder.rglob("*")) if "__pycache__" not in path.parts]
ENDS = "".join(f"/{path.relative_to(ROOT).as_posix()}/\n" for path in [*PATHS, *ROOT.glob("*.md")])
NAMED = sorted({path.strip("/") for path in re.findall(r"[\w/]+/(?!\w)|[\w/]+\.(?:py|js|[ch]pp|md|wasm)\b", PAGE)})
TEXTS = [path.read_text(encoding="utf-8") for path in PATHS if path.suffix in {".py", ".js"}]
WORDS = {word for text in TEXTS for word in re.findall(r"\w+", text)}


def test_the_page_stays_short():
    assert len(PAGE.encode()) <= 10_240


@pytest.mark.parametrize("path", NAMED)
def test_a_path_exists(path):
    assert f"/{path}/\n" in ENDS


def test_each_name_occurs_in_the_code():
    spans = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL).split("`")[1::2]
    names = {name for span in spans for name in re.findall(r"[A-Za-z_]\w+", span)}
    assert len(names) > 50
    assert names - WORDS - {path.stem for path in PATHS} - {path.name for path in PATHS} == set()
