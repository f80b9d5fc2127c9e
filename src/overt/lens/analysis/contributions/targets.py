"""The target of contributions: a logit, or a difference of two logits, at a position."""

import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.drawing.numbers import visible
from overt.errors import InputError, KindError
from overt.lens.captured import Captured, CapturedCall
from overt.lens.head import Head
from overt.lens.text.one_token import token_id
from overt.lens.text.vocabulary import Vocabulary


class Target(NamedTuple):
    """A token of the vocabulary, or the first of two rather than the second, at a position of the text."""

    tokens: tuple[int, ...]
    words: tuple[str, ...]
    position: int

    def logit(self, logits: Tensor) -> Tensor:
        """The logit, or the difference of two, in float64: logits (B, n, words) or (B, words)."""
        row = logits[0, self.position] if logits.ndim == 3 else logits[0]
        chosen = row[list(self.tokens)].double()
        return chosen[0] - chosen[1] if len(self.tokens) == 2 else chosen[0]

    def __str__(self) -> str:
        return " rather than ".join(f"“{visible(word)}”" for word in self.words)


def named_target(target: Any, logits: Tensor, position: int, vocabulary: Vocabulary | None) -> Target:
    """The named target, or the token of the largest logit for None. Raises InputError if it is not a token."""
    words = logits.shape[-1]
    if target is None:
        row = logits[0, position] if logits.ndim == 3 else logits[0]
        target = int(row.argmax())
    both = target if isinstance(target, tuple | list) else (target,)
    if len(both) not in (1, 2):
        raise InputError("a token, or a pair of two", got=f"{len(both)} of them", fix='write target=("tired", "wide")')
    tokens = tuple(_token(side, words, vocabulary) for side in both)
    if len(set(tokens)) < len(tokens):
        raise InputError("two different tokens", got=f"token {tokens[0]} twice", fix="compare it with another one")
    return Target(tokens, tuple(_word(token, vocabulary) for token in tokens), position)


def _token(target: Any, words: int, vocabulary: Vocabulary | None) -> int:
    if isinstance(target, str):
        number = token_id(target, vocabulary)
        if number < words:
            return number
        got, fix = f"{target!r}, token {number} of the tokenizer", "name a token of a smaller number"
        raise InputError(f"a token of the model's {words} words", got=got, fix=fix)
    target = _plain(target)
    if isinstance(target, bool) or not isinstance(target, int):
        raise KindError(
            "a target that is a token's text or number, or a pair of them",
            got=repr(target),
            fix='write target="tired" or target=5458',
        )
    if not 0 <= target < words:
        fix = "choose one of them, or read it from the model's tokenizer"
        raise InputError(f"a token of the vocabulary, 0 to {words - 1}", got=f"token {target}", fix=fix)
    return target


def _plain(number: Any) -> Any:
    """A number of NumPy or torch, as argmax returns it, as an int; other values unchanged."""
    with suppress(TypeError):
        return number if isinstance(number, bool) else operator.index(number)
    return number


def _word(token: int, vocabulary: Vocabulary | None) -> str:
    """The text of a token, or its number if no text is known."""
    with suppress(InputError):  # the model may have more words than its tokenizer
        return str(token) if vocabulary is None else vocabulary.text(token)
    return str(token)


def named_position(
    position: Any, calls: Sequence[Captured], ids: Tensor | None, model: nn.Module, vocabulary: Vocabulary | None, text: Tensor
) -> int:
    """The named position; by default the last one in `text`, or the mask token's if tokens attend to later ones."""
    length = len(text)
    if position is not None:
        position = _plain(position)
        if isinstance(position, bool) or not isinstance(position, int):
            raise KindError("a position as a whole number", got=repr(position), fix="write position=-1 for the last one")
        if not -length <= position < length:
            raise InputError(f"a position of the text, 0 to {length - 1}", got=f"position={position}", fix="choose one of them")
        return position % length
    if not any(_attends_to_later(captured) for captured in calls):
        return int(text.nonzero()[-1]) if bool(text.any()) else length - 1
    mask = None if vocabulary is None else vocabulary.mask
    mask = getattr(getattr(model, "config", None), "mask_token_id", None) if mask is None else mask
    positions = [] if ids is None or mask is None else (ids.flatten() == mask).nonzero().flatten().tolist()
    if len(positions) != 1:
        got = f"{len(positions)} of them" if mask is not None else "no tokenizer that says which it is"
        raise InputError(
            "one mask token, to know the position in a model whose tokens attend to later ones", got=got, fix="pass position="
        )
    return positions[0]


def _attends_to_later(captured: Captured) -> bool:
    if not isinstance(captured, CapturedCall) or captured.queries < 2 or captured.queries != captured.keys:
        return False
    return bool(Head(captured.opened(), captured.heads[0]).weights(0)[..., 1:].abs().max() > torch.finfo(torch.float32).eps)
