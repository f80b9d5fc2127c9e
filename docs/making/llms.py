"""The site for language models: llms.txt, a list of the pages (llmstxt.org), and llms-full.txt, their text with all docstrings."""

import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HIDDEN = re.compile(r'^```\w+ (?![^\n]*source=)[^\n]*exec="1"[^\n]*\n.*?^```\n+', re.DOTALL | re.MULTILINE)
OPTIONS = re.compile(r'^```(\w+) [^\n]*exec="1"[^\n]*$', re.MULTILINE)
DIRECTIVE = re.compile(r"^::: (\S+)\n(?:(?: {4}.*)?\n)*?(?=\S|\Z)", re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->\n*|\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)


def pages(nav: list[Any], section: str = "") -> Iterator[tuple[str, str, str]]:
    """Section, title and file of each page of mkdocs' `nav`.

    >>> list(pages([{"Start": "index.md"}, {"Learn": ["a.md"]}]))
    [('', 'Start', 'index.md'), ('Learn', '', 'a.md')]
    """
    for entry in nav:
        [(title, target)] = entry.items() if isinstance(entry, dict) else [("", entry)]
        if isinstance(target, str):
            yield section, title, target
        else:
            yield from pages(target, title)


def index(name: str, summary: str, nav: list[Any], docs: Path) -> str:
    """The text of llms.txt."""
    lines, last = [f"# {name}\n\n> {summary}\n\nThe text of all pages: [llms-full.txt](llms-full.txt)\n"], None
    for section, title, file in pages(nav):
        text = plain((docs / file).read_text(encoding="utf-8"))
        if section != last:
            lines.append(f"\n## {section or 'Overview'}\n")
            last = section
        target = file.removesuffix(".md") + ".html"
        lines.append(f"- [{title or heading(text)}]({target}): {sentence(text)}")
    return "\n".join(lines) + "\n"


def full(nav: list[Any], docs: Path) -> str:
    """The text of llms-full.txt: every page, with code that it shows and the docstrings that it refers to."""
    texts = [f"<!-- {file} -->\n\n{plain((docs / file).read_text(encoding='utf-8'))}" for _, _, file in pages(nav)]
    return "\n\n".join(texts)


def plain(markdown: str) -> str:
    """A page's Markdown without what only its build reads; docstrings in the place of their directives."""
    text = OPTIONS.sub(r"```\1", HIDDEN.sub("", COMMENT.sub("", markdown)))
    return DIRECTIVE.sub(lambda directive: _documented(directive[1]), text).strip()


def heading(text: str) -> str:
    """The text of the first heading."""
    return next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))


def sentence(text: str) -> str:
    """The first sentence of the first paragraph."""
    paragraphs = [part for part in text.split("\n\n") if re.match(r"(?!\*\*You need)[\w`*]", part)]
    first = " ".join(paragraphs[0].split()) if paragraphs else ""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", re.split(r"(?<=[.:])\s", first)[0])


def _documented(name: str) -> str:
    thing = pkgutil.resolve_name(name)
    return f"### {name}\n\n{inspect.getdoc(thing) or ''}\n\n"
