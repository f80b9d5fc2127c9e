"""One head of a linear token mixer: any block of its signed weights, recomputed exactly by the walk back from each row."""

from functools import cached_property
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from overt.attention.summary import Summary, gathered_signed
from overt.errors import InputError
from overt.lens.head import Head, Index, Top
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.chunks import Chunks
from overt.lens.linear.decays import Decays
from overt.lens.linear.recurrence import Recurrence, step_back

_WALKED_ROWS = 16  # the most rows that walk back position by position; more rows are computed in chunks


class MixerSteps(NamedTuple):
    """How one row weighs the K positions: position j gets the weight k_j · r, where r begins as the row's query.

    key (B, K, D) and value (B, K, E), as written. decay (B, K, 1 or D): the product of the decays between position j and the row; 0 for
    later positions. asking (B, K, D): r when the walk back reaches position j, including decays and erasures of later positions; 0 for
    positions that the row does not read. weights (B, K). output (B, E): the weights times the values. from_start (B, E): the output's
    part from a state before position 0, whose tokens are unknown; else 0.
    """

    key: Tensor
    value: Tensor
    decay: Tensor
    asking: Tensor
    weights: Tensor
    output: Tensor
    from_start: Tensor


class MixerHead(Head):
    """One head of a linear token mixer. Its weights are signed and do not sum to one. B is the number of sequences.

    `weights`, `top` (the largest |W|, with their signs), `received` and `map` (means of W), `entropy` (of |W| / Σ |W|), `steps`, and
    the recurrence's own query, key and value, multiplied by scale and strength of writing.
    """

    captured: CapturedMixer

    @cached_property
    def recurrence(self) -> Recurrence:
        """The recurrence of only this head."""
        return self.captured.recurrence.of_heads([self.captured.copies.index(self.head)])

    def weights(self, rows: Index = None, keys: Index = None) -> Tensor:
        """Any block of the exact signed weights: (B, rows, keys). None means all rows or all keys."""
        chosen = self.rows_of(rows)
        if len(chosen) <= _WALKED_ROWS:
            weights = self.recurrence.weights(chosen)[:, 0]
        else:
            order = sorted(set(chosen))
            by_position = {row: index for index, row in enumerate(order)}
            weights = self._chunks.weights(order)[:, 0, [by_position[row] for row in chosen]]
        return weights if keys is None else weights[..., self.keys_of(keys)]

    def top(self, row: int | str, k: int = 8) -> Top:
        """The k weights of one query with the largest sizes, signed, largest first."""
        weights = self.weights(self.row_of(row))[:, 0]  # (B, K)
        keys = weights.abs().topk(min(k, self.keys), dim=-1).indices
        return Top(weights.gather(-1, keys), keys)

    def entropy(self) -> Tensor:
        """The entropy of the sizes of each query's weights, −Σ p log p of p = |W| / Σ |W| in nats: (B, Q)."""
        return self._summary().entropy[:, 0]

    def received(self, *, padding: bool = True) -> Tensor:
        """The mean signed weight of each key over the queries, (B, K), padding included: `padding=False` is refused."""
        if not padding:
            raise InputError("padding to be included in a linear mixer", got="padding=False", fix="record each text by itself")
        return self._summary().received[:, 0]

    def map(self, size: int | tuple[int, int]) -> Tensor:
        """The mean signed weight in size × size near-equal cells: (B, rows, columns)."""
        summary = self._summary(size).map_mean
        assert summary is not None
        return summary[:, 0]

    @torch.no_grad()
    def steps(self, row: int | str) -> MixerSteps:  # type: ignore[override]
        """The walk of one row back over all positions, step by step."""
        chosen = self.row_of(row)
        ready = self.recurrence.ready()
        last = chosen + self.keys - self.queries - int(ready.reads == "before")
        asking = torch.zeros_like(ready.key[:, 0])
        wanted = ready.query[:, :, chosen, None]  # r: (B, 1, 1, D)
        for key in range(last, -1, -1):
            asking[:, key] = wanted[:, 0, 0]
            _, wanted = step_back(ready, key, wanted)
        decay = torch.ones_like(ready.key[:, 0, :, :1])
        if ready.log_decay is not None:
            left = Decays(ready.log_decay, self.keys).to_position(last)
            decay = torch.zeros_like(ready.log_decay[:, 0])
            decay[:, : last + 1] = left[:, 0].to(decay) if isinstance(left, Tensor) else left
        else:
            decay[:, last + 1 :] = 0
        weights = self.weights(chosen)[:, 0]  # (B, K)
        value, start = ready.value[:, 0], torch.zeros_like(ready.value[:, 0, 0])
        if ready.start is not None:
            start = (wanted[:, 0] @ ready.start[:, 0])[:, 0]
            start = start if ready.normalizer is None else start / ready.normalizer[:, 0, chosen, None]
        return MixerSteps(ready.key[:, 0], value, decay, asking, weights, (weights[:, None] @ value)[:, 0], start)

    @property
    def query(self) -> Tensor:
        """The head's queries (B, Q, D), with their scale."""
        return self.part_of(self.captured.recurrence.query)

    @property
    def key(self) -> Tensor:
        """The head's keys (B, K, D), with the strength of writing."""
        return self.part_of(self.captured.recurrence.key)

    @property
    def value(self) -> Tensor:
        """The head's values (B, K, E)."""
        return self.part_of(self.captured.recurrence.value)

    @property
    def output(self) -> Tensor:
        """The model's own output of this head's mixing (B, Q, E), before gate and norm."""
        return self.part_of(self.captured.output)

    def mask(self) -> Tensor:
        """The keys that each query reads, (Q, K): all up to its own position."""
        itself = int(self.recurrence.reads == "after" or self.recurrence.diagonal is not None)
        every = torch.ones(self.queries, self.keys, dtype=torch.bool, device=self.captured.output.device)
        return every.tril(self.keys - self.queries + itself - 1)

    @property
    def captured_call(self) -> NoReturn:
        """Refuse: a mixer has no score, mask, bias or normalizer."""
        raise InputError(
            "a call of attention, for its score, mask, bias and normalizer",
            got=f"{self.layer}, which mixes tokens by a recurrence ({self.captured.recurrence.kind})",
            fix="use head.recurrence, head.steps(row) and head.weights(rows)",
        )

    def part_of(self, tensor: Tensor) -> Tensor:
        """This head's part (B, N, D) of an input or output of the call."""
        index = self.captured.copies.index(self.head)
        return tensor[:, index * tensor.shape[1] // len(self.captured.copies)]

    @cached_property
    def _chunks(self) -> Chunks:
        return Chunks(self.recurrence)

    def _summary(self, map_size: int | tuple[int, int] | None = None) -> Summary:
        return gathered_signed(self._chunks.blocks(), self.queries, self.keys, top=1, map_size=map_size)
