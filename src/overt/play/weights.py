"""A model's weights in the page's format: 16-bit or 8-bit integers with a scale for each row, in blocks of bytes with checksums.

16 bits with a scale have the size of float16, and reproduce the attention weights of full precision three times as closely.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from overt.learn.run.int8_rows import rounded

PANEL = 8  # adjacent columns of a linear map, in the order of native/wasm/layers.cpp
_ALIGNED = 24  # bytes: a multiple of eight, for aligned 8-byte numbers, and of three, so that base64 needs no padding


@dataclass
class PackedWeights:
    """`tensors` are the positions of tensors, `blocks` the bytes; `small` is int8 instead of int16.

    A "table" is read by rows and stays rounded; a "linear" map becomes float32 when the page opens; a "vector" is float32.
    """

    small: bool
    tensors: list[dict[str, Any]] = field(default_factory=list)
    parts: list[list[bytes]] = field(default_factory=list)

    @property
    def blocks(self) -> list[bytes]:
        """The bytes of each block."""
        return [b"".join(parts) for parts in self.parts]

    def begin(self) -> None:
        """Begin a new block: the page reads and checks blocks one by one."""
        self.parts.append([])

    def table(self, name: str, rows: np.ndarray) -> None:
        """Store rows (N, D) that are looked up."""
        numbers, scales = rounded(rows, self.small)
        self._put(name, "table", numbers, scales)

    def linear(self, name: str, weight: np.ndarray, bias: np.ndarray | None) -> None:
        """Store a linear map in torch's layout, weight (out, in) and bias (out) or None."""
        numbers, scales = rounded(weight, self.small)
        panels = numbers.reshape(-1, PANEL, numbers.shape[1]).transpose(0, 2, 1)  # (out / 8, in, 8)
        self._put(f"{name}.weight", "linear", panels.reshape(numbers.shape[1], -1), scales)
        if bias is not None:
            self.vector(f"{name}.bias", bias)

    def vector(self, name: str, values: np.ndarray) -> None:
        """Store a vector without rounding."""
        self._put(name, "vector", values.astype("<f4")[None])

    def header(self) -> dict[str, Any]:
        """The page's description of the blocks."""
        return {"tensors": self.tensors, "blocks": [{"bytes": len(block), "sum": checksum(block)} for block in self.blocks]}

    def _put(self, name: str, kind: str, numbers: np.ndarray, scales: np.ndarray | None = None) -> None:
        rows, columns = numbers.shape
        entry = {"name": name, "block": len(self.parts) - 1, "kind": kind, "type": numbers.dtype.name}
        entry |= {"rows": rows, "columns": columns, "offset": self._append(numbers)}
        self.tensors.append(entry | ({} if scales is None else {"scales": self._append(scales)}))

    def _append(self, array: np.ndarray) -> int:
        offset = sum(map(len, self.parts[-1]))
        data = np.ascontiguousarray(array).tobytes()
        self.parts[-1].append(data + bytes(-len(data) % _ALIGNED))
        return offset


def restored(rows: np.ndarray, small: bool) -> np.ndarray:
    """The rows after rounding, as in the page."""
    numbers, scales = rounded(rows, small)
    return numbers.astype(np.float32) * scales[:, None]


def checksum(data: bytes) -> int:
    """The sum of all 32-bit words, each times a different odd number, as in native/wasm/weights.cpp.

    >>> checksum(bytes([1, 0, 0, 0, 2, 0, 0, 0]))
    7
    """
    words = np.frombuffer(data, dtype="<u4")
    return int((words * (2 * np.arange(len(words), dtype=np.uint32) + 1)).sum(dtype=np.uint32))


def bert_weights(state: Mapping[str, np.ndarray], layers: int, small: bool) -> PackedWeights:
    """A BERT encoder's parameters, under Hugging Face's names without their prefix, float32."""
    packed = PackedWeights(small)
    packed.begin()
    packed.table("words", state["embeddings.word_embeddings.weight"])
    packed.table("positions", position_vectors(state))
    _norm(packed, "embedding", state, "embeddings.LayerNorm")
    for layer in range(layers):
        packed.begin()
        prefix = f"encoder.layer.{layer}."
        parts = [f"{prefix}attention.self.{name}" for name in ("query", "key", "value")]
        weight, bias = (np.concatenate([state[f"{part}.{name}"] for part in parts]) for name in ("weight", "bias"))
        packed.linear(f"{layer}.vectors", weight, bias)
        for name, key in _LINEAR.items():
            packed.linear(f"{layer}.{name}", state[f"{prefix}{key}.weight"], state[f"{prefix}{key}.bias"])
        for name, key in _NORMS.items():
            _norm(packed, f"{layer}.{name}", state, prefix + key)
    return packed


def position_vectors(state: Mapping[str, np.ndarray]) -> np.ndarray:
    """The vector added to a word's vector at each position of a single text: the position's vector plus the first text's."""
    return state["embeddings.position_embeddings.weight"] + state["embeddings.token_type_embeddings.weight"][0]


_LINEAR = {"output": "attention.output.dense", "inner": "intermediate.dense", "outer": "output.dense"}
_NORMS = {"attention": "attention.output.LayerNorm", "layer": "output.LayerNorm"}


def _norm(packed: PackedWeights, name: str, state: Mapping[str, np.ndarray], key: str) -> None:
    packed.vector(f"{name}.gain", state[f"{key}.weight"])
    packed.vector(f"{name}.bias", state[f"{key}.bias"])
