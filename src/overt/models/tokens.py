"""Checks of token ids and lengths for every model."""

import torch
from torch import Tensor

from overt.attention.typing import LengthsLike
from overt.errors import InputError, KindError
from overt.layers.parts.padding import checked_lengths


def checked_tokens(name: str, tokens: Tensor, words: int, shape: str = "(B, n)") -> Tensor:
    """Check that each token is an id below `words`; `shape` is "(B, n)", or "(R,)" for one token a row.

    >>> checked_tokens("source", torch.tensor([[1, 5, 2]]), words=6)
    tensor([[1, 5, 2]])
    """
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise KindError(
            f"{name} as token ids {shape}",
            got=f"a {tokens.dtype} tensor" if isinstance(tokens, Tensor) else type(tokens).__name__,
            fix="pass whole numbers: torch.tensor(ids), dtype torch.long",
        )
    if tokens.ndim != shape.count(",") + (shape != "(R,)"):
        raise InputError(
            f"{name} as token ids {shape}",
            got=f"{name} {tuple(tokens.shape)}",
            fix="add a batch dimension: unsqueeze(0)" if tokens.ndim < 2 else "pass one row of ids for each sequence",
        )
    # Reading the values of a GPU's tensor would wait for the GPU.
    if not torch.compiler.is_compiling() and tokens.device.type == "cpu" and tokens.numel():
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= words:
            raise InputError(
                f"token ids of {name} from 0 to {words - 1}, the words of the model",
                got=f"{low} to {high}",
                fix="encode the text with the model's own vocabulary",
            )
    return tokens


def needed_lengths(lengths: LengthsLike | None, tokens: Tensor) -> Tensor | None:
    """The lengths of tokens (B, n), or None if no row is known to be padded, so that no mask is needed.

    >>> needed_lengths([3, 3], torch.ones(2, 3)), needed_lengths([3, 2], torch.ones(2, 3))
    (None, tensor([3, 2]))
    """
    if lengths is None:
        return None
    lengths = checked_lengths(lengths, tokens[..., None])
    if torch.compiler.is_compiling() or lengths.device.type != "cpu" or bool((lengths < tokens.shape[1]).any()):
        return lengths
    return None


def checked_documents(documents: Tensor, tokens: Tensor, caches: object = None) -> Tensor:
    """The ids of the texts to which tokens (B, n) belong. Raises InputError for invalid ids, and with a cache.

    >>> checked_documents(torch.tensor([[0, 0, 1]]), torch.ones(1, 3, dtype=torch.long))
    tensor([[0, 0, 1]])
    """
    got = (
        "a list"
        if not isinstance(documents, Tensor)
        else f"documents {tuple(documents.shape)} for tokens {tuple(tokens.shape)}"
    )
    fix = "pass the number of its text for each token, as torch.tensor([[0, 0, 0, 1, 1]])"
    if caches is not None:
        raise InputError("documents or caches", got="both", fix="read packed texts in one pass, without a cache")
    if not isinstance(documents, Tensor) or documents.shape != tokens.shape or documents.is_floating_point():
        raise InputError("documents as whole numbers, one for each token", got=got, fix=fix)
    return documents


def positions_in(documents: Tensor) -> Tensor:
    """The position of each token in its text, for consecutive texts: (B, n).

    >>> positions_in(torch.tensor([[4, 4, 4, 9, 9, 2]]))
    tensor([[0, 1, 2, 0, 1, 0]])
    """
    index = torch.arange(documents.shape[-1], device=documents.device)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return index - torch.where(begins, index, 0).cummax(-1).values
