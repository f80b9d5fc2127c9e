"""Explanations as a page: their recordings in the viewer, with the names of the recipe's steps."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from overt.drawing.html import PAGE_LIMIT
from overt.errors import InputError
from overt.explain.explanation import Explanation, heading, loop_line, query_word
from overt.explain.still import article
from overt.lens.viewer import page
from overt.lens.viewer.select_heads import PageTooLarge
from overt.lens.viewer.story import FROZEN, Live, Story, one_line


def write(
    explanations: Sequence[Explanation],
    path: str | os.PathLike[str] | None = None,
    *,
    limit: int = PAGE_LIMIT,
    live: Live = FROZEN,
    one_head: bool = False,
) -> tuple[str, str]:
    """Write one explanation, or two side by side, as a single page; returns the page or its path, and a note on missing heads.

    The page has all heads of the recording, or only the explained layer's if all would exceed `limit` bytes; with
    `one_head` only the explained head. Raises InputError if even these exceed it.
    """
    first = explanations[0]
    shown = [explanation.recorded() for explanation in explanations if explanation.recorded is not None]
    options: dict[str, Any] = {
        "title": _title(explanations),
        "model": shown[0].model,
        "opened": (*shown[0].heads[first.shown[0]][first.shown[1]], first.word),
        "beside": shown[1].recording if len(shown) > 1 else None,
        "story": _story(explanations, [explanation.states for explanation in shown]),
        "limit": limit,
        "live": live,
    }
    heads = shown[0].heads[first.shown[0]]
    note = (
        f"The page holds the {len(heads)} heads of layer {first.shown[0]}: with the heads of all layers it would be too large."
    )
    if one_head:
        return page(shown[0].recording, path, heads=[shown[0].heads[first.shown[0]][first.shown[1]]], **options), ""
    with suppress(PageTooLarge):  # all heads of a large model would exceed the limit
        return page(shown[0].recording, path, **options), ""
    try:
        return page(shown[0].recording, path, heads=heads, **options), note
    except PageTooLarge as error:
        size = f"a page of at most {limit / 1e6:.1f} MB, which browsers open quickly"
        many = f"{len(first.query_tokens)} queries and {len(first.tokens)} keys in {len(heads)} heads, which need more"
        raise InputError(size, got=many, fix="pass a shorter text") from error


def _story(explanations: Sequence[Explanation], states: list[Any]) -> Story:
    first = explanations[0]
    return Story(
        recipe=first.recipe,
        heading=heading(first),
        source=first.source,
        why=[explanation.why for explanation in explanations],
        notes=[explanation.notes for explanation in explanations],
        loops=[loop_line(explanation) for explanation in explanations],
        words=[explanation.word for explanation in explanations],
        still="\n".join(article(explanation) for explanation in explanations),
        sides=("what is written", "what is read") if first.other is not None else None,
        states=states,
    )


def _title(explanations: Sequence[Explanation]) -> str:
    """The text, or both texts, as the title of the browser's tab."""
    first, last = explanations[0], explanations[-1]
    if first is not last:
        return f"“{query_word(first)}” in {one_line(first.text)} / {one_line(last.text)}"
    return one_line(first.text) if first.other is None else f"“{one_line(first.text)}” attends to “{one_line(first.other)}”"
