"""The token ids that a model read and a tokenizer's words as plain data of a file; files of older versions have neither."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from overt.lens.storage.declared_sizes import stored_whole
from overt.lens.text.positions import Cut, Cuts
from overt.lens.text.texts import Lookup, Texts
from overt.lens.text.vocabulary import Entry, Vocabulary

_MAX_ID = 2**31


def stored_texts(texts: Texts, put: Callable[[Any], Any]) -> dict[str, Any]:
    """The lookups, with their tensors stored by `put`, and the vocabulary entries of their ids."""
    lookups = [
        {"pass": lookup.pass_index, "owner": lookup.owner, "order": lookup.order, "rows": lookup.rows, "ids": put(lookup.ids)}
        for lookup in texts.lookups
    ]
    vocabulary = None if texts.vocabulary is None else _stored(texts.vocabulary)
    return {
        "lookups": lookups,
        "vocabulary": vocabulary,
        "reordered": [[*entry] for entry in texts.reordered.items()],
        "cuts": [{**item._asdict(), "grid": [*item.grid]} for item in texts.cuts.resolved()],
        "seconds": [texts.cuts.sample, texts.cuts.frame],
    }


def _stored(vocabulary: Vocabulary) -> dict[str, Any]:
    entries = [
        [number, entry.piece, entry.text.decode("latin-1"), entry.special] for number, entry in vocabulary.entries.items()
    ]
    numbers = {"size": vocabulary.size, "padding": vocabulary.padding, "alone": vocabulary.pad_alone, "mask": vocabulary.mask}
    return {**numbers, "entries": entries}


def restored_texts(saved: dict[str, Any] | None, get: Callable[[Any], Any]) -> Texts:
    """The texts that `stored_texts` wrote. Raises one of `_ERRORS_OF_BAD_DATA` for anything else."""
    if saved is None:
        return Texts()
    lookups = [_lookup(item, get(item["ids"])) for item in saved["lookups"]]
    vocabulary = None if saved["vocabulary"] is None else _vocabulary(saved["vocabulary"])
    texts = Texts(lookups, reordered={number: tuple(rows) for number, rows in saved.get("reordered", [])})
    texts.cuts = _cuts(saved.get("cuts", []), saved.get("seconds", [None, None]))
    if not all(type(row) is int and 0 <= row < _MAX_ID for rows in texts.reordered.values() for row in rows):
        raise TypeError("the sequences that a pass continues are of another type")
    if vocabulary is not None:
        texts.attach(vocabulary)
    return texts


def _lookup(saved: dict[str, Any], ids: Tensor) -> Lookup:
    numbers = [saved["pass"], saved["order"], saved["rows"]]
    if not all(type(number) is int and 0 <= number < _MAX_ID for number in numbers) or not isinstance(saved["owner"], str):
        raise TypeError("the numbers of a lookup are of another type")
    if ids.ndim != 2 or ids.dtype != torch.int64 or not ids.numel() or not stored_whole(ids):
        raise ValueError(f"token ids of shape {tuple(ids.shape)} and {ids.dtype}")
    return Lookup(saved["pass"], saved["owner"], saved["order"], saved["rows"], ids)


def _cuts(saved: list[dict[str, Any]], seconds: list[Any]) -> Cuts:
    """The saved cuts. Raises one of `_ERRORS_OF_BAD_DATA` for another type, or for more positions than a call can have."""
    cuts = []
    for item in saved:
        grid, numbers = item["grid"], [item["pass_index"], item["step"], *item["grid"]]
        owner, flags = item["owner"], [item["whole"], item["raw"]]
        if not all(type(number) is int and 0 <= number < _MAX_ID for number in numbers) or not 1 <= len(grid) <= 3:
            raise TypeError("the numbers of a cut are of another type")
        if (
            not isinstance(item["name"], str)
            or not isinstance(owner, str | None)
            or not all(type(flag) is bool for flag in flags)
        ):
            raise TypeError("the names of a cut are of another type")
        cuts.append(Cut(**{**item, "grid": tuple(grid)}))
    sample, frame = seconds
    if not all(part is None or (isinstance(part, float) and 0 < part < math.inf) for part in (sample, frame)):
        raise TypeError("the seconds of a sample are of another type")
    return Cuts(cuts, sample=sample, frame=frame)


def _vocabulary(saved: dict[str, Any]) -> Vocabulary:
    entries = {}
    for number, piece, text, special in saved["entries"]:
        if type(number) is not int or not isinstance(piece, str) or type(special) is not bool:
            raise TypeError("an entry of its vocabulary is of another type")
        entries[number] = Entry(piece, text.encode("latin-1"), special)
    padding, mask, alone, size = saved["padding"], saved.get("mask"), saved["alone"], saved["size"]
    if (
        not all(part is None or type(part) is int for part in (padding, mask))
        or type(alone) is not bool
        or type(size) is not int
    ):
        raise TypeError("its padding, its mask or its size is of another type")
    return Vocabulary(size, padding, alone, lambda _: None, entries=entries, mask=mask)
