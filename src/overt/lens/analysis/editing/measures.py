"""Measures of how much an output changes, for `effect` and `ablate`: functions of the outputs before and after."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from overt.errors import InputError

Measure = Callable[[Any, Any], Any]


def relative_change(before: Any, after: Any) -> float:
    """‖after − before‖ / ‖before‖ over all floating-point tensors of an output.

    >>> relative_change((torch.tensor([3.0, 4.0]), "name"), (torch.tensor([3.0, 3.0]), "name"))
    0.2
    """
    pairs = list(zip(_numbers(before), _numbers(after), strict=True))
    if not pairs:
        raise InputError(
            "a run that returns the model's output, to measure the effect", got="no tensor", fix="return the output"
        )
    far = math.sqrt(sum(float((second.double() - first.double()).square().sum()) for first, second in pairs))
    size = math.sqrt(sum(float(first.double().square().sum()) for first, _ in pairs))
    return far / size if size else (0.0 if far == 0 else math.inf)


def logit_difference(token: int, other: int, position: int = -1) -> Measure:
    """The change of logit[token] − logit[other] at a position, as a mean over the batch.

    >>> measure = logit_difference(0, 1)
    >>> measure(torch.tensor([[[2.0, 1.0]]]), torch.tensor([[[2.0, 4.0]]]))
    -3.0
    """

    def difference(output: Any) -> float:
        logits = logits_of(output)
        for number in (token, other):
            _check_index("a token of the vocabulary", number, logits.shape[-1])
        row = _at(logits, position).double()
        return float((row[..., token] - row[..., other]).mean())

    return lambda before, after: difference(after) - difference(before)


def divergence(position: int | None = -1) -> Measure:
    """The Kullback–Leibler divergence Σ p log(p / q), in nats: p are the words' probabilities before, q after.

    At a position, or as a mean over all positions for None; as a mean over the batch.

    >>> divergence()(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
    0.0
    """

    def measure(before: Any, after: Any) -> float:
        first, second = (logits_of(output).double().log_softmax(-1) for output in (before, after))
        first, second = (part if position is None else _at(part, position) for part in (first, second))
        return float((first.exp() * (first - second).nan_to_num(nan=0.0)).sum(-1).mean())

    return measure


def loss(labels: Tensor | Sequence[Sequence[int]], shift: bool = True) -> Measure:
    """The change of the mean cross-entropy, in nats, of labels (B, N); −100 marks positions without a label.

    With `shift`, the logits of a position predict the next label, as in causal models.

    >>> loss([[0, 0]])(torch.zeros(1, 2, 2), torch.tensor([[[20.0, -20.0]] * 2])) < -0.69
    True
    """
    wanted = torch.as_tensor(labels)

    def mean(output: Any) -> float:
        logits = logits_of(output).double()
        if wanted.shape != logits.shape[:2]:
            shapes = f"{tuple(wanted.shape)} for logits {tuple(logits.shape)}"
            raise InputError("labels (B, N), one for each logit", got=shapes, fix="pass a label for each token, −100 for none")
        logits, targets = (logits[:, :-1], wanted[:, 1:]) if shift else (logits, wanted)
        return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.to(logits.device).flatten()))

    return lambda before, after: mean(after) - mean(before)


def logits_of(output: Any) -> Tensor:
    """The logits (B, N, words) of a model's output."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if logits is None and isinstance(output, tuple) and output and isinstance(output[0], Tensor):
        logits = output[0]
    if not isinstance(logits, Tensor) or logits.ndim != 3:
        got = f"{tuple(logits.shape)}" if isinstance(logits, Tensor) else type(output).__name__
        raise InputError("a run that returns logits (B, N, words)", got=got, fix="return model(**inputs)")
    return logits


def _at(logits: Tensor, position: int) -> Tensor:
    """The logits (B, words) of a position."""
    _check_index("a position of the text", position, logits.shape[1])
    return logits[:, position]


def _check_index(what: str, index: Any, length: int) -> None:
    if not hasattr(index, "__index__") or not -length <= index < length:
        raise InputError(f"{what}, 0 to {length - 1}", got=repr(index), fix="pass one of these numbers")


def _numbers(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
