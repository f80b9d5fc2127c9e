"""An explanation as a page: one file that works offline, by keyboard, in light and dark, and without its script too."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from overt.drawing.html import PAGE_LIMIT, bundle, escape_text, fill_template, read, script_json
from overt.drawing.numbers import labels, visible
from overt.errors import InputError
from overt.explain.explanation import Explanation, query_name, query_word, stages, state_name, word_index
from overt.explain.page.static import article

_WEB = "explain/page/web"


def html(explanations: Sequence[Explanation], *, limit: int = PAGE_LIMIT) -> str:
    """Write one explanation, two side by side, or those of every word of one text, as a single page that loads nothing.

    The page's policy lets only its own style and script run, known by their hashes; the data is JSON that the script
    puts on the page as text, never as markup. Raises InputError for a page of more than `limit` bytes.
    """
    articles, data, size = [], [], 0
    for index, each in enumerate(explanations):
        articles.append(article(each, index))
        data.append(script_json(_data(each)))
        size += len(articles[-1].encode("utf-8", "replace")) + len(data[-1])
        _fits(size, limit)
    return fill_template(
        f"{_WEB}/template.html",
        style=f"{read('drawing/web/palette.css')}\n{read(f'{_WEB}/style.css')}",
        script=bundle(f"{_WEB}/page.js"),
        title=escape_text(_title(explanations)),
        layout="askers" if _one_text(explanations) else "pair" if len(explanations) > 1 else "single",
        articles="\n".join(articles),
        data=f"[{','.join(data)}]",
    )


def check_size(first: Explanation, count: int, limit: int = PAGE_LIMIT) -> None:
    """Refuse a page of so many explanations like the first one, before the others are made: each holds every weight."""
    _fits(count * (len(article(first, 0)) + len(script_json(_data(first)))), limit, "about ")


def _fits(size: int, limit: int, about: str = "") -> None:
    if size > limit:
        raise InputError(
            f"a page of at most {limit / 1e6:.1f} MB, which browsers open quickly",
            got=f"{about}{size / 1e6:.1f} MB",
            fix="pass a shorter text",
        )


def _title(explanations: Sequence[Explanation]) -> str:
    if _one_text(explanations):
        return f"“{explanations[0].text}” from “{explanations[0].other}”"
    return " / ".join(f"“{visible(each.query_tokens[each.word])}” in {each.text}" for each in explanations)


def _one_text(explanations: Sequence[Explanation]) -> bool:
    """Whether these are the words of one text, in their order, each before the same other text."""
    texts = {(each.text, each.other) for each in explanations}
    return len(explanations) > 1 and len(texts) == 1 and [each.word for each in explanations] == list(range(len(explanations)))


def _data(explanation: Explanation) -> dict[str, Any]:
    """What the script needs beside the explanation itself: the words, so that they are the same everywhere."""
    word_row, names = word_index(explanation), labels(explanation.tokens)
    return explanation.to_dict() | {
        "stages": [asdict(stage) for stage in stages(explanation)],
        "labels": names,
        "query_labels": names if word_row is not None else labels(explanation.query_tokens),
        "word_index": word_row,
        "name": explanation.name,
        "query_word": query_word(explanation),
        "query_name": query_name(explanation),
        "state_names": [state_name(explanation, row.index) for row in explanation.steps],
    }
