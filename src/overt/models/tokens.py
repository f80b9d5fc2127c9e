"""Guards of token ids, which every model reads: whole numbers, (rows, length), each the number of a word that is there."""

from typing import Any

import torch
from torch import Tensor

from overt.errors import InputError, KindError
from overt.layers.parts.padding import checked_lengths


def checked_tokens(name: str, given: Any, words: int, shape: str = "(B, n)") -> Tensor:
    """The tokens, if each is one of `words` ids; `shape` is "(B, n)", or "(R,)" for one token a row.

    >>> checked_tokens("source", torch.tensor([[1, 5, 2]]), words=6)
    tensor([[1, 5, 2]])
    """
    if not isinstance(given, Tensor) or given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        kind = f"a {given.dtype} tensor" if isinstance(given, Tensor) else type(given).__name__
        raise KindError(
            f"a model reads {name} as token ids {shape}",
            got=kind,
            fix="pass whole numbers: torch.tensor(ids), dtype torch.long",
        )
    if given.ndim != shape.count(",") + (shape != "(R,)"):
        raise InputError(
            f"a model reads {name} as token ids {shape}",
            got=f"{name} {tuple(given.shape)}",
            fix="give it a batch: unsqueeze(0)" if given.ndim < 2 else "pass one row of ids a sequence",
        )
    # Only where it costs nothing: a look at a GPU's tensor waits for the GPU.
    if not torch.compiler.is_compiling() and given.device.type == "cpu" and given.numel():
        low, high = int(given.min()), int(given.max())
        if low < 0 or high >= words:
            raise InputError(
                f"token ids of {name} are from 0 to {words - 1}, the words that the model knows",
                got=f"{low} to {high}",
                fix="encode the text with the model's own vocabulary",
            )
    return given


def needed_lengths(lengths: Any, tokens: Tensor) -> Tensor | None:
    """The lengths of tokens (B, n), or None where it is seen that no row is padded, so that nothing need be masked.

    >>> needed_lengths([3, 3], torch.ones(2, 3)), needed_lengths([3, 2], torch.ones(2, 3))
    (None, tensor([3, 2]))
    """
    if lengths is None:
        return None
    lengths = checked_lengths(lengths, tokens[..., None])
    if torch.compiler.is_compiling() or lengths.device.type != "cpu" or bool((lengths < tokens.shape[1]).any()):
        return lengths
    return None
