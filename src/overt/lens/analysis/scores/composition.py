"""The share of one head's output that another head can read, from the weights only."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.drawing.numbers import number
from overt.errors import InputError
from overt.lens.analysis.scores.matrices import KINDS, LayerMatrices, named_matrices
from overt.lens.analysis.scores.projections import matrices_in_pass
from overt.lens.capture.recordable import required_model
from overt.lens.head import head_name

_DRAWS = 200  # random rotations for the chance level


class Composed(NamedTuple):
    """A pair of heads: how much of the first head's output the second reads by its query, key or value.

    `score` is ‖A B‖ / (‖A‖ ‖B‖), `chance` its mean for random matrices of the same singular values, and `above` is score − chance in
    standard deviations.
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
    """The composition scores of all pairs of heads of different layers; see `overt.lens.composition`.

    `layers` has their matrices by the number of the layer, and `missing` the names of layers without readable matrices, with the reason.
    """

    layers: dict[int, LayerMatrices]
    pairs: tuple[Composed, ...]
    model: str
    missing: dict[str, str] = field(default_factory=dict)

    def strongest(self, count: int | None = None, kind: str | None = None) -> list[Composed]:
        """The pairs that are furthest above chance, of all kinds or of one: "query", "key" or "value"."""
        if kind is not None and kind not in KINDS:
            raise InputError('"query", "key" or "value" as kind', got=f"kind={kind!r}", fix="choose one of them")
        return sorted((pair for pair in self.pairs if kind in (None, pair.kind)), key=lambda pair: -pair.above)[:count]

    def eigenvalues(self, first: tuple[int, int], second: tuple[int, int] | None = None) -> Tensor:
        """The nonzero eigenvalues (D,), largest first: of a head's W_O W_V, or of the second head's after the first's.

        Positive eigenvalues copy the input. Elhage et al. 2021, "Summarizing OV/QK matrices".
        """
        (layer, head), (later, other) = self._checked(first), self._checked(first if second is None else second)
        inner, outer = self.layers[layer], self.layers[later]
        if second is None:
            small = inner.value[head] @ inner.output[head]
        else:
            # W_O² W_V² W_O¹ W_V¹, of the model's width, has the same nonzero eigenvalues as this product, of the heads' width.
            small = (outer.value[other] @ inner.output[head]) @ (inner.value[head] @ outer.output[other])
        values = torch.linalg.eigvals(small)
        return values[values.abs().argsort(descending=True)]

    def _checked(self, head: tuple[int, int]) -> tuple[int, int]:
        heads = {number: len(matrices.query) for number, matrices in self.layers.items()}
        if not isinstance(head, tuple) or len(head) != 2 or not 0 <= head[1] < heads.get(head[0], 0):
            known = ", ".join(f"{count} of layer {number}" for number, count in heads.items())
            raise InputError(f"a head as a pair (layer, head), of these heads: {known}", got=repr(head), fix="write (5, 11)")
        return head

    def copying(self, head: tuple[int, int]) -> float:
        """Σ λ / Σ |λ| of a head's W_O W_V: 1 if its output copies its input, −1 if it is the opposite."""
        values = self.eigenvalues(head)
        return float(values.real.sum() / values.abs().sum().clamp(min=torch.finfo(values.real.dtype).tiny))

    def __str__(self) -> str:
        lines = [f"{'pair':28}score  chance  standard deviations above it"]
        lines += [
            f"{pair.name:28}{number(pair.score, 3):>5}  {number(pair.chance, 3):>6}  {number(pair.above, 1)}"
            for pair in self.strongest(12)
        ]
        lines += [f"not read: {layer}, {reason}" for layer, reason in self.missing.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<composition of {len(self.pairs)} pairs of heads of {self.model}>"


def composition(model: nn.Module, inputs: Mapping[str, Any] | Tensor | None = None) -> Composition:
    """Measure how much of each earlier head's output each later head can read, from the weights only, against chance.

        score = ‖A W_O W_V‖ / (‖A‖ ‖W_O W_V‖)        A = W_Qᵀ W_K (key), its transpose (query), or W_O W_V of the later head (value)

    Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section on composition; norms are Frobenius norms. `chance` is
    the mean for random matrices of the same singular values, 1 / √width in the mean of squares: a pair of heads is above it only by its
    directions. Limits: rotations by position, gains and scales of norms, and biases do not count, nor whether the first head writes
    anything in a text.

    One pass over `inputs`, by default the model's own `dummy_inputs`, finds the rows of each head in each matrix, and which layers read
    each other. A model without these inputs is read by the names that libraries use if its layers are one stack with a matrix each for
    query, key and value. Raises InputError for other models, and if no layer's query, key and value are outputs of linear maps.

    >>> import torch, overt
    >>> _ = torch.manual_seed(0)
    >>> model = overt.models.LanguageModel(50, width=16, heads=2, layers=2, feed_forward=32)
    >>> composed = overt.lens.composition(model)
    >>> len(composed.pairs), composed.eigenvalues((0, 1), (1, 0)).shape
    (12, torch.Size([8]))
    """
    model = required_model(model)
    layers, missing = _read(model) if inputs is None else matrices_in_pass(model, inputs)
    if not layers:
        reasons = [f"a {type(model).__name__} with {layer}: {reason}" for layer, reason in missing.items()]
        raise InputError(
            "a model with a layer whose query, key and value are outputs of linear maps",
            got=reasons[0] if reasons else f"a {type(model).__name__} without attention",
            fix="overt.lens.score_contributions splits the scores of a text without reading matrices",
        )
    return Composition(layers, tuple(_pairs(layers)), type(model).__name__, missing)


def _read(model: nn.Module) -> tuple[dict[int, LayerMatrices], dict[str, str]]:
    """The matrices by a pass over the model's own example of inputs if it runs on them, otherwise by their names."""
    named = named_matrices(model)
    several = len({re.split(r"\.\d+", f".{layer.layer}", maxsplit=1)[0] for layer in named}) != 1  # stacks of layers, or none
    examples = getattr(model, "dummy_inputs", None)
    if isinstance(examples, Mapping):
        one_text = {
            name: value[:1] if isinstance(value, Tensor) and value.ndim > 1 else value for name, value in examples.items()
        }
        try:
            layers, missing = matrices_in_pass(model, one_text)
            if layers or several:
                return layers, missing
        except InputError:
            if several:
                raise
    if several:
        got = f"a {type(model).__name__} whose matrices have no names that libraries use, or are those of several stacks"
        raise InputError("inputs of one pass of the model", got=got, fix="pass inputs=, as the model gets them")
    return dict(enumerate(named)), {}


@torch.no_grad()
def _pairs(layers: dict[int, LayerMatrices]) -> Iterator[Composed]:
    draws: dict[tuple[int, int, int], Tensor] = {}
    for second, outer in layers.items():
        for kind, (left, right), reads in zip(KINDS, _readers(outer), outer.reads or (range(second),) * 3, strict=True):
            for first in sorted(layers.keys() & reads):
                inner = layers[first]
                width = inner.output.shape[1]
                if right.shape[2] != width:
                    continue  # a stream of another width, as in cross-attention
                written, read = _values(inner.output, inner.value), _values(left.mT, right)
                size = width, read.shape[-1], written.shape[-1]
                squares = draws[size] if size in draws else draws.setdefault(size, _random_blocks(*size))
                # ‖left right W_O W_V‖ by products of the heads' width only.
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
    """The reading matrix of each kind as a product of two (G, D, width): leftᵀ right, with `right` on the side of the stream."""
    return [(outer.key, outer.query), (outer.query, outer.key), (outer.output.mT, outer.value)]


def _values(left: Tensor, right: Tensor) -> Tensor:
    """The singular values (H, D) of left (H, width, D) times right (H, D, width)."""
    first, second = torch.linalg.qr(left).R, torch.linalg.qr(right.mT).R
    return torch.linalg.svdvals(first @ second.mT)


def _norms(left: Tensor, right: Tensor, inner: LayerMatrices) -> Tensor:
    """‖leftᵀ right W_O W_V‖ for each head of the inner layer and each head of the outer, (H, G)."""
    outside = torch.linalg.qr(left.mT).R  # (G, D, D): the triangle of leftᵀ, which has the same norms
    middle = torch.einsum("gdw,hwe->hgde", right, inner.output)
    inside = torch.linalg.qr(inner.value.mT).R  # (H, D, D)
    return torch.einsum("gcd,hgde,hfe->hgcf", outside, middle, inside).square().sum((-1, -2)).sqrt()


def _random_blocks(width: int, rows: int, columns: int) -> Tensor:
    """The squares of blocks (draws, rows, columns) of random rotations of this width."""
    generator = torch.Generator().manual_seed(0)
    frames = torch.linalg.qr(torch.randn(_DRAWS, width, columns, generator=generator, dtype=torch.float64)).Q
    return frames[:, :rows].square()
