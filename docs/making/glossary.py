"""Links from the first use of a word on a page to its entry in docs/glossary.md."""

import posixpath
import re
from pathlib import Path

GLOSSARY = Path(__file__).parents[1] / "glossary.md"
# An entry is a heading, and the forms of its word stand behind it: `### Head {#head data-forms="head heads"}`.
ENTRY = re.compile(r'^### .+?\{#(?P<anchor>[\w-]+) data-forms="(?P<forms>[^"]+)"(?P<smoothing> \.smoothing)?\}$', re.MULTILINE)
FENCE = re.compile(r"^ *```")
NOT_PROSE = re.compile(r"^(\$\$|#|\||    |<|!|:::|\*\*You need)")
# Code, links, emphasis and formulas stay as they are.
WHOLE = re.compile(r"(`[^`]*`|!?\[[^\]]*\]\([^)]*\)|<[^>]*>|\$[^$]*\$|\*+[^*]+\*+)")
SMOOTHING = ("smooth", "4-re-weighting")
# The reference explains its words where it uses them.
NOT_LINKED = ("glossary.md", "index.md", "reference/")


def entries(text: str, *, smoothing: bool) -> dict[str, str]:
    """The anchor of each form of a word; the words of smoothing only if `smoothing`.

    >>> entries('### Head {#head data-forms="head heads"}', smoothing=False)
    {'head': 'head', 'heads': 'head'}
    """
    matched = [entry for entry in ENTRY.finditer(text) if smoothing or not entry["smoothing"]]
    return {form.replace("_", " "): entry["anchor"] for entry in matched for form in entry["forms"].split()}


def linked(markdown: str, source: str, text: str) -> str:
    """The Markdown of a page at `source`, with a link at the first use of each word of the glossary `text`."""
    if source.startswith(NOT_LINKED):
        return markdown
    forms = entries(text, smoothing=any(name in source for name in SMOOTHING))
    target = posixpath.relpath("glossary.md", posixpath.dirname(source) or ".")
    lines, fenced, formula = [], False, False
    for line in markdown.split("\n"):
        fenced ^= bool(FENCE.match(line))
        formula ^= line.count("$$") == 1
        whole = fenced or formula or NOT_PROSE.match(line)
        lines.append(line if whole else _line(line, forms, target))
    return "\n".join(lines)


def _line(line: str, forms: dict[str, str], target: str) -> str:
    """A line of prose with its links; a word that was linked is removed from `forms`."""
    parts = WHOLE.split(line)
    for index in range(0, len(parts), 2):  # the others are whole
        for form, anchor in list(forms.items()):
            link = rf"[\1]({target}#{anchor})"
            if form not in forms or any(f"#{anchor})" in part for part in parts):
                continue
            parts[index], count = re.subn(rf"(?<![\w-])({re.escape(form)})(?![\w-])(?!\]\()", link, parts[index], count=1)
            if count:
                for other in [other for other, name in forms.items() if name == anchor]:
                    del forms[other]
    return "".join(parts)
