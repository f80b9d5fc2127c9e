"""Several texts in one row of tokens, if that gives a model the same numbers as each text alone.

A row holds texts one after the other. Positions begin at 0 in each, and a mask lets tokens attend only to their own text. That is exact
for a model whose layers mix tokens only by attention, and which takes such positions and masks; `Passes.packing` tests it on the model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from overt.attention.biases import TensorBias
from overt.attention.masks import Dense
from overt.errors import InputError
from overt.lens.captured import CapturedCall
from overt.lens.linear.captured import CapturedMixer


class PackedRows(NamedTuple):
    """Rows of `width` tokens that a model reads together: the numbers of the texts, and the row and first token of each text."""

    width: int
    texts: list[int]
    rows: list[int]
    starts: list[int]


def packed(lengths: Sequence[int], tokens: int) -> Iterator[PackedRows]:
    """Pack texts of these lengths into rows, of at most `tokens` tokens together except for a longer text.

    The longest remaining text sets the width of rows, so that attention costs little more than for each text alone. Then each text, longest
    first, goes to the fullest row with room for it ("best fit decreasing").

    >>> [tuple(rows) for rows in packed([2, 3, 1], tokens=8)]
    [(3, [1, 0, 2], [0, 1, 1], [0, 0, 2])]
    """
    left = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while left:
        width = lengths[left[0]]
        used, result = list[int](), PackedRows(width, [], [], [])
        for index in left:
            wide_enough = [row for row, count in enumerate(used) if count + lengths[index] <= width]
            row = max(wide_enough, key=lambda row: used[row], default=len(used))
            if row == len(used) and row and (row + 1) * width > tokens:
                continue
            used += [0] * (row == len(used))
            for values, value in zip(result[1:], (index, row, used[row]), strict=True):
                values.append(value)
            used[row] += lengths[index]
        yield result
        taken = set(result.texts)
        left = [index for index in left if index not in taken]


def in_rows(texts: Sequence[tuple[Sequence[int], int, int]], width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Texts (ids, row, start) as ids, positions and numbers of texts, each (rows, width).

    Positions begin at 0 in each text. The unused end of a row is a text of its own, with ids −1.

    >>> ids, positions, documents = in_rows([([7, 8], 0, 0), ([9], 0, 2)], width=5)
    >>> ids.tolist(), positions.tolist(), documents.tolist()
    ([[7, 8, 9, -1, -1]], [[0, 1, 0, 0, 1]], [[0, 0, 1, 2, 2]])
    """
    count = 1 + max(row for _, row, _ in texts)
    ids, starts = torch.full((count, width), -1), torch.zeros(count, width, dtype=torch.long)
    documents = torch.full((count, width), len(texts))
    for number, (tokens, row, start) in enumerate(texts):
        part = slice(start, start + len(tokens))
        ids[row, part], documents[row, part] = torch.tensor(tokens), number
        starts[row, start] = start
        starts[row, start + len(tokens) : start + len(tokens) + 1] = start + len(tokens)
    return ids, torch.arange(width) - starts.cummax(-1).values, documents


def block_diagonal(documents: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask to add to the scores so that tokens attend only to their own text: (B, 1, N, N)."""
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return torch.zeros(same.shape, dtype=dtype, device=documents.device).masked_fill_(~same, torch.finfo(dtype).min)


def unpacked(captured: CapturedCall | CapturedMixer, rows: Tensor, starts: Tensor, lengths: Tensor) -> CapturedCall:
    """The call of texts that begin at `starts` in `rows` of a packed call, each (T,), as one batch with keys after a text's end masked.

    Raises InputError if the call does not have one sequence for each row.
    """
    if isinstance(captured, CapturedMixer) or captured.call.batch[:1] != (captured.batch,):
        raise InputError("attention with a batch, whose texts can be taken apart", got=captured.layer)
    call, size, length = captured.checked_call(), captured.keys, int(lengths.max())
    positions = torch.arange(length, device=lengths.device)
    at = (starts[:, None] + positions).clamp(max=size - 1)  # (T, length)

    def tokens(tensor: Tensor) -> Tensor:
        tensor = tensor.expand(captured.batch, *tensor.shape[1:]).movedim(-2, 1)  # (B, N, …, D)
        return tensor[rows[:, None], at].movedim(1, -2)  # (T, …, length, D)

    def pairs(block: Tensor) -> Tensor:
        block = block.reshape((1,) * (len(call.batch) + 2 - block.ndim) + tuple(block.shape))
        block = block.expand(captured.batch, *block.shape[1:-2], size, size).movedim((-2, -1), (1, 2))  # (B, N, N, …)
        return block[rows[:, None, None], at[:, :, None], at[:, None, :]].movedim((1, 2), (-2, -1))  # (T, …, length, length)

    every = torch.arange(size, device=lengths.device)
    allowed = (positions < lengths[:, None]).reshape(len(rows), *(1,) * len(call.batch), length)  # (T, …, 1, length)
    if call.mask is not None:
        allowed = allowed & pairs(call.mask.block(every, every))
    bias = None if call.bias is None else TensorBias(pairs(call.bias.block(every, every)))
    inputs = {name: tokens(getattr(call, name)) for name in ("query", "key", "value")}
    call = replace(call, **inputs, mask=Dense(allowed), bias=bias, batch=(len(rows), *call.batch[1:]))
    sizes = {"batch": len(rows), "queries": length, "keys": length}
    return replace(captured, call=call, output=tokens(captured.output), versions=(), **sizes)
