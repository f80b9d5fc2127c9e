"""How much of what one head writes another one can read, from the weights alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from overt.drawing.numbers import number
from overt.errors import InputError
from overt.lens.analysis.scores.matrices import LayerMatrices, matrices_of
from overt.lens.capture.recordable import required_model
from overt.lens.head import head_name

KINDS = ("query", "key", "value")
_DRAWS = 200  # random rotations that the chance level is drawn from


class Composed(NamedTuple):
    """A pair of heads: how much the second reads of what the first writes, by its query, key or value.

    `score` is ‖A B‖ / (‖A‖ ‖B‖), `chance` the mean of that for random matrices of the same singular values, `above` how many standard
    deviations the score is from it.
    """

    first: tuple[int, int]
    second: tuple[int, int]
    kind: str
    score: float
    chance: float
    above: float

    @property
    def name(self) -> str:
        """The pair as figures and tables name it."""
        return f"{head_name(*self.first)} → {head_name(*self.second)} {self.kind}"


@dataclass(frozen=True, eq=False, repr=False)
class Composition:
    """The composition scores of all pairs of heads of different layers; see `overt.lens.composition`."""

    layers: list[LayerMatrices]
    pairs: tuple[Composed, ...]
    model: str

    def strongest(self, count: int | None = None, kind: str | None = None) -> list[Composed]:
        """The pairs that are furthest above chance, all or those of one kind: "query", "key" or "value"."""
        if kind is not None and kind not in KINDS:
            raise InputError('"query", "key" or "value" as kind', got=f"kind={kind!r}", fix="choose one of them")
        return sorted((pair for pair in self.pairs if kind in (None, pair.kind)), key=lambda pair: -pair.above)[:count]

    def eigenvalues(self, first: tuple[int, int], second: tuple[int, int] | None = None) -> Tensor:
        """The eigenvalues (D,) that are not 0, largest first: of a head's W_O W_V, or of the second's behind the first's.

        Positive ones copy what is read. Elhage et al. 2021, "Summarizing OV/QK matrices".
        """
        (layer, head), (later, other) = first, first if second is None else second
        inner, outer = self.layers[layer], self.layers[later]
        if second is None:
            small = inner.value[head] @ inner.output[head]
        else:
            # Those of W_O² W_V² W_O¹ W_V¹, a product of the model's width, are those of this one, of the heads' width.
            small = (outer.value[other] @ inner.output[head]) @ (inner.value[head] @ outer.output[other])
        values = torch.linalg.eigvals(small)
        return values[values.abs().argsort(descending=True)]

    def copying(self, head: tuple[int, int]) -> float:
        """Σ λ / Σ |λ| of a head's W_O W_V: 1 if it writes what it reads, −1 if its opposite."""
        values = self.eigenvalues(head)
        return float(values.real.sum() / values.abs().sum().clamp(min=torch.finfo(values.real.dtype).tiny))

    def __str__(self) -> str:
        lines = [f"{'pair':28}score  chance  standard deviations above it"]
        lines += [
            f"{pair.name:28}{number(pair.score, 3):>5}  {number(pair.chance, 3):>6}  {number(pair.above, 1)}"
            for pair in self.strongest(12)
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<composition of {len(self.pairs)} pairs of heads of {self.model}>"


def composition(model: nn.Module) -> Composition:
    """How much each later head can read of what each earlier one writes, from the weights alone, against chance.

        score = ‖A W_O W_V‖ / (‖A‖ ‖W_O W_V‖)        A = W_Qᵀ W_K (key), its transpose (query), or W_O W_V of the later head (value)

    Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section on composition; norms are Frobenius norms. `chance` is
    the mean for random matrices of the same singular values, 1 / √width in the mean of squares: a head pair is above it only by its
    directions. What it leaves out: rotations by position, the gains and scales of norms, biases, and whether the first head writes anything
    in a text. Raises InputError for models whose matrices have no names that libraries use.

    >>> import torch, overt
    >>> _ = torch.manual_seed(0)
    >>> model = overt.models.LanguageModel(50, width=16, heads=2, layers=2, feed_forward=32)
    >>> composed = overt.lens.composition(model)
    >>> len(composed.pairs), composed.eigenvalues((0, 1), (1, 0)).shape
    (12, torch.Size([8]))
    """
    model = required_model(model)
    layers = matrices_of(model)
    return Composition(layers, tuple(_pairs(layers)), type(model).__name__)


@torch.no_grad()
def _pairs(layers: list[LayerMatrices]) -> Iterator[Composed]:
    draws: dict[tuple[int, int], Tensor] = {}
    for second, outer in enumerate(layers):
        for first, inner in enumerate(layers[:second]):
            width, rank = inner.output.shape[1], inner.output.shape[2]
            if outer.query.shape[2] != width:
                continue  # another stream, as in cross-attention
            squares = draws.setdefault((width, rank), _random_blocks(width, rank))
            written = _values(inner.output, inner.value)
            for kind, (left, right) in zip(KINDS, _readers(outer), strict=True):
                read = _values(left.mT, right)
                # ‖left right W_O W_V‖ by products of the heads' width alone.
                scores = _norms(left, right, inner)
                chances = torch.einsum("gi,nij,hj->nhg", read.square(), squares, written.square()).sqrt()
                sizes = written.norm(dim=-1)[:, None] * read.norm(dim=-1)[None]
                mean, spread = (chances / sizes).mean(0), (chances / sizes).std(0)
                above = (scores / sizes - mean) / spread.clamp(min=1e-12)
                for head in range(scores.shape[0]):
                    for other in range(scores.shape[1]):
                        numbers = (float(part[head, other]) for part in (scores / sizes, mean, above))
                        yield Composed((first, head), (second, other), kind, *numbers)


def _readers(outer: LayerMatrices) -> list[tuple[Tensor, Tensor]]:
    """For each kind the matrix that reads as a product of two (G, D, width): leftᵀ right, of which `right` reads."""
    return [(outer.key, outer.query), (outer.query, outer.key), (outer.output.mT, outer.value)]


def _values(left: Tensor, right: Tensor) -> Tensor:
    """The singular values (H, D) of left (H, width, D) times right (H, D, width)."""
    first, second = torch.linalg.qr(left).R, torch.linalg.qr(right.mT).R
    return torch.linalg.svdvals(first @ second.mT)


def _norms(left: Tensor, right: Tensor, inner: LayerMatrices) -> Tensor:
    """‖leftᵀ right W_O W_V‖ for each head of the inner layer and each of the outer, (H, G)."""
    outside = torch.linalg.qr(left.mT).R  # (G, D, D): leftᵀ by its triangle, an isometry apart
    middle = torch.einsum("gdw,hwe->hgde", right, inner.output)
    inside = torch.linalg.qr(inner.value.mT).R  # (H, D, D)
    return torch.einsum("gcd,hgde,hfe->hgcf", outside, middle, inside).square().sum((-1, -2)).sqrt()


def _random_blocks(width: int, rank: int) -> Tensor:
    """The squares of blocks (draws, rank, rank) of random rotations of this width."""
    generator = torch.Generator().manual_seed(0)
    frames = torch.linalg.qr(torch.randn(_DRAWS, width, rank, generator=generator, dtype=torch.float64)).Q
    return frames[:, :rank].square()
