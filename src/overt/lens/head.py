"""One head of one recorded call: any block of its weights, recomputed exactly from query, key and value."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention.kernels.blocked import query_block, query_rows, widened
from overt.attention.kernels.call import Call, unrounded
from overt.attention.mechanism import formula
from overt.attention.summary import Summary, gathered
from overt.attention.trace import Steps
from overt.lens.capture.by_head import one_head, piece_for_heads
from overt.lens.captured import Captured, CapturedCall, fresh, parts_of_pieces, sliceable
from overt.lens.patches import patch_grid
from overt.lens.statistics.one_text import unpadded_text, unpadded_texts
from overt.lens.text.named import position_named
from overt.lens.tokens import Tokens, Words

Index = int | str | slice | Sequence[int | str] | None


class Top(NamedTuple):
    """The largest weights of one query and their keys, both (B, k), largest first."""

    weights: Tensor
    keys: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Head:
    """One head of one recorded call. Results have one entry per batch element: B is 1 if the model ran without a batch.

    >>> import torch, overt
    >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> head = recording[0, 1]
    >>> head.weights(rows=2, keys=slice(0, 4)).shape, head.entropy().shape
    (torch.Size([3, 1, 4]), torch.Size([3, 5]))
    """

    captured: Captured
    head: int
    tokens: Tokens = field(default_factory=Tokens)

    @property
    def name(self) -> str:
        """The head as figures and tables name it: "L5H11", by the number of its call in a pass."""
        return head_name(self.captured.call_index, self.head)

    @property
    def layer(self) -> str:
        """The name of the module that computed the attention."""
        return self.captured.layer

    @property
    def queries(self) -> int:
        """Q."""
        return self.captured.queries

    @property
    def keys(self) -> int:
        """K."""
        return self.captured.keys

    @property
    def query_tokens(self) -> Words | None:
        """The strings of the queries, if the recording has tokens: one list, or one for each batch element."""
        return self.tokens.query_words(self.captured)

    @property
    def key_tokens(self) -> Words | None:
        """The strings of the keys."""
        return self.tokens.key_words(self.captured)

    @property
    def query(self) -> Tensor:
        """The head's queries (B, Q, D), as the model made them."""
        return self.part_of(self.captured_call.call.query)

    @property
    def key(self) -> Tensor:
        """The head's keys (B, K, D)."""
        return self.part_of(self.captured_call.call.key)

    @property
    def value(self) -> Tensor:
        """The head's values (B, K, E)."""
        return self.part_of(self.captured_call.call.value)

    @property
    def output(self) -> Tensor:
        """The model's own output of the head (B, Q, E)."""
        return self.part_of(self.captured_call.output)

    @property
    def call(self) -> Call:
        """The call that the head is part of, with its score, mask, bias and normalizer."""
        return self.captured_call.call

    def mask(self) -> Any:
        """The keys that each query of the first sequence may attend to, (Q, K); None if it may attend to all."""
        mask = self._call.mask
        if mask is None:
            return None
        device = self.call.query.device
        block = mask.block(torch.arange(self.queries, device=device), torch.arange(self.keys, device=device))
        return block.reshape(-1, *block.shape[-2:])[0]

    @torch.no_grad()
    def weights(self, rows: Index = None, keys: Index = None) -> Tensor:
        """Any block of the exact weights before dropout: (B, rows, keys). None means all rows or all keys.

        If the recording has tokens, rows and keys may be words: `weights(rows="it", keys=["animal", "street"])`.
        """
        parts = [self.stages(first, stop).weights for first, stop in runs(self.rows_of(rows))]
        weights = torch.cat(parts, dim=-2) if parts else self.stages(0, 0).weights
        return weights if keys is None else weights[..., self.keys_of(keys)]

    def top(self, row: int | str, k: int = 8) -> Top:
        """The k largest weights of one query, named by its number or its word."""
        largest = self.weights(self.row_of(row))[:, 0].topk(min(k, self.keys), dim=-1)  # (B, k)
        return Top(largest.values, largest.indices)

    def entropy(self) -> Tensor:
        """The entropy of each query's weights, −Σ w log w in nats: (B, Q)."""
        return self._flat(self._summary().entropy, 1)

    def received(self, *, padding: bool = False) -> Tensor:
        """The mean weight of each key over the queries of its text, (B, K); `padding=True` also counts queries of padding."""
        texts = None if padding else unpadded_texts(self.captured, self.tokens)
        if texts is None:
            return self._flat(self._summary().received, 1)
        result = torch.zeros(len(texts), self.keys, dtype=self.call.dtype, device=self.call.query.device)
        for entry, text in enumerate(texts):
            means = replace(self, captured=text.captured, tokens=text.tokens).received(padding=True)[0]
            result[entry, text.keys.start : text.keys.stop] = means
        return result

    def of_text(self, sequence: int = 0) -> "Head":
        """The head in only one text of the batch: its rows and keys are the text's tokens, without padding.

        Padding to which a query attends stays. Raises InputError for a sequence that does not exist, for linear mixers, and for
        recordings of summaries.
        """
        text = unpadded_text(self.captured, self.tokens, sequence)
        return replace(self, captured=text.captured, tokens=text.tokens)

    def map(self, size: int | tuple[int, int]) -> Tensor:
        """The mean weight in size × size near-equal cells, (B, rows, columns), with padding; without it: `of_text(…).map(size)`."""
        summary = self._summary(size).map_mean
        assert summary is not None
        return self._flat(summary, 2)

    def patches(self, row: int | str, grid: tuple[int, int] | None = None, aside: int | None = None) -> Tensor:
        """The weights of one query on the patches of an image, (B, rows, columns), for `overt.lens.overlay_patches`.

        Patches are the last keys. A class token before them is removed if they form a square; otherwise pass the grid's
        (rows, columns), or `aside`, the number of tokens before the patches.
        """
        before, (rows, columns) = patch_grid(self.keys, grid, aside)
        return self.weights(self.row_of(row))[:, 0, before:].unflatten(-1, (rows, columns))

    @torch.no_grad()
    def steps(self, row: int | str) -> Steps:
        """The steps of one query: scores, masked scores and weights (B, 1, K), output (B, 1, E)."""
        first = self.row_of(row)
        return self.stages(first, first + 1)

    @torch.no_grad()
    def stages(self, first: int, stop: int) -> Steps:
        """The steps of queries `first` to `stop − 1`."""
        with unrounded(self.call.query):
            call = widened(self._call)
            careful = call.mask is not None and not call.finite
            steps = formula(query_block(call, query_rows(call, first, stop), every_key=True, careful=careful))
        return Steps(*(self._flat(tensor, 2) for tensor in steps))

    def rows_of(self, rows: Index) -> list[int]:
        """The positions of these queries, which may be words; None means all."""
        return positions("row", rows, self.queries, self.query_tokens if has_words(rows) else None)

    def row_of(self, row: Any) -> int:
        """The position of this one query."""
        return position_named("row", row, self.query_tokens if isinstance(row, str) else None, self.queries)

    def keys_of(self, keys: Index) -> list[int]:
        """The positions of these keys, which may be words; None means all."""
        return positions("key", keys, self.keys, self.key_tokens if has_words(keys) else None)

    def __repr__(self) -> str:
        return f"<head {self.head} of {self.layer}: {self.queries} queries, {self.keys} keys>"

    @property
    def captured_call(self) -> CapturedCall:
        """The call with its query, key and value. Raises InputError if only its summary was recorded."""
        assert isinstance(self.captured, CapturedCall)
        return self.captured

    @cached_property
    def _whole(self) -> bool:
        """Whether all heads must be computed together, because parameters of score or normalizer may differ by head."""
        return self.heads_in_call > 1 and not sliceable(self.call)

    @property
    def heads_in_call(self) -> int:
        """The number of heads in the recorded call."""
        return len(self.captured_call.copies) if self.call.query.ndim >= 4 else 1

    @property
    def index_in_call(self) -> int:
        """The index of this head among the heads in the recorded call."""
        return self.captured_call.copies.index(self.head)

    @cached_property
    def _call(self) -> Call:
        """The call of only this head if heads can be separated; without dropout, because weights are those before dropout."""
        call = replace(self.captured_call.checked_call(), dropout=0.0)
        if self._whole or call.query.ndim < 4:
            return fresh(call)
        index, total = self.index_in_call, self.heads_in_call
        pieces = parts_of_pieces(call, partial(_block_of_head, index, total))
        for name in pieces:
            selected = piece_for_heads(getattr(call, name), one_head(index, total))
            pieces[name] = pieces[name] if selected is None else selected
        query, key, value = (head_part(tensor, index, total) for tensor in (call.query, call.key, call.value))
        return fresh(replace(call, query=query, key=key, value=value, batch=call.batch[:-1], **pieces))

    def _summary(self, map_size: int | tuple[int, int] | None = None) -> Summary:
        return gathered(self._call, top=1, map_size=map_size)

    def _flat(self, tensor: Tensor, last: int) -> Tensor:
        """This head's part of a result, with all dimensions before the `last` ones joined into B."""
        tensor = tensor.select(-last - 1, self.index_in_call) if self._whole else tensor
        lead, ends = tensor.shape[: tensor.ndim - last], tensor.shape[tensor.ndim - last :]
        return tensor.reshape(math.prod(lead), *ends)

    def part_of(self, tensor: Tensor) -> Tensor:
        """This head's part (B, N, D) of an input or output of the call."""
        tensor = head_part(tensor, self.index_in_call, self.heads_in_call) if self.call.query.ndim >= 4 else tensor
        return tensor.reshape(math.prod(tensor.shape[:-2]), *tensor.shape[-2:])  # no −1: features may have size 0


def head_name(layer: int, head: int) -> str:
    """A head as figures, titles and tables name it.

    >>> head_name(5, 11)
    'L5H11'
    """
    return f"L{layer}H{head}"


def head_part(tensor: Tensor, head: int, total: int) -> Tensor:
    """The head that one query head reads, without dimension −3: its own, its group's shared one, or the only one."""
    return tensor if tensor.ndim < 3 else tensor.select(-3, head // (total // tensor.shape[-3]) if tensor.shape[-3] > 1 else 0)


def _block_of_head(head: int, total: int, piece: Any, rows: Tensor, keys: Tensor) -> Tensor:
    return head_part(piece.block(rows, keys), head, total)


def positions(what: str, index: Any, length: int, words: Words | None = None) -> list[int]:
    """The positions of these rows or keys, counted from 0; words are looked up in the tokens.

    Raises KindError for anything but a number or a word, InputError for a position or word that the head does not have.
    """
    if index is None:
        return list(range(length))
    if isinstance(index, slice):
        return list(range(length))[index]
    return [position_named(what, one, words, length) for one in _listed(index)]


def has_words(index: Any) -> bool:
    """Whether an index names a position by its word."""
    return any(isinstance(one, str) for one in _listed(index))


def _listed(index: Any) -> list[Any]:
    """The positions of an index as a list; a string is one position, not a list of letters."""
    single = isinstance(index, str) or not isinstance(index, Iterable) or (isinstance(index, Tensor) and not index.ndim)
    return [index] if single else [*index]


def runs(rows: Sequence[int], size: int | None = None) -> Iterator[tuple[int, int]]:
    """The runs of consecutive rows, at most `size` rows each, as (first row, last row + 1).

    >>> list(runs([0, 1, 2, 5], 2))
    [(0, 2), (2, 3), (5, 6)]
    """
    start = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or rows[index] != rows[index - 1] + 1 or index - start == size:
            yield rows[start], rows[index - 1] + 1
            start = index
