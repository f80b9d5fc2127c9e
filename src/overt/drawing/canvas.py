"""A sheet for drawing by matplotlib without pyplot: measured text, boxes, strips of numbers."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from overt.drawing.numbers import INDEX, visible
from overt.errors import needed_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# BLUE, FIRE: Okabe and Ito's blue and vermillion, which are distinct with every common colour blindness.
BLUE, FIRE, INK, QUIET, LINE, WASH, PAPER = "#0072b2", "#d55e00", "#1b2027", "#5c6470", "#e0dcd2", "#f3f1ea", "#ffffff"
# Both ramps darken monotonically, so they are readable without their hue.
_POSITIVE = ("#c4dceb", "#6aaed6", "#0072b2", "#00355c")
_NEGATIVE = ("#f9d9bd", "#ee9a55", "#d55e00", "#6e2f00")
SANS, MONO = "DejaVu Sans", "DejaVu Sans Mono"
_MISSING = "□"
_LOW = str.maketrans({**dict(zip("0123456789", "₀₁₂₃₄₅₆₇₈₉", strict=True)), "i": "ᵢ", "j": "ⱼ"})


def drawing(what: str) -> Any:
    """Import matplotlib, or raise an error that says how to install it and Pillow."""
    with needed_by(what, "plot"):
        import matplotlib
        import PIL  # noqa: F401
    return matplotlib


@contextmanager
def plain_settings(matplotlib: Any) -> Iterator[None]:
    """Draw by matplotlib's own defaults, whatever the user's are, and without mathematical markup in text."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.family": SANS, "text.parse_math": False, "text.usetex": False})
        yield


def lowered(formula: str) -> str:
    """A formula with its indices as subscript letters.

    >>> lowered("c_1 = Σ a_1j h_j")
    'c₁ = Σ a₁ⱼ hⱼ'
    """
    return re.sub(INDEX, lambda match: match[1].translate(_LOW), formula)


class Sheet:
    """A figure in units of a hundredth of an inch, from the top left.

    `cropped` and `strange` record whether a text was cut and whether the font lacked a letter; `remark` reports them.
    """

    def __init__(self, width: float, height: float, dpi: int):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.width = width
        self.height = height
        self.dpi = dpi
        self.figure: Figure = Figure(figsize=(width / 100, height / 100), dpi=dpi, facecolor=PAPER)
        FigureCanvasAgg(self.figure)
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        self.axes.axis("off")
        self.cropped: bool = False
        self.strange: bool = False

    def measure(self, text: str, size: float, bold: bool = False, mono: bool = False) -> float:
        """The width of a text."""
        return _measured(text, size, bold, mono, self.dpi)

    def fitted(self, text: str, max_width: float, size: float, bold: bool = False, mono: bool = False) -> str:
        """The text in the letters of the font, cropped to `max_width`."""
        text = self.letters(visible(text))
        if self.measure(text, size, bold, mono) <= max_width:
            return text
        self.cropped = True
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if self.measure(f"{text[:middle]}…", size, bold, mono) <= max_width else (low, middle - 1)
            )
        return f"{text[:low].rstrip()}…"

    def letters(self, text: str) -> str:
        """The text with a box in place of each letter that the font lacks."""
        known = _known_letters()
        shown = "".join(letter if ord(letter) in known else _MISSING for letter in text)
        self.strange |= shown != text
        return shown

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 11,
        colour: str = INK,
        bold: bool = False,
        mono: bool = False,
        across: str = "left",
        max_width: float = math.inf,
        rotated: bool = False,
    ) -> float:
        """Draw a text, its middle line at y, cropped to `max_width`; returns its width."""
        if not text:
            return 0.0
        shown = self.fitted(text, max_width, size, bold, mono)
        self.axes.text(
            x, y, shown, color=colour, fontproperties=_font(size, bold, mono), ha=across, parse_math=False,
            va="bottom" if rotated else "center_baseline", rotation=90 if rotated else 0,
        )  # fmt: skip
        return self.measure(shown, size, bold, mono)

    def wrapped(self, x: float, y: float, text: str, max_width: float, size: float, lines: int, colour: str = INK) -> float:
        """Draw sentences on at most `lines` lines, the last one cropped; returns the y of the line after."""
        line = ""
        step, words = size * 2.0, self.letters(visible(text)).split(" ")
        for index, word in enumerate(words):
            if line and self.measure(f"{line} {word}", size) > max_width:
                if lines == 1:
                    self.text(x, y, " ".join([line, *words[index:]]), size, colour, max_width=max_width)
                    return y + step
                self.text(x, y, line, size, colour, max_width=max_width)
                line, y, lines = word, y + step, lines - 1
            else:
                line = f"{line} {word}" if line else word
        self.text(x, y, line, size, colour, max_width=max_width)
        return y + step

    def box(self, x: float, y: float, width: float, height: float, colour: Any, edge: str = "none", hatch: str = "") -> None:
        """Fill a box, its top left corner at x, y."""
        from matplotlib.patches import Rectangle

        inside = "none" if hatch else colour
        self.axes.add_patch(
            Rectangle((x, y), width, height, facecolor=inside, edgecolor=colour if hatch else edge, hatch=hatch, linewidth=1.2)
        )

    def chip(self, x: float, y: float, width: float, height: float, colour: Any, edge: str = "none") -> None:
        """Fill a box with round corners."""
        from matplotlib.patches import FancyBboxPatch

        style = "round,pad=0,rounding_size=5"
        self.axes.add_patch(
            FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=colour, edgecolor=edge, linewidth=1.6)
        )

    def line(self, x: float, y: float, to_x: float, to_y: float, colour: str = LINE, width: float = 1.0) -> None:
        """Draw a straight line."""
        self.axes.plot([x, to_x], [y, to_y], color=colour, linewidth=width, solid_capstyle="round")

    def arc(self, x: float, to_x: float, floor: float, height: float, colour: str, width: float, alpha: float) -> None:
        """Draw an arc whose ends are on the floor."""
        top = floor - height / 0.75
        self._curve([(x, floor), (x, top), (to_x, top), (to_x, floor)], colour, width, alpha)

    def link(self, x: float, y: float, to_x: float, to_y: float, colour: str, width: float, alpha: float) -> None:
        """Draw a curve from one line of text down to another."""
        middle = (y + to_y) / 2
        self._curve([(x, y), (x, middle), (to_x, middle), (to_x, to_y)], colour, width, alpha)

    def _curve(self, points: Sequence[tuple[float, float]], colour: str, width: float, alpha: float) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        path = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        patch = PathPatch(path, facecolor="none", edgecolor=colour, linewidth=width, alpha=alpha, capstyle="round")
        self.axes.add_patch(patch)

    def strip(self, x: float, y: float, width: float, height: float, values: Sequence[float], limit: float) -> None:
        """Draw a vector as a strip of cells, blue above zero and vermillion below."""
        finite = [value if math.isfinite(value) else 0.0 for value in values]
        self.image([finite], x, y, width, height, signs(), -limit, limit)

    def image(self, rows: Any, x: float, y: float, width: float, height: float, colours: Any, low: float, high: float) -> None:
        """Draw numbers as coloured cells."""
        shown = self.axes.imshow(
            rows,
            extent=(x, x + width, y + height, y),
            cmap=colours,
            vmin=low,
            vmax=high,
            aspect="auto",
            interpolation="nearest",
        )
        shown.set_zorder(1)
        self.axes.set(xlim=(0, self.width), ylim=(self.height, 0))

    def remark(self) -> str:
        """A remark on texts that were changed; empty if there are none."""
        remarks = ["… cropped to fit"] if self.cropped else []
        remarks += [f"{_MISSING} a letter that the font lacks"] if self.strange else []
        return "; ".join(remarks)


@cache
def _known_letters() -> frozenset[int]:
    """The letters in both fonts."""
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont(SANS)).get_charmap()) & frozenset(get_font(findfont(MONO)).get_charmap())


@cache
def _font(size: float, bold: bool, mono: bool) -> Any:
    from matplotlib.font_manager import FontProperties

    return FontProperties(family=MONO if mono else SANS, size=size, weight="bold" if bold else "normal")


@lru_cache(maxsize=4096)
def _measured(text: str, size: float, bold: bool, mono: bool, dpi: int) -> float:
    width, _, _ = _renderer(dpi).get_text_width_height_descent(text, _font(size, bold, mono), ismath=False)
    return width / dpi * 100


@cache
def _renderer(dpi: int) -> Any:
    from matplotlib.backends.backend_agg import RendererAgg

    return RendererAgg(8, 8, dpi)


@cache
def signs() -> Any:
    """Colours for signed numbers: from vermillion over near-white to blue, darker with the distance from zero."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("signs", [*reversed(_NEGATIVE), WASH, *_POSITIVE])


def shade(share: float) -> tuple[Any, str]:
    """The colour of a share from −1 to 1, and a text colour that is readable on it."""
    if not math.isfinite(share):
        return LINE, INK
    red, green, blue, _ = signs()(0.5 + 0.5 * max(-1.0, min(share, 1.0)))
    bright = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.19
    return (red, green, blue), INK if bright else "#ffffff"
