"""An explanation in the terminal: the strongest links, the six steps with their numbers, and the notes.

Each part is a separate rich renderable, so that other screens can reuse it.
"""

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from overt.drawing.letters import Ink, bar, piece, shade
from overt.drawing.numbers import STRONG, number, visible
from overt.explain.explanation import (
    Explanation,
    Link,
    choose_rows,
    heading,
    looks_line,
    loop_line,
    query_word,
    residual_line,
    word_index,
)
from overt.explain.terminal.step_table import BAR, QUIET, WORD, StepTable
from overt.explain.terminal.weight_map import BlockMap

_LEAST_BESIDE = 36  # columns for each of two compared rows of bars
SIDE_BY_SIDE = 150  # columns from which two explanations are side by side


def render(explanations: Sequence[Explanation], console: Console) -> None:
    """Print one explanation, or two, side by side if the terminal is wide enough, otherwise one after the other."""
    parts = [explained(explanation) for explanation in explanations]
    if len(parts) > 1:
        console.print(comparison(explanations))
        console.print()
    if len(parts) > 1 and console.width >= SIDE_BY_SIDE:
        console.print(_side_by_side(parts))
        return
    for index, part in enumerate(parts):
        if index:
            console.print()
        console.print(part)


def explained(explanation: Explanation, rows: int | None = 8) -> Group:
    """All parts of one explanation, from top to bottom."""
    parts: list[RenderableType] = [title(explanation), sentence(explanation), Text()]
    if explanation.links or explanation.looks:
        parts += [links(explanation), Text()]
    parts.append(head_map(explanation))
    return Group(*parts, step_table(explanation, rows), checks(explanation), notes(explanation))


@piece
def title(ink: Ink, explanation: Explanation) -> Iterable[Text]:
    """The recipe's name and the origin of the vectors."""
    yield ink.line(ink.text(heading(explanation), "bold"), "   ", ink.text(visible(explanation.source), QUIET))


@piece
def sentence(ink: Ink, explanation: Explanation) -> Iterable[Text]:
    """The tokens, each shaded by the word's attention to it; the word itself is marked."""
    layer, head = explanation.shown
    sizes = [abs(weight) for weight in explanation.rows[layer][head]]
    strongest, word_column = max([STRONG, *sizes]), word_index(explanation)
    if word_column is None:
        yield _flow(_marked(ink, token, i == explanation.word, 0.0) for i, token in enumerate(explanation.query_tokens))
        yield ink.line("  ", ink.text("attends to", QUIET))
    yield _flow(_marked(ink, token, j == word_column, sizes[j] / strongest) for j, token in enumerate(explanation.tokens))


def _flow(tokens: Iterable[Text]) -> Text:
    return Text(" ").join(tokens)


def _marked(ink: Ink, token: str, is_word: bool, share: float) -> Text:
    if is_word:
        return ink.line(ink.text("»", WORD), ink.token(token, 24, f"bold {shade(share)}"), ink.text("«", WORD))
    return ink.token(token, 24, shade(share))


@piece
def links(ink: Ink, explanation: Explanation) -> Iterable[Text]:
    """The strongest link to another word, a line for each layer, and the targets of the heads' largest weights."""
    if explanation.links:
        yield ink.line(ink.text("Strongest link from “", "bold"), ink.token(query_word(explanation), 24, WORD),
                       ink.text("” to another word, by layer", "bold"))  # fmt: skip
        lines, explained_in_line = _fitted_links(explanation, ink)
        yield from (ink.line("  " if line else "", line) for line in lines)
        if not explained_in_line:
            yield from ink.prose(f"{explanation.name} is shown: {visible(explanation.why)}", WORD)
    if explanation.looks:
        yield from ink.prose(looks_line(explanation), QUIET)


def _fitted_links(explanation: Explanation, ink: Ink) -> tuple[list[Text], bool]:
    """The links with bars that fill the width, and whether the lines include the reason for the shown head."""
    shown = any(_is_shown(link, explanation) for link in explanation.links)
    for with_why in (True, False):
        for width in (24, 18, 12, 8):
            rows = [_link(link, explanation, ink, width, with_why) for link in explanation.links]
            lines = ink.grid(rows, [False, False, False, True, False])
            if max(line.cell_len for line in lines) + 2 <= ink.width:
                return lines, with_why and shown
    return Ink(ink.width - 2, ink.encoding).table(rows, [False, False, False, True, False]), False


def _link(link: Link, explanation: Explanation, ink: Ink, width: int, with_why: bool) -> list[Text]:
    shown = _is_shown(link, explanation)
    style = "bold" if shown else ""
    why = f": {visible(explanation.why)}" if with_why else ""
    mark = ink.text(f"← shown{why}", WORD) if shown else ink.text("")
    pattern = ink.text(visible(link.pattern) + ("  " if shown else ""), QUIET) if link.pattern else ink.text("")
    return [
        ink.text(f"L{link.layer}H{link.head}", style),
        ink.token(link.token, 14, style),
        ink.text(bar(link.weight, 1.0, width).ljust(width), BAR),
        ink.text(number(link.weight), style),
        ink.line(pattern, mark),
    ]


def _is_shown(link: Link, explanation: Explanation) -> bool:
    return (link.layer, link.head) == tuple(explanation.shown)


@piece
def step_table(ink: Ink, explanation: Explanation, rows: int | None = 8) -> Iterable[Text]:
    """The steps with their numbers: the strongest `rows` tokens and the word's own, then all others in one line.

    A column has the number of its step. `rows=None` shows every token.
    """
    return StepTable(explanation, rows).lines(ink)


def head_map(explanation: Explanation) -> BlockMap:
    """The shown head's weights of every query, as a picture; empty without colours."""
    return BlockMap(explanation.query_tokens, explanation.matrix, explanation.word, explanation.name)


@piece
def checks(ink: Ink, explanation: Explanation) -> Iterable[Text]:
    """The recomputed output's distance from the model's own, and the timed forms, if there are any."""
    for line in filter(None, (residual_line(explanation), loop_line(explanation))):
        yield from ink.prose(line)


@piece
def notes(ink: Ink, explanation: Explanation) -> Iterable[Text]:
    """Notes on this picture, a line each."""
    for note in explanation.notes:
        yield from ink.prose(visible(note), QUIET, "· ")


@piece
def comparison(ink: Ink, explanations: Sequence[Explanation], rows: int = 5) -> Iterable[Text]:
    """The same head of two sentences: the strongest tokens of each, side by side."""
    name = explanations[0].name
    yield ink.line(ink.text(f"The same head, {name}, in {len(explanations)} sentences" if name else "Side by side", "bold"))
    side_by_side = ink.width >= _LEAST_BESIDE * len(explanations)
    width = (ink.width - 4) // len(explanations) if side_by_side else ink.width - 2
    texts = _apart([visible(explanation.text) for explanation in explanations], width - 3)
    blocks = [_block(explanation, text, rows, ink, width) for explanation, text in zip(explanations, texts, strict=True)]
    if not side_by_side:
        yield from (ink.line("  ", line) for block in blocks for line in block)
        return
    for index in range(max(map(len, blocks))):
        row = [block[index] if index < len(block) else Text() for block in blocks]
        yield ink.line("  ", *(part for cell in row for part in (cell, " " * max(1, width - cell.cell_len))))


def _apart(texts: Sequence[str], width: int) -> list[str]:
    """Remove the common prefix of all texts, as far as necessary to show their difference."""
    shared = next((index for index, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1), 0)
    starts = [max(0, min(shared - width // 2, len(text) - width + 1)) for text in texts]
    return [f"…{text[start:]}" if start else text for text, start in zip(texts, starts, strict=True)]


def _block(explanation: Explanation, text: str, rows: int, ink: Ink, width: int) -> list[Text]:
    word_row, strongest = word_index(explanation), choose_rows(explanation, None).rows[:rows]
    largest = max((abs(row.weight) for row in strongest), default=0.0)
    bar_width = max(2, min(20, width - 28))
    table = [[ink.token(row.token, 14, WORD if row.index == word_row else ""), ink.text(number(row.weight)),
              ink.text(bar(row.weight, max(largest, 1.0), bar_width), BAR)] for row in strongest]  # fmt: skip
    return [ink.token(text, width - 3, QUIET), *ink.grid(table, [False, True, False])]


def _side_by_side(parts: Sequence[RenderableType], gap: int = 4) -> Table:
    grid = Table.grid(padding=(0, gap, 0, 0), expand=True)
    for _ in parts:
        grid.add_column(ratio=1)
    grid.add_row(*parts)
    return grid
