"""Attention from the queries of one text to the keys and values of another, in the same head of a model."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from overt.attention.kernels.call import Call
from overt.attention.trace import Steps, steps
from overt.errors import InputError
from overt.lens.head import Head


@dataclass(frozen=True, eq=False)
class CrossHead:
    """One head with the queries of one text and the keys and values of the other.

    It has the interface of `Head`. The model's own masks and biases belong to one text and are ignored; a score or normaliser with
    its own parameters is refused.
    """

    query_head: Head
    key_head: Head

    def __post_init__(self) -> None:
        if self.call.bias is not None:
            raise InputError(
                "a head without a position bias, to attend from one text to another",
                got=f"{self.query_head.layer}, which adds one",
                fix="choose another model, or leave out --with",
            )

    @property
    def call(self) -> Call:
        """The call with the queries."""
        return self.query_head.call

    @property
    def query(self) -> Tensor:
        """Queries of the first text (1, Q, D)."""
        return self.query_head.query

    @property
    def key(self) -> Tensor:
        """Keys of the second text (1, K, D)."""
        return self.key_head.key

    @property
    def value(self) -> Tensor:
        """Values of the second text (1, K, E)."""
        return self.key_head.value

    def mask(self) -> Any:
        """None: every word of the second text is visible."""

    def weights(self, rows: int | None = None) -> Tensor:
        """The weights of one query, or of all: (1, rows, K)."""
        return self._steps(slice(None) if rows is None else slice(rows, rows + 1)).weights

    def steps(self, row: int) -> Steps:
        """The steps of one query."""
        return self._steps(slice(row, row + 1))

    @torch.no_grad()
    def _steps(self, rows: slice) -> Steps:
        call = self.call
        return steps(self.query[:, rows], self.key, self.value, score=call.score, normalizer=call.normalizer)
