"""An explanation as an animation of its steps, each shown long enough to be read."""

import os
from collections.abc import Iterator
from typing import Any

from overt.drawing.canvas import BLUE, FIRE, INK, LINE, QUIET, Sheet, drawing, lowered, plain_settings
from overt.drawing.numbers import decimals_for, vector
from overt.explain.explanation import Explanation, Stage, choose_rows, heading, query_name, stages
from overt.explain.picture.parts import StepColumns, sentence
from overt.files import whole

WIDTH, HEIGHT, EDGE = 1280, 720, 44  # WIDTH, HEIGHT, EDGE: the sheet's size and its margin
MOVE, HOLD, LAST = 140, 2800, 5000  # MOVE, HOLD, LAST: milliseconds of a moving frame, a complete step, the last frame
PARTS = 4  # frames for the cells of a step's column


def gif(explanation: Explanation, path: str | os.PathLike[str]) -> None:
    """Write the steps as an animated GIF of 1024 by 576 points that repeats."""
    matplotlib = drawing("the animation")
    with plain_settings(matplotlib), whole(path) as temporary:
        drawn = list(frames(explanation))
        # One palette, from the last and most complete frame, so that no colour flickers.
        palette = drawn[-1][0].quantize(256, dither=0)
        pictures = [picture.quantize(palette=palette, dither=0) for picture, _ in drawn]
        pictures[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=pictures[1:],
            duration=[duration for _, duration in drawn],
            loop=0,
        )


def frames(explanation: Explanation) -> Iterator[tuple[Any, int]]:
    """Yield each frame of the animation with its milliseconds."""
    known = stages(explanation)
    count = len(choose_rows(explanation, 7).rows)
    for stage in known:
        moving = stage.key not in {"join"}
        for part in range(1, PARTS) if moving else []:
            yield _frame(explanation, known, stage, count * part / PARTS), MOVE
        yield _frame(explanation, known, stage, float("inf")), LAST if stage is known[-1] else HOLD


def _frame(explanation: Explanation, known: list[Stage], stage: Stage, rows: float) -> Any:
    from PIL import Image

    sheet = Sheet(WIDTH, HEIGHT, dpi=80)
    page_width = WIDTH - 2 * EDGE
    title_width = sheet.text(EDGE, 34, heading(explanation), 15, bold=True, max_width=page_width / 2)
    where = f"{explanation.name} · {explanation.source}" if explanation.name else explanation.source
    sheet.text(EDGE + title_width + 14, 35, where, 11, QUIET, max_width=page_width - title_width - 20)
    _progress(sheet, known, stage, page_width)
    weighing = next(candidate.number for candidate in known if candidate.key == "normalize")
    sentence(sheet, explanation, EDGE, 168, page_width, 116, weighed=stage.number >= weighing)
    _query(sheet, explanation, page_width)
    StepColumns(sheet, explanation, choose_rows(explanation, 7), EDGE, 330, page_width, 370).draw(stage.number, rows)
    remark = sheet.remark()
    if remark:
        sheet.text(WIDTH - EDGE, HEIGHT - 10, remark, 8, QUIET, across="right")
    canvas: Any = sheet.figure.canvas
    canvas.draw()
    return Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba(), "raw", "RGBA", 0, 1).convert("RGB")


def _progress(sheet: Sheet, known: list[Stage], stage: Stage, page_width: float) -> None:
    """Draw a line for each step, the current one marked, with its sentence."""
    width = page_width / len(known)
    for index, step in enumerate(known):
        left, now = EDGE + index * width, step is stage
        colour = FIRE if now else BLUE if step.number < stage.number else LINE
        sheet.line(left, 62, left + width - 10, 62, colour, 3.2)
        sheet.text(left, 80, f"{step.number}  {step.title}", 10.5, INK if now else QUIET, bold=now, max_width=width - 12)
    sheet.text(EDGE, 116, lowered(stage.formula), 17, FIRE, bold=True, max_width=page_width / 3)
    reach = sheet.measure(lowered(stage.formula), 17, bold=True) + 18
    sheet.wrapped(
        EDGE + min(reach, page_width / 3), 116, lowered(stage.sentence), page_width - min(reach, page_width / 3), 12.5, 2
    )


def _query(sheet: Sheet, explanation: Explanation, page_width: float) -> None:
    """Draw the word's own vector, from the first step on."""
    name, query = lowered(query_name(explanation)), explanation.query
    line = f"1   {name} = {vector(query, decimals=decimals_for(query))}"
    width = sheet.text(EDGE, 314, line, 11, mono=True, max_width=page_width / 2)
    sheet.strip(EDGE + width + 12, 306, 150, 16, query, max(map(abs, query), default=1.0) or 1.0)
