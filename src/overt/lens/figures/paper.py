"""The common parts of all figures: a sheet in print size, its texts, a map, and the writing of a file."""

import functools
import io
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from overt.drawing.canvas import BLUE, FIRE, INK, QUIET, Sheet, drawing, plain_settings, signs
from overt.drawing.numbers import labels, number
from overt.errors import InputError
from overt.files import whole
from overt.lens.captured import Captured
from overt.lens.head import Head
from overt.lens.linear.captured import CapturedMixer
from overt.lens.statistics.one_text import unpadded_texts
from overt.lens.statistics.summarized import CapturedSummary
from overt.lens.tokens import Words

WIDE, COLUMN = 675.0, 335.0  # WIDE, COLUMN: the width of a page's text and of one of its columns (1/100 inch)
SMALL, PLAIN = 6.5, 8.0  # SMALL, PLAIN: sizes of letters (points)
EDGE, DPI = 6.0, 300
KINDS = ("pdf", "svg", "png")


def in_print(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Run a drawing function with matplotlib's default settings instead of the user's."""

    @functools.wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        with plain_settings(drawing("a figure")):
            return draw(*args, **kwargs)

    return drawn


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure as PDF, SVG or PNG, whole or not at all.

    Fonts are embedded: TrueType in a PDF (type 42, which publishers require), outlines in an SVG. The same figure gives the same
    bytes. Raises InputError for another file ending.

    >>> import tempfile, torch, overt
    >>> from overt.lens.figures import heads_grid
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(heads_grid(recording), folder + "/heads.pdf")
    """
    kind = figure_kind(path)
    matplotlib = drawing("a figure")
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[kind]
    with plain_settings(matplotlib), whole(path) as temporary:
        matplotlib.rcParams.update({"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "overt"})
        # In memory first, because a PDF's writer does not close its file if the disk is full.
        drawn = io.BytesIO()
        figure.savefig(drawn, format=kind, dpi=DPI, metadata=undated)
        temporary.write_bytes(drawn.getbuffer())


def saved(figure: Any, path: str | os.PathLike[str] | None) -> Any:
    """Write the figure to the path, if there is one, and return it."""
    if path is not None:
        save(figure, path)
    return figure


def figure_kind(path: str | os.PathLike[str]) -> str:
    """The format of a figure from its path: pdf, svg or png. Raises InputError for another ending."""
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in KINDS:
        raise InputError("a path that ends in .pdf, .svg or .png", got=str(path), fix="choose one of these endings")
    return kind


def sheet(width: float, height: float) -> Sheet:
    """An empty figure of this size, in hundredths of an inch."""
    return Sheet(width, height, DPI)


def title(paper: Sheet, text: str, aside: str = "") -> None:
    """Write the title: the shown quantity, and its source in `aside`."""
    width_limit = paper.width - 2 * EDGE
    width = paper.text(EDGE, 13, text, PLAIN, bold=True, max_width=width_limit)
    paper.text(EDGE + width + 9, 13, aside, SMALL, QUIET, max_width=max(width_limit - width - 9, 0))


def weight_map(
    paper: Sheet, weights: Tensor, x: float, y: float, width: float, height: float, root: bool, signed: bool = False
) -> None:
    """Draw weights (rows, columns) as cells, white for 0; `root` draws their roots, so that weak weights are visible.

    The colours of `signed` weights diverge around zero: vermillion below it, blue above.
    """
    sizes = weights.abs().sqrt() if root else weights.abs()
    largest = float(sizes.nan_to_num().max()) if sizes.numel() else 0.0
    shown, palette, lowest = (sizes * weights.sign(), signs(), -(largest or 1.0)) if signed else (sizes, colours(), 0.0)
    paper.image(shown.cpu().numpy(), x, y, width, height, palette, lowest, largest or 1.0)
    paper.box(x, y, width, height, "none", edge=QUIET)
    paper.axes.patches[-1].set_linewidth(0.5)


def signed_bar(paper: Sheet, zero: float, y: float, value: float, step: float, decimals: int, colour: str = "") -> None:
    """Draw a bar from `zero` to the side of the value's sign, `step` wide for each unit, with the number after it."""
    end = zero + value * step
    paper.box(min(zero, end), y - 4.5, abs(value) * step, 9, colour or (BLUE if value >= 0 else FIRE))
    beyond, across = (end + 3, "left") if value >= 0 else (end - 3, "right")
    paper.text(beyond, y, number(value, decimals), SMALL, QUIET, across=across)


@cache
def colours() -> Any:
    """The colour map from white through blues to the darkest blue, monotonically darker; NaN is vermillion."""
    from matplotlib.colors import LinearSegmentedColormap

    colormap = LinearSegmentedColormap.from_list("weights", ["#ffffff", *(signs()(0.5 + step / 8) for step in range(1, 5))])
    return colormap.with_extremes(bad=FIRE)


def scale(paper: Sheet, x: float, y: float, largest: float, signed: bool = False) -> float:
    """Draw the colour scale from 0 (or −largest if `signed`) to the largest weight, and return its width."""
    width = paper.text(x, y, number(-largest) if signed else "0", SMALL, QUIET)
    palette = signs() if signed else colours()
    paper.image([[step / 63 for step in range(64)]], x + width + 4, y - 4, 70, 8, palette, 0.0, 1.0)
    return width + 78 + paper.text(x + width + 78, y, number(largest), SMALL, INK)


def cells(captured: Captured, size: int | None, default: int) -> tuple[int, int]:
    """The cells of a map, along queries and along keys: at most `size`, by default a summary's cells or `default`."""
    stored = captured.summary.map_mean if size is None and isinstance(captured, CapturedSummary) else None
    if stored is not None:
        return stored.shape[-2], stored.shape[-1]
    size = default if size is None else size
    return min(size, captured.queries), min(size, captured.keys)


def shown(head: Head, sequence: int, padding: bool) -> tuple[Head, int]:
    """The drawn head and the number of its sequence: a text without the padding of its batch, unless `padding`."""
    padded = None if padding or not 0 <= sequence < head.captured.batch else unpadded_texts(head.captured, head.tokens)
    return (head, sequence) if padded is None else (head.of_text(sequence), 0)


def entry(batch: Tensor, sequence: int) -> Tensor:
    """One sequence of a batch."""
    if not 0 <= sequence < len(batch):
        there = f"0 to {len(batch) - 1}"
        raise InputError(f"a recorded sequence, {there}", got=f"sequence={sequence}", fix="choose one of them")
    return batch[sequence]


def words(tokens: Words | None, sequence: int) -> list[str] | None:
    """One sequence's tokens as labels, or None."""
    return None if tokens is None else labels(tokens[0] if len(tokens) == 1 else tokens[sequence])


def is_signed(captured: Captured) -> bool:
    """Whether a call's weights are signed and do not sum to one, as in a linear token mixer."""
    return isinstance(captured, CapturedMixer) or bool(getattr(captured, "mixer", ""))
