"""The notebooks are the chapters, written from the same Markdown, and every cell of them runs."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAKING = ROOT / "docs" / "making"


def module(name: str):
    spec = importlib.util.spec_from_file_location(f"making_{name}", MAKING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    result = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(result)
    return result


sys.path.append(str(MAKING))  # whose modules import each other
notebooks = module("notebooks")
CHAPTERS = [pytest.param(chapter, id=chapter.stem) for chapter in notebooks.CHAPTERS]


def test_there_are_six_chapters():
    assert [chapter.stem[0] for chapter in notebooks.CHAPTERS] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_notebook_is_its_chapter(chapter):
    stored = json.loads(notebooks.file_of(chapter).read_text(encoding="utf-8"))
    plain = notebooks.notebook(chapter.read_text(encoding="utf-8"))
    assert notebooks.without_outputs(stored) == plain, "write it again: python docs/making/notebooks.py"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_notebook_holds_what_its_cells_showed(chapter):
    stored = json.loads(notebooks.file_of(chapter).read_text(encoding="utf-8"))
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        source, outputs = "".join(cell["source"]), cell["outputs"]
        assert all(each["output_type"] != "error" for each in outputs)
        assert outputs or not re.search(r"^(draw|say|print|!)|\.widget\(", source, re.MULTILINE), source
        printed = json.dumps(outputs)
        assert not re.search(r"/(home|root|tmp|work|Users)/|site-packages", printed), source
        assert "Warning" not in printed, source


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_notebook_links_only_to_what_is_there(chapter):
    for cell in notebooks.notebook(chapter.read_text(encoding="utf-8"))["cells"]:
        for link in notebooks.LINK.finditer("".join(cell["source"]) if cell["cell_type"] == "markdown" else ""):
            assert (ROOT / "notebooks" / link[1]).exists(), link[0]


def test_blocks_commands_and_comments_become_cells():
    chapter = (
        '# T\n\n```python exec="1" source="above" html="1" session="s"\nimport sys\n\nsys.path.append("docs/making")\n'
        "from pictures import ladder\nprint(1)\n```\n\n<!-- notebook\nwidget()\n-->\n\n"
        '```python exec="1" html="1" session="s"\nprint(2)\n```\n\n```python exec="1" session="s"\nprint(3)\n```\n\n'
        '```bash exec="1" source="above" result="text"\novert doctor\n```\n'
    )
    title, first, *cells = ["".join(cell["source"]) for cell in notebooks.notebook(chapter)["cells"]]
    assert [title, *cells] == ["# T", "draw(1)", "widget()", "say(3)", "!overt doctor"]
    assert first.startswith(notebooks.COMMAND)
    assert "from overt.drawing.pictures import draw, say\n" in first
    assert first.index("def result(") < first.index("def ladder(")  # which reads by it


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_notebook_imports_nothing_of_the_repository(chapter):
    code = "".join("".join(cell["source"]) for cell in notebooks.notebook(chapter.read_text(encoding="utf-8"))["cells"])
    assert "sys.path" not in code
    assert not re.search("^(from|import) pictures", code, re.MULTILINE)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_notebook_does_not_say_that_its_page_is_a_notebook_too(chapter):
    text = "".join("".join(cell["source"]) for cell in notebooks.notebook(chapter.read_text(encoding="utf-8"))["cells"])
    assert f"({chapter.stem}.ipynb)" not in text
    assert "PYTHONPATH" not in text


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_notebook_stores_no_spinner(chapter):
    stored = json.loads(notebooks.file_of(chapter).read_text(encoding="utf-8"))
    streams = ["".join(each["text"]) for cell in stored["cells"] for each in cell.get("outputs", []) if "text" in each]
    assert not [text for text in streams if re.search(r"\x1b\[\?25|\x1b\[2K", text)]


SPINNER = ["\x1b[?25l", "⠋ reading …", "\r\x1b[2K⠙ reading …", "\r\x1b[2K⠙ reading …\r\n", "\x1b[?25h\r\x1b[1A\x1b[2K"]
PRINTED = ["\x1b[1mAll of it\x1b[0m\r\n", "of two lines\r\n"]
BAR = ["\x1b[?25lone\r\ntwo\r\n", "\x1b[?25h\r\x1b[1A\x1b[2K\x1b[1A\x1b[2K"]


def streamed(*texts, name="stdout"):
    return [{"output_type": "stream", "name": name, "text": text} for text in texts]


@pytest.mark.parametrize("pieces", [SPINNER + PRINTED, PRINTED + SPINNER, BAR + PRINTED, SPINNER + PRINTED + BAR])
def test_what_a_terminal_erased_is_not_stored(pieces):
    assert notebooks.at_the_end(streamed(*pieces)) == streamed("\x1b[1mAll of it\x1b[0m\nof two lines\n")


def test_a_stream_of_which_nothing_stays_is_no_output():
    shown = {"output_type": "display_data", "data": {}, "metadata": {}}
    assert notebooks.at_the_end([*streamed(*SPINNER), shown]) == [shown]


def test_streams_of_two_names_stay_apart():
    both = [*streamed("a"), *streamed("b", name="stderr"), *streamed("c")]
    assert notebooks.at_the_end(both) == both


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_cell_runs_and_widgets_are_widgets(chapter, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    read = nbformat.reads(json.dumps(notebooks.notebook(chapter.read_text(encoding="utf-8"))), as_version=4)
    nbformat.validate(read)
    nbclient.NotebookClient(read, timeout=300, resources={"metadata": {"path": str(ROOT / "notebooks")}}).execute()
    for cell in read.cells:
        kinds = {kind for output in cell.get("outputs", []) for kind in output.get("data", {})}
        if "draw(" in cell.source:
            assert "text/html" in kinds, cell.source
        if ".widget(" in cell.source:
            assert "application/vnd.jupyter.widget-view+json" in kinds, cell.source
