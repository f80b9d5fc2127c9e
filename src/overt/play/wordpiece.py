"""Options of the page's WordPiece tokenizer, from a BERT model's tokenizer.json."""

import json
from pathlib import Path
from typing import Any

from overt.errors import InputError

_SERVE = "run the model in Python instead: overt play FOLDER --serve"


def wordpiece_options(folder: Path) -> dict[str, Any]:
    """The options of web/worker/wordpiece.js for a folder's tokenizer; raises InputError for an unsupported tokenizer."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError("a model's folder with its tokenizer.json", got=f"no {path}", fix=_SERVE)
    try:
        tokenizer = json.loads(path.read_text(encoding="utf-8"))
        return _options(tokenizer)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            "a tokenizer as BERT has it", got=f"{path}, in which {error!r} is missing or wrong", fix=_SERVE
        ) from error


def _options(tokenizer: dict[str, Any]) -> dict[str, Any]:
    model, normalizer, added = tokenizer["model"], tokenizer["normalizer"] or {}, tokenizer["added_tokens"]
    kinds = {
        "model": model["type"],
        "normalizer": normalizer.get("type"),
        "pre-tokenizer": (tokenizer["pre_tokenizer"] or {}).get("type"),
        "cleaning of the text": normalizer.get("clean_text"),
        "longest word": model["max_input_chars_per_word"],
        "prefix within words": model["continuing_subword_prefix"],
    }
    for name, value in _BERT.items():
        if kinds[name] != value:
            raise InputError(f"a tokenizer as BERT has it, {name}: {value}", got=f"{name}: {kinds[name]}", fix=_SERVE)
    if any(item["normalized"] or item["lstrip"] or item["rstrip"] or item["single_word"] for item in added):
        raise InputError("special tokens that stand in a text as they are", got="some with rules of their own", fix=_SERVE)
    lowercase = normalizer["lowercase"]
    accents = normalizer["strip_accents"]
    first, last = _ends(tokenizer["post_processor"])
    return {
        "pieces": _pieces(model["vocab"], added),
        "lowercase": lowercase,
        "accents": lowercase if accents is None else accents,
        "chinese": normalizer["handle_chinese_chars"],
        "special": [item["content"] for item in added],
        "unknown": model["unk_token"],
        "first": first,
        "last": last,
    }


_BERT = {
    "model": "WordPiece",
    "normalizer": "BertNormalizer",
    "pre-tokenizer": "BertPreTokenizer",
    "cleaning of the text": True,
    "longest word": 100,
    "prefix within words": "##",
}


def _pieces(vocabulary: dict[str, int], added: list[dict[str, Any]]) -> list[str]:
    numbers = {number: piece for piece, number in vocabulary.items()} | {item["id"]: item["content"] for item in added}
    return [numbers[number] for number in range(len(numbers))]


def _ends(processor: dict[str, Any]) -> tuple[str, str]:
    """The special tokens before and after a text."""
    if processor["type"] == "BertProcessing":
        return processor["cls"][0], processor["sep"][0]
    first, text, last = processor["single"]
    if "Sequence" not in text:
        raise InputError("a text between two special tokens", got=str(processor["single"]), fix=_SERVE)
    return first["SpecialToken"]["id"], last["SpecialToken"]["id"]
