"""Pictures of the guide and its notebooks: matplotlib figures as SVG, readable on light and on dark pages.

A block of a page ends with `print(picture(figure, "what it shows"))`; a notebook's cell with `draw(…)`. Grey is the page's text colour;
uncoloured parts are transparent.
"""

import hashlib
import html
import re
from io import StringIO
from typing import Any

import numpy as np

from overt.errors import needed_by

with needed_by("pictures of the guide", "plot"):
    import matplotlib
    from cycler import cycler
    from matplotlib.colors import LinearSegmentedColormap, to_rgba
    from matplotlib.figure import Figure

BLUE, FIRE, GREEN, PURPLE, GOLD, ROSE = COLOURS = ("#3d85c6", "#d9702b", "#2f9e6e", "#9a72c7", "#b08a1e", "#c9588a")
GREY, INK, PAPER = "#808080", "#818181", "#fefefe"
# _SEEN: the site's variable for each colour, from a palette with a light and a dark side, and, after the comma, the colour elsewhere.
_SEEN = {
    GREY: "var(--quiet, var(--jp-ui-font-color2, #808080))",
    INK: "var(--ink, var(--jp-ui-font-color1, #808080))",
    PAPER: "var(--paper, #ffffff)",
    BLUE: "var(--blue, #3d85c6)",
    FIRE: "var(--fire, #d9702b)",
}
# _PRINT: colours for overt's own figures, which are for print: their inks would be invisible on a dark page.
_PRINT = {"#1b2027": GREY, "#5c6470": GREY, "#e0dcd2": GREY, "#0072b2": BLUE, "#d55e00": FIRE}

_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.facecolor": "none",
    "axes.labelcolor": GREY,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": GREY,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.facecolor": "none",
    "font.size": 9,
    "grid.alpha": 0.2,
    "grid.color": GREY,
    "legend.frameon": False,
    "legend.labelcolor": GREY,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "path",
    "svg.hashsalt": "overt",
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


def sheet(width: float = 6.0, height: float = 3.0, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """Create a figure of this size in inches with axes, and set the guide's style; options are `subplots`'s."""
    matplotlib.rcParams.update(_STYLE)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def picture(figure: Figure, title: str) -> str:
    """The figure as SVG, as wide as the page allows; `title` describes it for screen readers."""
    written = StringIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "overt"}):
        figure.savefig(
            written,
            format="svg",
            transparent=True,
            bbox_inches="tight",
            pad_inches=0.04,
            metadata={"Date": None, "Creator": None},
        )
    drawn = written.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", drawn, flags=re.DOTALL)
    for ink, colour in _PRINT.items():
        drawn = drawn.replace(ink, colour)
    for colour, named in _SEEN.items():
        drawn = drawn.replace(colour, named)
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', drawn)
    assert size is not None
    drawn = drawn.replace(size[0], f'role="img" aria-label="{html.escape(title)}" style="{_shown(float(size[1]) * 1.5)}"', 1)
    drawn = re.sub(r"\s*\n\s*", " ", _defined_names(drawn))
    return f'<div style="overflow-x: auto">{drawn}</div>'


def draw(*texts: Any) -> None:
    """Print HTML in a notebook."""
    from IPython.display import HTML, display

    display(HTML(" ".join(map(str, texts))))


def say(*texts: Any, end: str = "") -> None:
    """Print Markdown in a notebook."""
    from IPython.display import Markdown, display

    display(Markdown(" ".join(map(str, texts)) + end))


def _shown(width: float) -> str:
    """As wide as the page, up to the picture's own width in pixels; a wide picture stays readable on a phone, and scrolls."""
    least = "min-width: 500px; " if width > 640 else ""
    return f"display: block; width: 100%; {least}max-width: {width:.0f}px; height: auto; margin: 1em auto"


def _defined_names(drawn: str) -> str:
    """Remove unused names and make the others unique, since a page has several pictures."""
    mark = hashlib.sha256(drawn.encode()).hexdigest()[:6]
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawn))
    drawn = re.sub(r' id="([^"]+)"', lambda actual: f' id="p{mark}{actual[1]}"' if actual[1] in used else "", drawn)
    return re.sub(r'(href="#|url\(#)', rf"\1p{mark}", drawn)


def heatmap(
    axes: Any,
    weights: Any,
    rows: Any = None,
    columns: Any = None,
    *,
    title: str = "",
    numbers: bool | None = None,
    most: float = 0.0,
    colour: str = BLUE,
) -> None:
    """Draw weights as cells, from the page's own colour for 0 to the full one for the largest, or for `most`; below 0 they are orange.

    `rows` and `columns` are the words on the left and above. Cells contain their numbers if there are at most a hundred.
    """
    shown = np.asarray(weights.detach() if hasattr(weights, "detach") else weights, dtype=float)
    most = most or float(np.abs(shown).max()) or 1.0
    few = shown.size <= 300 and len(axes.figure.axes) <= 12
    (_small if few else _large)(axes, shown / most, colour)
    for (i, j), weight in np.ndenumerate(shown) if numbers or (numbers is None and shown.size <= 100) else ():
        if abs(weight) >= 0.005:
            strong = abs(weight) > 0.55 * most
            axes.text(j, i, f"{weight:.2f}", ha="center", va="center", fontsize=7.5, color=PAPER if strong else INK)
    for side in axes.spines.values():
        side.set(visible=True, alpha=0.4, linewidth=0.6)
    _words(axes, rows, columns)
    axes.set_title(title)


def heats(
    maps: dict[str, Any],
    rows: Any = None,
    columns: Any = None,
    *,
    width: float = 6.6,
    numbers: bool | None = None,
    most: float = 0.0,
) -> Figure:
    """Draw maps side by side, each with its title; the row words are left of the first."""
    figure, axes = sheet(width, width / len(maps) + 0.45, columns=len(maps), squeeze=False)
    for panel, (title, weights) in zip(axes[0], maps.items(), strict=True):
        heatmap(panel, weights, rows if panel is axes[0, 0] else None, columns, title=title, numbers=numbers, most=most)
    return figure


def _small(axes: Any, shares: np.ndarray, colour: str) -> None:
    """Draw a rectangle for each cell, in the page's own colours."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    cells = [((j - 0.5, i - 0.5), share) for (i, j), share in np.ndenumerate(shares) if abs(share) >= 0.004]
    colours = [to_rgba(colour if share > 0 else FIRE, min(abs(share), 1.0)) for _, share in cells]
    axes.add_collection(PatchCollection([Rectangle(at, 1, 1) for at, _ in cells], facecolors=colours, linewidths=0))
    down, across = shares.shape
    axes.set(xlim=(-0.5, across - 0.5), ylim=(down - 0.5, -0.5), aspect="equal")


def _large(axes: Any, shares: np.ndarray, colour: str) -> None:
    """Draw one image, with the same colours on all pages."""
    ends = [to_rgba(FIRE, 1.0), to_rgba(FIRE, 0.0), to_rgba(colour, 0.0), to_rgba(colour, 1.0)]
    colours = LinearSegmentedColormap.from_list("weights", list(zip((0.0, 0.5, 0.5, 1.0), ends, strict=True)), 512)
    axes.imshow(shares, cmap=colours, vmin=-1, vmax=1, interpolation="nearest")


def _words(axes: Any, rows: Any, columns: Any) -> None:
    """Draw words on the left and above, rotated if they are long."""
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    rows, columns = list(rows if rows is not None else []), list(columns if columns is not None else [])
    axes.set_yticks(range(len(rows)), rows)
    cell = axes.get_position().width * axes.figure.get_figwidth() / max(len(columns), 1)
    turned = max((len(str(word)) for word in columns), default=0) * 0.09 > cell
    axes.set_xticks(range(len(columns)), columns, rotation=90 if turned else 0)


def arcs(tokens: Any, weights: Any, asks: int, *, width: float = 6.8, colour: str = FIRE) -> Figure:
    """Draw the attention of one token: an arc to each other token over the line of tokens, as wide and dark as its weight."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Line

    shares = np.asarray(weights, dtype=float)
    widths = np.array([len(token) + 2.2 for token in tokens], dtype=float)
    positions = (np.cumsum(widths) - widths / 2) / widths.sum()
    figure, axes = sheet(width, width * 0.3)
    for index, share in enumerate(shares):
        if index == asks or share < 0.005:
            continue
        start, end = positions[asks], positions[index]
        height = 0.12 + 1.1 * abs(end - start)
        line = Line([(start, 0), (start, height), (end, height), (end, 0)], [Line.MOVETO, *[Line.CURVE4] * 3])
        axes.add_patch(
            PathPatch(line, fill=False, edgecolor=colour, linewidth=0.6 + 9 * share, alpha=0.25 + 0.75 * min(1.0, 1.5 * share))
        )
        if share >= 0.05:
            axes.text((start + end) / 2, 0.75 * height + 0.045, f"{share:.2f}", ha="center", fontsize=7.5)
    for index, token in enumerate(tokens):
        ink, weight = INK if shares[index] >= 0.1 or index == asks else GREY, "bold" if index == asks else "normal"
        axes.text(positions[index], -0.05, token, ha="center", va="top", color=ink, weight=weight)
    axes.set(xlim=(0, 1), ylim=(-0.15, 0.2 + 0.85 * np.abs(positions - positions[asks]).max()))
    axes.set_axis_off()
    return figure


def table(rows: Any, headings: Any, align: str = "") -> str:
    """A table in Markdown; `align` has one letter a column, l or r."""
    cells = [[str(cell) for cell in row] for row in rows]
    rule = [{"r": "---:"}.get(letter, "---") for letter in align.ljust(len(headings), "l")]
    return "\n".join("| " + " | ".join(row) + " |" for row in [list(headings), rule, *cells])
