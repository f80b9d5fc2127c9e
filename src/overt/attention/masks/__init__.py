"""Masks: which query may attend to which key. `True` means *may attend*, everywhere.

A mask is lazy: it is computed for one block of rows and keys at a time, so nothing of size Q × K is built. Masks
combine with & | ~. A mask of your own is a class with one method, `block(rows, keys)`, that takes two 1-D index tensors and
returns a bool tensor that broadcasts to (..., rows, keys); derive it from `Mask` to combine it with others.

Tensors with one entry a batch element (`Lengths`, `Documents`, `Keys`, an `offset`) are aligned left, with the first dimension; a
plain bool tensor (`Dense`) is aligned right, against (..., Q, K), as broadcasting has it.
"""

from overt.attention.masks.base import Both, Dense, Either, Mask, Not, as_mask
from overt.attention.masks.blocks import Blocks
from overt.attention.masks.convert import from_attention_mask, from_cu_seqlens, from_padding
from overt.attention.masks.kinds import Causal, Documents, Keys, Lengths, Window
from overt.attention.masks.ranges import Ranges

__all__ = [
    "Blocks",
    "Both",
    "Causal",
    "Dense",
    "Documents",
    "Either",
    "Keys",
    "Lengths",
    "Mask",
    "Not",
    "Ranges",
    "Window",
    "as_mask",
    "from_attention_mask",
    "from_cu_seqlens",
    "from_padding",
]


def __dir__() -> list[str]:
    return __all__
