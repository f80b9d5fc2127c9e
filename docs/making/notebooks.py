"""The chapters as notebooks: written from the same Markdown, run, and stored with what they printed.

    python docs/making/notebooks.py [5]        # writes notebooks/*.ipynb, or those of some chapters

A block that the page shows becomes a cell; what a page prints as SVG or Markdown is displayed by `draw` or `say` of pictures.py instead. A
block that the page hides becomes a folded cell if it prints sentences, or its text if these are of measured results, and is left out if it
draws, since it is about the site then; what a comment `<!-- notebook … -->` holds becomes a cell, and what `<details>` hides a folded one.
Commands become `!` cells, stored with what a terminal shows at the end, without spinners. Sentences about the page are left
out. The first cell holds what the others use of pictures.py, so a notebook needs the package, and measured results of docs/results.
"""

import ast
import contextlib
import io
import json
import posixpath
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from overt.files import whole

ROOT = Path(__file__).parents[2]
PICTURES = Path(__file__).with_name("pictures.py")
CHAPTERS = sorted((ROOT / "docs" / "chapters").glob("*.md"))
PART = re.compile(r"^```(?P<told>\w+[^\n]*)\n(?P<code>.*?)^```$|^<!-- notebook\n(?P<only>.*?)^-->$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^):#\s]+)(#[^)\s]*)?\)")
SUMMARY = re.compile(r"<summary>(.*?)</summary>")
PATH = re.compile(r"import sys\n\nsys\.path\.append\([^\n]*\n")  # the first cell does that
DETAILS = re.compile(r"</?details[^>]*>\n?")
OF_THE_PAGE = re.compile(r"The chapter is a \[notebook\]\([^)\s]+\) too\.\s*")
ERASED = re.compile(r"[^\n]*(?:\n\r?\x1b\[1A|\r)\x1b\[2K")  # a line of a terminal, and the command that takes it away
CURSOR = re.compile(r"\x1b\[\?25[hl]\r?")
MEASURED = re.compile(r"^print\(learning\.", re.MULTILINE)
IMPORTED = re.compile(r"^from pictures import ([^\n]*)\n", re.MULTILINE)
COMMAND = """\
import os
import sys

os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # the command overt
"""


def notebook(markdown: str) -> dict[str, Any]:
    """A chapter's Markdown as a notebook, in nbformat's words."""
    cells, end = [], 0
    for part in PART.finditer(markdown):
        folded = markdown.rfind("<details", 0, part.start()) > markdown.rfind("</details", 0, part.start())
        cells += [_text(markdown[end : part.start()]), _block(part, folded=folded)]
        end = part.end()
    cells.append(_text(markdown[end:]))
    remaining = [cell for cell in cells if cell is not None]
    first = first_cell("".join("".join(cell["source"]) + "\n" for cell in remaining if cell["cell_type"] == "code"))
    remaining = [_without_imports(cell) for cell in remaining]
    if first:
        remaining.insert(1, _code(first))
    for number, cell in enumerate(remaining):
        cell["id"] = f"cell-{number:02}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": remaining,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def first_cell(code: str) -> str:
    """What the cells' code uses of pictures.py, and the path of the commands that it runs; empty if it uses neither."""
    names = {name.strip() for imported in IMPORTED.findall(code) for name in imported.split(",")}
    names |= {name for name in ("draw", "say") if re.search(rf"\b{name}\(", code)}
    command = COMMAND if re.search(r"^!", code, re.MULTILINE) else ""
    return "\n\n".join(filter(None, [command.strip(), _helpers(names)]))


def _helpers(names: set[str]) -> str:
    """The imports, constants and functions of pictures.py that these names need, in their order."""
    source = PICTURES.read_text(encoding="utf-8").replace(
        "Path(__file__).parents[1]", 'Path("../docs")  # of the repository, for measured results'
    )
    lines, statements = source.splitlines(), ast.parse(source).body[1:]
    defined = {name: statement for statement in statements for name in _bound(statement)}
    needed, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name in defined and name not in needed:
            needed.add(name)
            todo += [node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)]
    texts = [_text_of(statement, lines, needed) for statement in statements if needed.intersection(_bound(statement))]
    return re.sub(r"\n\n(?=import |from )", "\n", "\n\n".join(texts))


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a statement binds."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def _text_of(statement: ast.stmt, lines: list[str], needed: set[str]) -> str:
    """A statement with the comments above it; of an import only the names that are needed."""
    if isinstance(statement, ast.ImportFrom):
        statement.names = [alias for alias in statement.names if alias.name in needed]
        return ast.unparse(statement)
    first = statement.lineno - 1
    while lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(lines[first : statement.end_lineno])


def _without_imports(cell: dict[str, Any]) -> dict[str, Any]:
    if cell["cell_type"] == "markdown":
        return cell
    return cell | {"source": _lines(IMPORTED.sub("", "".join(cell["source"])).strip())}


def executed(plain: dict[str, Any]) -> dict[str, Any]:
    """The notebook after a run of all its cells, with their outputs and the state of its widgets. A cell that fails is an error."""
    import nbclient
    import nbformat

    read = nbformat.reads(json.dumps(plain), as_version=4)
    client = nbclient.NotebookClient(read, timeout=600, resources={"metadata": {"path": str(ROOT / "notebooks")}})
    client.execute()
    for cell in read.cells:
        cell.metadata.pop("execution", None)  # when each cell ran
        if "outputs" in cell:
            cell.outputs = at_the_end(cell.outputs)
    return json.loads(nbformat.writes(read))


def at_the_end(outputs: list[Any]) -> list[Any]:
    """Outputs with the pieces of a stream joined, and without what the terminal erased on the way: spinners and progress bars."""
    joined: list[Any] = []
    for output in outputs:
        if output["output_type"] == "stream" and joined and joined[-1].get("name") == output["name"]:
            joined[-1]["text"] += output["text"]
        else:
            joined.append(output)
    for output in joined:
        if output["output_type"] == "stream":
            output["text"] = _without_erased(output["text"])
    return [output for output in joined if output.get("text") != ""]


def _without_erased(text: str) -> str:
    text, count = CURSOR.sub("", text.replace("\r\n", "\n")), 1
    while count:
        text, count = ERASED.subn("", text)
    return text


def without_outputs(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored notebook as it was before its run: that of its chapter, if it was not edited."""
    cells = [cell | {"outputs": [], "execution_count": None} if "outputs" in cell else cell for cell in stored["cells"]]
    metadata = {key: stored["metadata"][key] for key in ("kernelspec", "language_info")}
    return stored | {"cells": cells, "metadata": metadata | {"language_info": {"name": "python"}}}


def file_of(chapter: Path) -> Path:
    """Where a chapter's notebook is."""
    return ROOT / "notebooks" / f"{chapter.stem}.ipynb"


def _block(part: re.Match[str], *, folded: bool) -> dict[str, Any] | None:
    if part["only"]:
        return _code(part["only"])
    message, code = part["told"], PATH.sub("", part["code"])
    if message.startswith("bash"):
        return _code(f"!{code}")
    drawn, shown = 'html="1"' in message, "source=" in message
    if MEASURED.search(code):
        return _text(_printed(code))
    if drawn:
        return _code(code.replace("print(", "draw(")) if shown else None
    if 'result="text"' not in message:
        code = code.replace("print(", "say(")
    return _code(code, folded=folded or not shown)


def _printed(code: str) -> str:
    """What a block prints of measured results by shown/, which a notebook does not have."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {"learning": import_module("shown.learning")})
    return output.getvalue()


def _text(markdown: str) -> dict[str, Any] | None:
    text = SUMMARY.sub(r"*\1, in the folded cell:*", DETAILS.sub("", OF_THE_PAGE.sub("", markdown)))
    text = LINK.sub(_linked, text.strip())
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(text)} if text else None


def _code(code: str, *, folded: bool = False) -> dict[str, Any]:
    metadata = {"jupyter": {"source_hidden": True}} if folded else {}
    return {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": [], "source": _lines(code.strip())}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _linked(link: re.Match[str]) -> str:
    """A chapter's link as one from the folder of notebooks: to another notebook, or to the page's file."""
    target = posixpath.normpath(posixpath.join("docs/chapters", link[1]))
    folder, name = posixpath.split(target)
    if folder == "docs/chapters":
        return f"]({posixpath.splitext(name)[0]}.ipynb)"
    return f"]({posixpath.relpath(target, 'notebooks')}{link[2] or ''})"


if __name__ == "__main__":
    for chapter in [each for each in CHAPTERS if not sys.argv[1:] or each.stem[0] in sys.argv[1:]]:
        file = file_of(chapter)
        file.parent.mkdir(exist_ok=True)
        with whole(file) as temporary:
            stored = executed(notebook(chapter.read_text(encoding="utf-8")))
            temporary.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(file.relative_to(ROOT))
