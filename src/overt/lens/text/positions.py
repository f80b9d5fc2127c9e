"""Names of positions in pictures (row and column) and sound (seconds), read from the convolutions that cut the input."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from overt.errors import InputError
from overt.lens.text.tokens_of_text import Token

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_BESIDE = 5  # the most positions before the patches: a class token and four registers
_LETTERS = {1: "t", 2: "rc", 3: "trc"}
_NAMES = {"t": "time", "r": "row", "c": "column"}


class Cut(NamedTuple):
    """A convolution of the module `name` that cut an input into a `grid` of positions, in the pass `pass_index`.

    `whole` is true if its parts do not overlap, like patches. In sound, one position is `step` samples of the input, or `step` frames of
    a spectrogram if not `raw`. `owner` is the innermost module around the convolution that attends, once it is known.
    """

    pass_index: int
    name: str
    grid: tuple[int, ...]
    whole: bool
    step: int = 1
    raw: bool = False
    owner: str | None = None

    @property
    def positions(self) -> int:
        """The number of positions."""
        return math.prod(self.grid)


@dataclass(eq=False)
class Cuts:
    """All cuts of a recording, the layers that attended, and the seconds of a sample and of a frame if they are known."""

    cuts: list[Cut] = field(default_factory=list)
    layers: dict[str, None] = field(default_factory=dict)
    sample: float | None = None
    frame: float | None = None
    _steps: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict, repr=False)

    @property
    def known(self) -> bool:
        """Whether positions have names: patches, or sound of a known rate."""
        return any(len(cut.grid) > 1 or self._seconds(cut) is not None for cut in self.cuts)

    def add(
        self, name: str, pass_index: int, sizes: Sequence[int], grid: Sequence[int], kernel: Sequence[int], stride: Any
    ) -> None:
        """Add a convolution from an input (B, C, …) to a grid, with a weight (C, C, …), by their sizes."""
        strides = (stride,) * len(grid) if isinstance(stride, int) else tuple(stride) * (1 if len(stride) > 1 else len(grid))
        step, raw = 1, False
        if len(grid) == 1:
            step, raw = self._steps.get((pass_index, sizes[2]), (1, sizes[1] == 1))
            step *= strides[0]
            self._steps[pass_index, grid[0]] = step, raw
        if math.prod(grid) < 2 or (max(strides) == 1 and step == 1):
            return
        cut = Cut(pass_index, name, tuple(grid), tuple(kernel[2:]) == strides, step, raw)
        if cut not in self.cuts:
            self.cuts.append(cut)

    def resolved(self) -> list[Cut]:
        """The cuts with the innermost modules around them that attend."""
        return [cut if cut.owner is not None else cut._replace(owner=_around(cut.name, self.layers)) for cut in self.cuts]

    def names(self, layer: str, pass_index: int, length: int, other: bool) -> list[list[Token]] | None:
        """The names of a call's queries or keys, one list for all sequences of its batch; None if no cut fits.

        The keys of cross-attention (`other`) take the names of any cut with as many positions.
        """
        if not other and _is_decoder_layer(layer, self.layers):
            return None
        cuts = [cut for cut in self.resolved() if other or inside(layer, cut.owner)]
        fitting = [cut for cut in cuts if cut.pass_index <= pass_index and self._fits(cut, length)]
        if not fitting:
            return None
        nearest = max(fitting, key=lambda entry: (len(entry.owner or ""), entry.pass_index, entry.positions))
        return [self._words(nearest, length)]

    def _fits(self, cut: Cut, length: int) -> bool:
        if len(cut.grid) == 1:
            return cut.positions == length and self._seconds(cut) is not None
        return 0 <= length - cut.positions <= (_BESIDE if cut.whole else 0)

    def _seconds(self, cut: Cut) -> float | None:
        entry = self.sample if cut.raw else self.frame
        return None if entry is None else entry * cut.step

    def _words(self, cut: Cut, length: int) -> list[Token]:
        extra, seconds = length - cut.positions, self._seconds(cut) if len(cut.grid) == 1 else None
        words = [
            Token(f"[{number}]", piece="not a patch: it is before the patches", id=number, special=True, spaced=True)
            for number in range(extra)
        ]
        for number in range(cut.positions):
            if seconds is None:
                word, piece = _patch(number, cut.grid)
            else:
                digits = max(2, math.ceil(-math.log10(seconds)))
                word = f"{number * seconds:.{digits}f}s"
                piece = f"from {number * seconds:.{digits + 1}f} to {(number + 1) * seconds:.{digits + 1}f} seconds"
            words.append(Token(word, piece=piece, id=extra + number, spaced=True))
        return words


def read_rate(processor: Any) -> tuple[float, float | None] | None:
    """The seconds of a sample and of a spectrogram's frame, from a feature extractor or a processor that holds one; else None."""
    extractor = getattr(processor, "feature_extractor", processor)
    rate, hop = (getattr(extractor, name, None) for name in ("sampling_rate", "hop_length"))
    if not isinstance(rate, int | float) or rate <= 0:
        return None
    return 1 / rate, hop / rate if isinstance(hop, int) and hop > 0 else None


def check_sound(cuts: Cuts) -> None:
    """Raise InputError if no convolution cut sound of a known rate."""
    if not cuts.known:
        raise InputError(
            "a model that cuts sound by convolutions, for a feature extractor",
            got="one that ran none, or whose frames have no hop_length in the feature extractor",
            fix="leave it out, and name positions with key_tokens=[…]",
        )


def _patch(number: int, grid: tuple[int, ...]) -> tuple[str, str]:
    """A patch as "r3c7" and in words; a part of a film begins with its time.

    >>> _patch(10, (3, 4))
    ('r2c2', 'row 2, column 2')
    """
    indices = []
    for size in reversed(grid):
        number, index = divmod(number, size)
        indices.insert(0, index)
    letters = _LETTERS[len(grid)]
    named = [f"{_NAMES[letter]} {index}" for letter, index in zip(letters, indices, strict=True)]
    return "".join(f"{letter}{index}" for letter, index in zip(letters, indices, strict=True)), ", ".join(named)


def _around(name: str, layers: Iterable[str]) -> str | None:
    """The innermost attending module around a convolution; None if there is none."""
    parts = name.split(".")
    owners = [".".join(parts[:count]) for count in range(len(parts) - 1, -1, -1)]
    return next((owner for owner in owners if any(inside(layer, owner) for layer in layers)), None)


def inside(layer: str, owner: str | None) -> bool:
    """Whether a layer is inside the module of this name; "" is the model."""
    return owner is not None and (not owner or layer == owner or layer.startswith(f"{owner}."))


def _is_decoder_layer(layer: str, layers: Iterable[str]) -> bool:
    """Whether a layer belongs to a decoder next to an encoder, so its positions are not parts of the input."""
    return "decoder" in layer and any("encoder" in layer and "decoder" not in layer for layer in layers)
