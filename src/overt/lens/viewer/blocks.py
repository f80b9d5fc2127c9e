"""The page's numbers as blocks of bytes; each array is stored once, addressed by block, offset, type and length."""

import gzip
import hashlib
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

_LARGEST = 32767


@dataclass
class ArrayBlocks:
    """Arrays by block. The page reads block 0 at once, and another block when one of its heads is first shown."""

    parts: list[list[bytes]] = field(default_factory=lambda: [[]])
    _entries: dict[tuple[int, bytes], list[Any]] = field(default_factory=dict)

    def begin(self) -> int:
        """The number of a new block."""
        self.parts.append([])
        return len(self.parts) - 1

    def put(self, array: Any, block: int = 0) -> list[Any]:
        """Store an array, unless an equal one is stored, and return its address: [block, offset in bytes, type, count]."""
        values = array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)
        values = np.ascontiguousarray(values)
        kind = {"f": "float32", "i": "int32", "u": "uint8"}[values.dtype.kind] if values.dtype != np.int16 else "int16"
        data = values.astype(f"<{np.dtype(kind).str[1:]}" if kind != "uint8" else np.uint8, copy=False).tobytes()
        key = block, hashlib.blake2b(data + kind.encode(), digest_size=16).digest()
        if key not in self._entries:
            offset = sum(map(len, self.parts[block]))
            self.parts[block].append(data + bytes(-len(data) % 8))
            self._entries[key] = [block, offset, kind, values.size]
        return self._entries[key]

    def vectors(self, vectors: Tensor, block: int, whole: bool) -> dict[str, Any]:
        """Store vectors (N, D): as float32 if `whole` or if any number is infinite, else as int16 with a scale for each vector.

        A vector with a NaN has the scale NaN, so it is NaN as a whole.
        """
        numbers = plain(vectors)
        sizes = {"width": numbers.shape[-1], "count": numbers.shape[0]}
        if whole or np.isinf(numbers).any():
            return sizes | {"data": self.put(numbers, block), "scale": None}
        integers, scale = rounded(numbers)
        return sizes | {"data": self.put(integers, block), "scale": self.put(scale, block)}

    def texts(self) -> list[tuple[str, str]]:
        """Each block as (encoding, base64): block 0 "gzip", the others uncompressed, because vectors hardly shrink."""
        whole = [b"".join(parts) for parts in self.parts]
        return [
            ("gzip", b64encode(gzip.compress(data, 6, mtime=0)).decode()) if not number else ("plain", b64encode(data).decode())
            for number, data in enumerate(whole)
        ]


def plain(tensor: Tensor) -> np.ndarray:
    """The tensor as a float32 NumPy array, whose small operations do not wait for torch's threads."""
    return tensor.detach().float().cpu().numpy()


def rounded(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integers (N, D) and scales (N,) whose product equals the vectors to 1/65,534 of each vector's largest entry.

    >>> integers, scale = rounded(np.array([[1.0, -0.5], [0.0, 0.0]], np.float32))
    >>> integers.tolist(), scale[1].item()
    ([[32767, -16384], [0, 0]], 0.0)
    """
    largest = np.abs(vectors).max(-1, initial=0.0)
    scale = (largest / np.float32(_LARGEST)).astype(np.float32)
    known = np.where(scale > 0, scale, 1)[:, None]
    integers = np.rint(np.where(scale[:, None] > 0, vectors, 0) / known)
    return integers.clip(-_LARGEST, _LARGEST).astype(np.int16), scale
