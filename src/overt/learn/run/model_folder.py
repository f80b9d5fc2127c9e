"""A finished model as a folder: model.safetensors, config.json, and the tokenizer's own files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_in
from safetensors.torch import save as bytes_of
from torch import Tensor, nn

from overt.errors import InputError, KindError
from overt.files import make_folder, whole
from overt.learn.data.vocabulary import WordVocabulary, read_tokenizer
from overt.learn.run.int8_rows import from_int8_rows, int8_rows
from overt.learn.run.weights import check_weights, get_weights, load_weights
from overt.models import from_config
from overt.reading import read_json, reason

_FIX = "copy the folder again, or finish the run with overt train"


def save_model(
    model: nn.Module,
    folder: str | Path,
    tokenizer: Any = None,
    extra: dict[str, Any] | None = None,
    *,
    half: bool = False,
    small: bool = False,
) -> None:
    """Write a model to a folder that `load_model` reads.

    With `half`, weights are float16; with `small`, matrices are int8 with a scale for each row, a quarter of the bytes, and other
    tensors float32. config.json is {"kind": the model's class, "config": its arguments, **extra}. Raises InputError for a full disk and for
    `half` and `small` at once.

    >>> import tempfile
    >>> from overt.models import Tagger
    >>> folder = Path(tempfile.mkdtemp())
    >>> save_model(Tagger(words=20, tags=3, width=8), folder, half=True)
    >>> sorted(path.name for path in folder.iterdir()), type(load_model(folder)[0]).__name__
    (['config.json', 'model.safetensors'], 'Tagger')
    """
    if half and small:
        raise InputError("half or small", got="both", fix="pass half=True for float16, or small=True for int8")
    folder = make_folder(folder)
    weights = get_weights(model)
    if half:
        weights = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    if small:
        weights = int8_rows(weights)
    config = {"kind": type(model).__name__, "config": getattr(model, "config", None), **(extra or {})}
    with whole(folder / "model.safetensors") as temporary:
        temporary.write_bytes(bytes_of(weights))
    with whole(folder / "config.json") as temporary:
        temporary.write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n")
    if tokenizer is not None:
        tokenizer.save(folder / "tokenizer.json")


def load_model(folder: str | Path) -> tuple[nn.Module, Any, dict[str, Any]]:
    """The model in a folder from `save_model`, in float32 and in eval mode, its tokenizer or None, and its config.json.

    Raises InputError for a folder or file that is missing, damaged, or does not match the others.

    >>> import tempfile
    >>> sizes = {"words": 20, "width": 8, "heads": 2, "layers": 1, "feed_forward": 16}
    >>> save_model(from_config({"kind": "TransformerEncoder", **sizes}), folder := tempfile.mkdtemp())
    >>> model, tokenizer, config = load_model(folder)
    >>> type(model).__name__, config["config"]["words"]
    ('TransformerEncoder', 20)
    """
    folder = Path(folder)
    config = _config(folder / "config.json")
    if not isinstance(config["config"], dict):
        fix = "build it yourself, and pass it to overt.learn.run.weights.load_weights with the file's weights"
        raise InputError("a model of overt.models", got=f"a {config['kind']} in {folder}", fix=fix)
    path = folder / "model.safetensors"
    try:
        weights = from_int8_rows(tensors_in(path.read_bytes()))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{path} to be part of a finished model", got=reason(error), fix=_FIX) from error
    model = _build({"kind": config["kind"], **config["config"]}, weights, path)
    path = folder / "tokenizer.json"
    tokenizer = read_tokenizer(path) if path.exists() else None
    _check_sizes(config["config"], tokenizer, folder)
    return model.eval(), tokenizer, config


def _config(path: Path) -> dict[str, Any]:
    config = read_json(path, "part of a finished model", _FIX)
    if not {"kind", "config"} <= config.keys():
        got = f"only {', '.join(config)}" if config else "neither"
        raise InputError(f"a kind and a config in {path}", got=got, fix=_FIX)
    return config


def _build(config: dict[str, Any], weights: Mapping[str, Tensor], path: Path) -> nn.Module:
    """The model with its weights; shapes are compared before memory is allocated for the model."""
    try:
        with torch.device("meta"):
            check_weights(from_config(config), weights, str(path))
        model = from_config(config)
    except (InputError, KindError) as error:
        raise InputError(f"{error.expected} (in {path.parent})", got=error.got, fix=error.fix or _FIX) from error
    load_weights(model, weights, str(path))
    return model


def _check_sizes(config: dict[str, Any], tokenizer: Any, folder: Path) -> None:
    """Raise InputError if the tokenizer's size is not the model's vocabulary size: its ids would mean other words."""
    sizes = {name: config[name] for name in ("words", "source_words", "target_words") if name in config}
    named = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    labels = {name: config[name] for name in ("tags", "classes") if name in config}
    if isinstance(tokenizer, WordVocabulary) and any(size != len(tokenizer.labels) for size in labels.values()):
        got = f"{len(tokenizer.labels)} in tokenizer.json, {labels} in config.json"
        raise InputError(f"the same labels in the vocabulary and the model in {folder}", got=got, fix=_FIX)
    if tokenizer is not None and any(size != tokenizer.words for size in sizes.values()):
        raise InputError(
            f"a tokenizer and a model with the same vocabulary in {folder}",
            got=f"{tokenizer.words} tokens in tokenizer.json, {named} in config.json",
            fix="copy both from the same run",
        )
