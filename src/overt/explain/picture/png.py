"""An explanation as a picture for a slide, and as an animation."""

import math
import os
from collections.abc import Sequence

from overt.drawing.canvas import BLUE, FIRE, INK, LINE, QUIET, Sheet, drawing, lowered, plain_settings, signs
from overt.drawing.numbers import decimals_for, labels, number, vector
from overt.errors import InputError
from overt.explain.explanation import (
    Explanation,
    choose_rows,
    count_word,
    heading,
    looks_line,
    loop_line,
    query_name,
    residual_line,
    stages,
    word_index,
)
from overt.explain.picture.gif import gif
from overt.explain.picture.parts import StepColumns, largest_size, sentence
from overt.files import whole

__all__ = ["gif", "picture", "png"]

WIDTH, HEIGHT, EDGE = 1600, 900, 56  # WIDTH, HEIGHT, EDGE: the size of an explanation and its margin
MOST_LINKS, LEAST_LABEL = 24, 12.0  # MOST_LINKS: most links drawn; LEAST_LABEL: least distance between labels of the matrix


def png(explanations: Sequence[Explanation], path: str | os.PathLike[str]) -> None:
    """Write one explanation, or several stacked vertically, as a PNG of 1920 pixels in width."""
    matplotlib = drawing("the picture")
    with plain_settings(matplotlib), whole(path) as temporary:
        picture(explanations).figure.savefig(temporary, format="png")


def picture(explanations: Sequence[Explanation]) -> Sheet:
    """Draw the picture, without writing it."""
    if not explanations:
        raise InputError("at least one explanation", got="none", fix="pass one")
    sheet = Sheet(WIDTH, HEIGHT * len(explanations), dpi=120)
    for index, explanation in enumerate(explanations):
        if index:
            sheet.line(EDGE, index * HEIGHT, WIDTH - EDGE, index * HEIGHT, INK)
        _slide(sheet, explanation, index * HEIGHT)
    return sheet


def _slide(sheet: Sheet, explanation: Explanation, top: float) -> None:
    sheet.cropped = sheet.strange = False
    page_width = WIDTH - 2 * EDGE
    title_width = sheet.text(EDGE, top + 46, heading(explanation), 21, bold=True, max_width=page_width / 2)
    sheet.text(EDGE + title_width + 18, top + 48, explanation.source, 13, QUIET, max_width=page_width - title_width - 120)
    sheet.text(WIDTH - EDGE, top + 46, "overt", 13, QUIET, bold=True, across="right")
    sentence(sheet, explanation, EDGE, top + 76, page_width, 190)
    _steps(sheet, explanation, EDGE, top + 300, 830)
    _matrix(sheet, explanation, 918, top + 300, 366 if explanation.links else 560)
    if explanation.links:
        _links(sheet, explanation, 1316, top + 300, WIDTH - EDGE - 1316)
    _foot(sheet, explanation, top + HEIGHT - 92, page_width)


def _steps(sheet: Sheet, explanation: Explanation, x: float, y: float, max_width: float) -> None:
    known = stages(explanation)
    where = f" in {explanation.name}" if explanation.name else ""
    name, query = lowered(query_name(explanation)), explanation.query
    sheet.text(x, y, f"{count_word(len(known))} steps{where}", 14, bold=True, max_width=250)
    line = f"1   {name} = {vector(query, decimals=decimals_for(query))}"
    width = sheet.text(x + 262, y, line, 11.5, mono=True, max_width=360)
    sheet.strip(
        x + 262 + width + 14, y - 9, max(40.0, min(140.0, max_width - 262 - width - 14)), 18, query, largest_size([query])
    )
    StepColumns(sheet, explanation, choose_rows(explanation), x, y + 32, max_width, 440).draw()


def _matrix(sheet: Sheet, explanation: Explanation, x: float, y: float, max_width: float) -> None:
    """Draw the weights of every query, the word's row framed; labels if they fit, else only the strongest."""
    matrix = [[value if math.isfinite(value) else 0.0 for value in row] for row in explanation.matrix]
    maximum, minimum = max(map(max, matrix), default=1.0), min(0.0, min(map(min, matrix), default=0.0))
    sheet.text(
        x, y, f"{explanation.name}: every weight" if explanation.name else "Every weight", 14, bold=True, max_width=max_width
    )
    margin, top = 90.0, y + 108
    cell = min(max_width - margin, 330.0) / max(len(matrix), len(matrix[0]), 5)
    width, height = cell * len(matrix[0]), cell * len(matrix)
    reach = max(maximum, -minimum) or 1.0
    sheet.image(matrix, x + margin, top, width, height, signs(), -reach, reach)
    sheet.box(x + margin, top + explanation.word * cell, width, cell, "none", edge=FIRE)
    strong = [row.index for row in choose_rows(explanation).rows]
    names, word_column = labels(explanation.tokens), word_index(explanation)
    askers = names if word_column is not None else labels(explanation.query_tokens)
    size = min(10.0, max(7.0, cell * 0.5))
    for i in _labelled(len(matrix), cell, [explanation.word] if word_column is None else [explanation.word, *strong]):
        colour = FIRE if i == explanation.word else QUIET
        sheet.text(x + margin - 8, top + (i + 0.5) * cell, askers[i], size, colour, across="right", max_width=margin - 8)
    for j in _labelled(len(matrix[0]), cell, strong):
        colour = FIRE if j == word_column else QUIET
        sheet.text(x + margin + (j + 0.5) * cell, top - 6, names[j], size, colour, across="center", max_width=84, rotated=True)
    _scale(sheet, x + margin, top + height + 18, minimum, maximum)
    if cell < LEAST_LABEL:
        sheet.text(x + margin + 196, top + height + 18, "strongest labelled", 9, QUIET)


def _labelled(count: int, cell: float, preferred: Sequence[int]) -> list[int]:
    """The indices to label: all if they fit, otherwise the preferred ones that do not overlap."""
    labelled: list[int] = []
    for position in range(count) if cell >= LEAST_LABEL else preferred:
        if all(abs(position - other) * cell >= LEAST_LABEL for other in labelled):
            labelled.append(position)
    return labelled


def _scale(sheet: Sheet, x: float, y: float, minimum: float, maximum: float) -> None:
    reach = max(maximum, -minimum) or 1.0
    steps = [minimum + (maximum - minimum) * step / 63 for step in range(64)]
    sheet.text(x + 36, y, number(minimum), 9, QUIET, across="right")
    sheet.image([steps], x + 42, y - 5, 100, 10, signs(), -reach, reach)
    sheet.text(x + 148, y, number(maximum), 9, QUIET)


def _links(sheet: Sheet, explanation: Explanation, x: float, y: float, max_width: float) -> None:
    """Draw the strongest link to another word, a bar for each layer."""
    sheet.text(x, y, "Strongest links", 14, bold=True, max_width=max_width)
    shown = explanation.links
    if len(shown) > MOST_LINKS:
        shown = sorted(sorted(shown, key=lambda link: -link.weight)[:MOST_LINKS], key=lambda link: link.layer)
        sheet.text(x, y + 24, f"the strongest {MOST_LINKS} of {len(explanation.links)} layers", 9.5, QUIET, max_width=max_width)
    step = min(56.0, 420 / len(shown))
    size = min(11.5, step * 0.42)
    for index, link in enumerate(shown):
        chosen, middle = (link.layer, link.head) == tuple(explanation.shown), y + 46 + (index + 0.4) * step
        colour = FIRE if chosen else INK
        sheet.text(x, middle, f"L{link.layer}H{link.head}", size, colour, bold=chosen, mono=True, max_width=62)
        sheet.text(x + 66, middle, link.token, size, colour, bold=chosen, max_width=max_width - 66 - 48)
        sheet.text(x + max_width, middle, number(link.weight), size, colour, mono=True, across="right")
        if step >= 30:
            sheet.box(x + 66, middle + step * 0.2, max_width - 66, 5, LINE)
            sheet.box(
                x + 66,
                middle + step * 0.2,
                max(1.0, (max_width - 66) * min(1.0, abs(link.weight))),
                5,
                FIRE if chosen else BLUE,
            )


def _foot(sheet: Sheet, explanation: Explanation, y: float, max_width: float) -> None:
    """Draw the notes: the checks on one line, remarks on the next, cropped texts at the end."""
    sheet.line(EDGE, y - 16, WIDTH - EDGE, y - 16)
    checks = [line for line in (looks_line(explanation), residual_line(explanation), loop_line(explanation)) if line]
    y = sheet.wrapped(EDGE, y + 4, "; ".join(checks), max_width, 10, 2) if checks else y + 4
    if explanation.notes:
        sheet.wrapped(EDGE, y, lowered("  ".join(explanation.notes)), max_width, 10, 2, QUIET)
    sheet.text(WIDTH - EDGE, y + 40, sheet.remark(), 9, QUIET, across="right")
