"""Options of the page's byte-pair tokenizer, from a translator's tokenizer.json."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from overt.errors import InputError

_SERVE = "run the model in Python instead: overt play FOLDER --serve"
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def bpe_options(folder: Path) -> dict[str, Any]:
    """The options of web/translator/bpe.js for a folder's tokenizer; raises InputError for an unsupported tokenizer."""
    path = folder / "tokenizer.json"
    try:
        return _options(json.loads(path.read_text(encoding="utf-8")))
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            "a tokenizer of overt train", got=f"{path}, in which {error!r} is missing or wrong", fix=_SERVE
        ) from error


def _options(tokenizer: dict[str, Any]) -> dict[str, Any]:
    model = tokenizer["model"]
    if "moses" in tokenizer:
        raise InputError("a tokenizer of plain text", got="one that splits text into the words of Moses first", fix=_SERVE)
    if model["type"] != "BPE" or model.get("continuing_subword_prefix") or model.get("dropout"):
        raise InputError("byte-pair encoding without prefixes and dropout", got=f"{model['type']} with them", fix=_SERVE)
    pieces = {number: piece for piece, number in model["vocab"].items()}
    pieces |= {item["id"]: item["content"] for item in tokenizer["added_tokens"]}
    return {
        "pieces": [pieces[number] for number in range(len(pieces))],
        "merges": [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]],
        "unknown": model.get("unk_token"),
        "fused": bool(model.get("fuse_unk")),
        "bytes": bool(model.get("byte_fallback")),
        "whole": bool(model.get("ignore_merges")),
        "suffix": model.get("end_of_word_suffix") or "",
        "normal": [_normal(step) for step in _steps(tokenizer["normalizer"], "normalizers")],
        "cuts": [_cut(step) for step in _steps(tokenizer["pre_tokenizer"], "pretokenizers")],
        "joins": [_join(step) for step in _steps(tokenizer["decoder"], "decoders")],
    }


def _steps(part: dict[str, Any] | None, name: str) -> Iterator[dict[str, Any]]:
    """The steps of a part of the tokenizer, in order."""
    if part is not None:
        for item in part[name] if part["type"] == "Sequence" else [part]:
            yield from _steps(item, name) if item["type"] == "Sequence" else [item]


def _normal(step: dict[str, Any]) -> dict[str, Any]:
    match step:
        case {"type": "Lowercase"} | {"type": "Strip", "strip_left": True, "strip_right": True}:
            return {"kind": step["type"]}
        case {"type": str(form)} if form in _FORMS:
            return {"kind": "form", "form": form}
        case {"type": "Replace", "pattern": {"Regex": str(pattern)}, "content": str(content)}:
            return {"kind": "Replace", "pattern": _pattern(pattern), "content": content}
    raise _other(step)


def _cut(step: dict[str, Any]) -> dict[str, Any]:
    match step:
        case {"type": "WhitespaceSplit"}:
            return {"kind": "WhitespaceSplit"}
        case {"type": "Metaspace", "replacement": str(mark), "prepend_scheme": "always", "split": False}:
            return {"kind": "Metaspace", "mark": mark}
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False}:
            return {"kind": "Split", "pattern": _pattern(pattern)}
    raise _other(step)


def _join(step: dict[str, Any]) -> dict[str, Any]:
    match step:
        case {"type": "ByteFallback"} | {"type": "Fuse"}:
            return {"kind": step["type"]}
        case {"type": "BPEDecoder", "suffix": str(suffix)}:
            return {"kind": "BPEDecoder", "suffix": suffix}
        case {"type": "Metaspace", "replacement": str(mark), "prepend_scheme": str(scheme)}:
            return {"kind": "Metaspace", "mark": mark, "first": scheme != "never"}
        case {"type": "Replace", "pattern": {"String": str(text)}, "content": str(content)}:
            return {"kind": "Replace", "text": text, "content": content}
        case {"type": "Strip", "content": str(text), "start": int(start), "stop": int(stop)}:
            return {"kind": "Strip", "text": text, "start": start, "stop": stop}
    raise _other(step)


def _pattern(pattern: str) -> str:
    r"""A regular expression of the package `tokenizers` in JavaScript's syntax: \s is White_Space there, and nearly so in JavaScript."""
    return pattern.replace(r"\s", r"\p{White_Space}")


def _other(step: dict[str, Any]) -> InputError:
    return InputError("a tokenizer of overt train", got=f"the step {json.dumps(step, ensure_ascii=False)[:120]}", fix=_SERVE)
