"""An explanation as a page: one file that works offline, by keyboard, in light and dark, and without its script too."""

import json
import math
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from importlib.resources import files
from typing import Any

from overt.drawing.numbers import labels, own_index, query_name, stages, state_name, visible, word
from overt.errors import InputError
from overt.explain.explanation import Explanation
from overt.explain.page.static import article, safe

PAGE_LIMIT = 24 * 10**6  # bytes
_SCRIPTS = ("colours.js", "words.js", "draw.js", "script.js", "live.js")
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def html(explanations: Sequence[Explanation], *, limit: int = PAGE_LIMIT) -> str:
    """Write one explanation, two side by side, or those of every word of one text, as a single page that loads nothing.

    The page's policy lets only its own style and script run, known by their hashes; the data is JSON that the script
    puts on the page as text, never as markup. Raises InputError for a page of more than `limit` bytes.
    """
    articles, data, size = [], [], 0
    for place, each in enumerate(explanations):
        articles.append(article(each, place))
        data.append(embedded(_data(each)))
        size += len(articles[-1].encode("utf-8", "replace")) + len(data[-1])
        _fits(size, limit)
    style = f"{palette()}\n{_read('style.css')}"
    script = "\n".join(_read(name) for name in _SCRIPTS)
    parts = {
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "title": safe(_title(explanations)),
        "layout": "askers" if _one_text(explanations) else "pair" if len(explanations) > 1 else "single",
        "articles": "\n".join(articles),
        "data": f"[{','.join(data)}]",
    }
    # One pass: what is put in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("template.html"))


def check_size(first: Explanation, count: int, limit: int = PAGE_LIMIT) -> None:
    """Refuse a page of so many explanations like the first one, before the others are made: each holds every weight."""
    _fits(count * (len(article(first, 0)) + len(embedded(_data(first)))), limit, "about ")


def _fits(size: int, limit: int, about: str = "") -> None:
    if size > limit:
        raise InputError(
            f"a page has at most {limit / 1e6:.1f} MB, which browsers open quickly",
            got=f"{about}{size / 1e6:.1f} MB",
            fix="pass a shorter text",
        )


def palette() -> str:
    """The style that all pages share: colours by day and by night, and type."""
    return _read("palette.css")


def _title(explanations: Sequence[Explanation]) -> str:
    if _one_text(explanations):
        return f"“{explanations[0].text}” from “{explanations[0].other}”"
    return " / ".join(f"“{visible(each.query_tokens[each.word])}” in {each.text}" for each in explanations)


def _one_text(explanations: Sequence[Explanation]) -> bool:
    """Whether these are the words of one text, in their order, each before the same other text."""
    texts = {(each.text, each.other) for each in explanations}
    return len(explanations) > 1 and len(texts) == 1 and [each.word for each in explanations] == list(range(len(explanations)))


def embedded(value: Any) -> str:
    r"""JSON that can stand inside a script element: nothing in it can end that element or start another.

    Numbers keep seven digits, a float32's worth; those that are not finite become text that JavaScript's `Number` reads.

    >>> embedded(["</script>", 0.1234567891, float("-inf")])
    '["\\u003c/script\\u003e",0.1234568,"-Infinity"]'
    """
    text = json.dumps(_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: _ESCAPES[match[0]], text)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return float(f"{value:.7g}")
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


def _data(explanation: Explanation) -> dict[str, Any]:
    """What the script needs beside the explanation itself: the words, so that they are the same everywhere."""
    own, names = own_index(explanation), labels(explanation.tokens)
    return explanation.to_dict() | {
        "stages": [asdict(stage) for stage in stages(explanation)],
        "labels": names,
        "query_labels": names if own is not None else labels(explanation.query_tokens),
        "own": own,
        "name": explanation.name,
        "asker": word(explanation),
        "query_name": query_name(explanation),
        "state_names": [state_name(explanation, row.index) for row in explanation.steps],
    }


def _read(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
