"""One side of a score: the parts that wrote the stream of its query, or of its keys."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from overt.lens.analysis.contributions.arguments import Recorded
from overt.lens.analysis.contributions.by_token import split
from overt.lens.analysis.contributions.parts import TokenMixers, part_of_writer
from overt.lens.analysis.contributions.result import Part
from overt.lens.analysis.contributions.traced import Traced
from overt.lens.head import head_name
from overt.lens.recorded_calls import RecordedCalls

PLAIN = ("bias", "constant")  # kinds of parts that are added up to one part over all modules


@dataclass(frozen=True, eq=False)
class Side:
    """The term of each part of the model in a score, by its output in the query's stream or the keys'.

    `parts` sum to the score's product of query and key, apart from rounding of at most `bound`. `by_token` has the term of each
    earlier head by source token, by the numbers of its call and of the head.
    """

    name: str
    parts: tuple[Part, ...]
    by_token: dict[tuple[int, int], Tensor]
    bound: float

    @property
    def sum(self) -> float:
        """The sum of all parts."""
        return math.fsum(part.value for part in self.parts)

    def strongest(self, count: int | None = None) -> list[Part]:
        """The parts with the largest absolute terms."""
        return sorted(self.parts, key=lambda part: -abs(part.value))[:count]


def name_of_part(part: Part) -> str:
    """A part of a stream in words, with its module's name from the number of the layer on.

    >>> name_of_part(Part("feed-forward", "encoder.layer.4.intermediate", 0.6)), name_of_part(Part("head", "layer.2", 0.1, 2, 7))
    ('feed-forward 4.intermediate', 'head L2H7')
    """
    if part.pair:
        return f"head {head_name(*part.pair)}"
    if part.kind in PLAIN:
        return "biases" if part.kind == "bias" else "constants"
    names = part.layer.split(".")
    first = next((index for index, name in enumerate(names) if name.isdigit()), len(names) - 1)
    return f"{part.kind} {'.'.join(names[first:])}"


@dataclass(eq=False)
class Followed:
    """A side, the vectors of its parts in the features of query or key, on request, and the other factor."""

    side: Side
    factor: Tensor
    terms: dict[Part, list[Callable[[], Tensor]]] = field(default_factory=dict)

    def vectors(self, part: Part) -> Tensor:
        """The vector of a part in the query (D,), or in each key (K, D): the gradient of its term with respect to the other factor."""
        with torch.enable_grad():
            total = torch.stack([term() for term in self.terms[part]]).sum()
        if not total.requires_grad:
            return torch.zeros_like(self.factor)
        [gradient] = torch.autograd.grad(total, [self.factor], retain_graph=True, allow_unused=True)
        return torch.zeros_like(self.factor) if gradient is None else gradient.detach()


def followed(
    name: str, run: Traced, before: int, calls: list[Recorded], recording: RecordedCalls, vectors: Tensor, factor: Tensor
) -> Followed:
    """Follow query or keys (N, D) back to the parts that wrote them; `factor` (N, D) is the other factor, in float64."""
    factor = factor.detach().requires_grad_()
    with torch.enable_grad():
        run.paths.rounding.expect(vectors, 1, None, ((), {}))
        number = (vectors.double() * factor).sum()
        run.follow(number, run.points[:before])
    pairs = [pair for pair in zip(calls, run.points, strict=True) if pair[1].gradient is not None]
    splits = [split(captured, point) for captured, point in pairs]
    mixing = TokenMixers(call.captured.layer for call in splits)
    terms: dict[tuple, list[tuple[float, Callable[[], Tensor]]]] = {}
    for call in splits:
        number_of_call = recording.number_of(call.captured)
        for index, (head, values) in enumerate(call.by_head.items()):
            key = ("head", call.captured.layer, number_of_call, head)
            terms.setdefault(key, []).append((float(values.sum()), _head_term(call.point.gradient, call.point.output, index)))
    for index, gradient in run.gradients.items():
        if bool(gradient.any()):
            writer = run.paths.writers[index]
            term = _writer_term(gradient, writer.leaf)
            with torch.no_grad():
                part = part_of_writer(writer, float(term()), mixing)
            layer = "" if part.kind in PLAIN else part.layer
            terms.setdefault((part.kind, layer, None, None), []).append((part.value, term))
    parts = {
        Part(kind, layer or "all", math.fsum(value for value, _ in those), call, head): [term for _, term in those]
        for (kind, layer, call, head), those in terms.items()
    }
    bound = math.hypot(run.paths.rounding.bound(), *(call.bound for call in splits))
    by_token = {(recording.number_of(call.captured), head): row for call in splits for head, row in call.by_head.items()}
    return Followed(Side(name, tuple(parts), by_token, bound), factor, parts)


def _head_term(gradient: Tensor | None, output: Tensor, index: int) -> Callable[[], Tensor]:
    assert gradient is not None
    outputs = output.reshape(gradient.shape)[0, index].double()
    return lambda: (gradient[0, index].double() * outputs).sum()


def _writer_term(gradient: Tensor, leaf: Tensor) -> Callable[[], Tensor]:
    def term() -> Tensor:
        products = gradient.double() * leaf.detach().double()
        total = products.sum()
        if not bool(total.isfinite()):  # outputs that a mask made −inf have no gradient
            total = torch.where(gradient == 0, 0, products).sum()
        return total

    return term
