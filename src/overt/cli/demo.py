"""`overt demo`: on one screen what overt is for. Every figure is measured while it runs."""

import shutil
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from overt.cli.explain import reading_model, write
from overt.cli.shared.console import busy, require_torch
from overt.drawing.letters import Ink, Piece, sparkline
from overt.drawing.numbers import number, vector
from overt.explain.encoded import choose
from overt.explain.explanation import Explanation
from overt.explain.hub_model import HubModel
from overt.explain.recipes import vectors
from overt.explain.recipes.plain_vectors import plain
from overt.explain.terminal import render as terminal
from overt.files import whole
from overt.smoothing import demonstration

SENTENCE, WORD = "The animal didn't cross the street because it was too tired", "it"
WORDS = "Sky is clear today"
PAGE, PICTURE = "overt-demo.html", "overt-demo.png"
_WIDEST = 100
# _ATTENTION, _SERIES, _WORDS, …: what each part shows, with its symbols explained at their first use.
_ATTENTION = "Attention: each vector becomes a mean of all, weighted by how well they match."
_SERIES = "each point becomes a mean of similar points; nothing was trained or tuned"
_WORDS = (
    "score: how well “sky” matches each word · softmax: scores as shares of 1 · "
    "y_sky: the mean of the word vectors by these shares, 384 numbers"
)
_NEXT_PART = "word vectors mostly match themselves; a trained model links words: see 4"
_STATES = (
    "h_j: what the layer holds after word j · f: a small network that scores two states · c_1: their mean by these shares · "
    "4×8 → 4×16: four words of 8 numbers, then of 16"
)
_TOKENS = "[CLS], [SEP]: marks at the ends · head: an attention of a layer · L5H11: layer 5, head 11, from 0"
_STEPS = "q, k, v: query, key and value of a token, 32 numbers each · α: its weight"


def demo() -> None:
    """Demonstrate overt: a series, word vectors, hidden states and a trained model, with the numbers of each."""
    console = Console(highlight=False)
    console = console if console.width <= _WIDEST else Console(highlight=False, width=_WIDEST)
    model = reading_model()
    device = "CPU" if isinstance(model, HubModel) else "CPU, offline"
    console.print(Piece(lambda ink: [_apart(ink, "overt · attention with nothing hidden", device, "bold")]))
    console.print(Piece(lambda ink: ink.prose(_ATTENTION, lead="")))
    console.print(Piece(_series))
    words = vectors.read_vectors(model, WORDS)
    console.print(Piece(lambda ink: _plain(ink, plain(words, choose(words.encoded, "sky")))))
    require_torch("overt demo", "all")
    with ExitStack() as files:
        paths = {kind: files.enter_context(whole(path)) for kind, path in (("html", PAGE), ("png", PICTURE))}
        with busy("loading torch and the model …"):
            from overt.explain.recipes.hidden_states import hidden
            from overt.explain.recipes.qkv import qkv

            states, trained = hidden(words, choose(words.encoded, "sky")), qkv(model, SENTENCE, WORD)
        console.print(Piece(lambda ink: _states(ink, states)))
        for part in _trained(trained):
            console.print(part)
        with busy("writing …"):
            write([trained], paths)
    console.print(Piece(_next))


def _heading(ink: Ink, number: int, name: str, source: str, remark: str = "") -> Text:
    line = ink.line(ink.text(f"{number}  ", "bold cyan"), ink.text(name.ljust(23), "bold"), ink.text(source, "dim"))
    space = ink.width - line.cell_len - len(remark)
    return ink.line(line, " " * max(space, 3), ink.text(remark, "bold")) if remark else line


def _apart(ink: Ink, left: str, right: str, style: str = "") -> Text:
    return ink.line(ink.text(left, style), " " * max(2, ink.width - len(left) - len(right)), ink.text(right, "dim"))


def _series(ink: Ink) -> Iterable[Text]:
    """Part 1: a noisy series before and after smoothing, as many points as fit."""
    series = demonstration(seed=0)
    indices = np.linspace(0, len(series.noisy) - 1, max(8, (ink.width - 44) // 2)).round().astype(int)
    low, high = series.noisy.min(), series.noisy.max()
    noisy, smoothed = (sparkline(list(values[indices]), low, high) for values in (series.noisy, series.smoothed))
    yield _heading(ink, 1, "Re-weight a series", f"{noisy} → {smoothed}", f"noise −{series.reduction:.0%}".replace("%", " %"))
    yield from _legend(ink, _SERIES)


def _legend(ink: Ink, text: str) -> Iterable[Text]:
    return ink.prose(text, "dim", "   ")


def _plain(ink: Ink, explanation: Explanation) -> Iterable[Text]:
    """Part 2: the vectors without projections."""
    yield _heading(ink, 2, "No trained weights", explanation.text)
    yield from _pairs(ink, explanation, "score", f"→ y_sky = {vector(explanation.output, 1)}")
    yield from _legend(ink, _WORDS)
    yield from ink.prose(_NEXT_PART, lead="   ")


def _states(ink: Ink, explanation: Explanation) -> Iterable[Text]:
    """Part 3: hidden states and their context."""
    count, width = len(explanation.tokens), len(explanation.query)
    source = explanation.source.split(", over")[0].replace("GRU, untrained", "untrained GRU")
    yield _heading(ink, 3, "Hidden states [h, c]", source, f"{count}×{width} → {count}×{2 * width}")
    yield from _pairs(ink, explanation, "f(h_1, h_j)", "→ c_1 = Σ a_1j h_j")
    yield from ink.prose(f"[h_1, c_1] = {vector(explanation.joined or [])}", lead="   ")
    yield from _legend(ink, _STATES)


def _pairs(ink: Ink, explanation: Explanation, score: str, result: str) -> list[Text]:
    """Each token's score and weight."""
    scores = [ink.line(ink.token(row.token, 12, "dim"), " ", ink.text(number(row.score))) for row in explanation.steps]
    weights = [ink.text(number(row.weight).removeprefix("0"), "bold") for row in explanation.steps]
    rows = [[ink.text(f"   {score}"), *scores], [ink.text(f"   {explanation.normalizer}"), *weights]]
    ends = [ink.text(""), ink.text(result)]
    right = [False, *[True] * len(scores)]
    for gap in (3, 2):
        wide = ink.grid([[*row, end] for row, end in zip(rows, ends, strict=True)], [*right, False], gap)
        if max(line.cell_len for line in wide) <= ink.width:
            return wide
    return [*ink.table(rows, right), *ink.prose(result, lead="   ")]


def _trained(explanation: Explanation) -> Iterable[Piece]:
    """Part 4: a trained model, its strongest links, and the six steps in one head."""
    yield Piece(lambda ink: [_heading(ink, 4, "Query, key, value", explanation.source)])
    yield _indented(terminal.sentence(explanation))
    yield Piece(lambda ink: _legend(ink, _TOKENS))
    yield _indented(terminal.links(explanation))
    yield Piece(lambda ink: _legend(ink, _STEPS))
    yield _indented(terminal.step_table(explanation, 2))
    yield _indented(terminal.checks(explanation))


def _indented(part: Piece) -> Piece:
    """The same part, indented by three columns."""
    return Piece(lambda ink: [ink.line("   ", line) for line in part.lay_out(Ink(ink.width - 3, ink.encoding))])


def _next(ink: Ink) -> Iterable[Text]:
    """The written files, commands for the reader's own text and series, and the next step as the last line."""
    overt = _command()
    yield from ink.prose(f"{PAGE} has all heads and numbers; {PICTURE} is a picture of part 4.", lead="")
    yield from ink.prose(f"{overt} explain TEXT --word WORD   ·   {overt} smooth FILE.csv --column NAME", lead="Your own: ")
    yield from ink.prose(f"open {PAGE}   ·   next: {overt} play", "bold", "")


def _command() -> str:
    """The shell command of this program: its name if the shell finds it, else its path."""
    script = Path(sys.executable).with_name("overt")
    if not script.exists() or shutil.which("overt") == str(script):
        return "overt"
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)
