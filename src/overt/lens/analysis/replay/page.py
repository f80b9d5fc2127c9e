"""Replays as one offline page: the check, the spans with mass and knock-out side by side, and every token of the answer."""

import os
from collections.abc import Sequence
from typing import Any

from overt.drawing.html import data_page, escape_text, table
from overt.drawing.numbers import number, visible

_WEB = "lens/analysis/replay/web"


def page(
    replays: Sequence[dict[str, Any]],
    path: str | os.PathLike[str] | None = None,
    *,
    skipped: Sequence[tuple[int, str]] = (),
    title: str | None = None,
) -> str:
    """Make the page of replays (`Replay.data`) and of skipped lines. Returns its path, or without a path the page itself.

    Raises InputError for a page of more than 20 MB.
    """
    title = f"{len(replays):,} replayed {'answer' if len(replays) == 1 else 'answers'}" if title is None else title
    data = {"title": visible(title), "replays": [_shown(replay) for replay in replays]}
    data |= {"skipped": [[line, visible(why)] for line, why in skipped]}
    smaller = "replay fewer answers of the log, or write --json"
    return data_page("replay", _WEB, path, title=title, data=data, still=_still(replays, title), smaller=smaller)


def _shown(replay: dict[str, Any]) -> dict[str, Any]:
    texts = {
        name: visible(str(replay[name] or "")) if replay[name] else "" for name in ("name", "dialect", "refused", "verdict")
    }
    words = [visible(word) if word.strip() else word for word in replay["answer"]]
    spans = [{**span, "name": visible(span["name"])} for span in replay["spans"]]
    return {**replay, **texts, "answer": words, "spans": spans, "notes": [visible(note) for note in replay["notes"]]}


def _still(replays: Sequence[dict[str, Any]], title: str) -> str:
    """The page without scripts: each answer's spans as a table."""
    parts = [f"<div class='replay'><h1>{escape_text(title)}</h1>"]
    for replay in replays:
        parts.append(f"<h2>{escape_text(replay['name'] or 'line ' + str(replay['line']))}</h2>")
        parts.append(
            f"<p>{escape_text(replay['verdict'])}</p>"
            + (f"<p>{escape_text(replay['refused'])}</p>" if replay["refused"] else "")
        )
        rows = [
            (escape_text(span["name"]), str(span["tokens"]), number(span["mass"], 3), number(span["change"], 3))
            for span in replay["spans"]
        ]
        if rows:
            parts.append(table(("span", "tokens", "mass", "change by knock-out, nats"), rows))
    return "".join([*parts, "</div>"])
