"""A finished model as a folder: model.safetensors, config.json, and the tokenizer's own files."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_in
from safetensors.torch import save as bytes_of
from torch import nn

from overt.errors import InputError
from overt.files import whole
from overt.learn.vocabulary import read_tokenizer
from overt.learn.weights import take_weights, weights_of
from overt.models import build


def save_model(
    model: nn.Module, folder: str | Path, tokenizer: Any = None, extra: dict[str, Any] | None = None, *, half: bool = False
) -> None:
    """Write a model so that `load_model` builds it again; with `half`, its weights in float16, in half the bytes.

    config.json is {"kind": the model's class, "config": its arguments, **extra}. Raises InputError for a disk that is full.

    >>> import tempfile
    >>> from overt.models import Tagger
    >>> folder = Path(tempfile.mkdtemp())
    >>> save_model(Tagger(words=20, tags=3, width=8), folder, half=True)
    >>> sorted(path.name for path in folder.iterdir()), type(load_model(folder)[0]).__name__
    (['config.json', 'model.safetensors'], 'Tagger')
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = weights_of(model)
    if half:
        weights = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    config = {"kind": type(model).__name__, "config": getattr(model, "config", None), **(extra or {})}
    with whole(folder / "model.safetensors") as temporary:
        temporary.write_bytes(bytes_of(weights))
    with whole(folder / "config.json") as temporary:
        temporary.write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n")
    if tokenizer is not None:
        tokenizer.save(folder / "tokenizer.json")


def load_model(folder: str | Path) -> tuple[nn.Module, Any, dict[str, Any]]:
    """The model of a folder that `save_model` wrote, in float32 and ready to use, its tokenizer (None without one), and config.json.

    Raises InputError for a folder or a file that is none, is damaged, or does not fit the others.

    >>> import tempfile
    >>> sizes = {"words": 20, "width": 8, "heads": 2, "layers": 1, "feed_forward": 16}
    >>> save_model(build({"kind": "TransformerEncoder", **sizes}), folder := tempfile.mkdtemp())
    >>> model, tokenizer, config = load_model(folder)
    >>> type(model).__name__, config["config"]["words"]
    ('TransformerEncoder', 20)
    """
    folder = Path(folder)
    config = _config(folder / "config.json")
    if not isinstance(config["config"], dict):
        cure = "build it yourself, and pass it to overt.learn.weights.take_weights with the file's weights"
        raise InputError("load_model builds overt's own models", got=f"a {config['kind']} in {folder}", cure=cure)
    model = build({"kind": config["kind"], **config["config"]})
    path = folder / "model.safetensors"
    try:
        weights = tensors_in(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise _unread(path, error) from error
    take_weights(model, weights, str(path))
    path = folder / "tokenizer.json"
    tokenizer = read_tokenizer(path) if path.exists() else None
    _fits(config["config"], tokenizer, folder)
    return model.eval(), tokenizer, config


def _config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return {"kind": config["kind"], "config": config["config"], **config}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unread(path, error) from error


def _fits(config: dict[str, Any], tokenizer: Any, folder: Path) -> None:
    """Refuse a tokenizer of another size than the model's vocabularies: its ids would mean other words."""
    sizes = {name: config[name] for name in ("words", "source_words", "target_words") if name in config}
    named = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    if tokenizer is not None and any(size != tokenizer.words for size in sizes.values()):
        raise InputError(
            f"the tokenizer and the model in {folder} have one vocabulary",
            got=f"{tokenizer.words} tokens in tokenizer.json, {named} in config.json",
            cure="copy both from the same run",
        )


def _unread(path: Path, error: Exception) -> InputError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    return InputError(
        f"{path} is part of a finished model", got=reason, cure="copy the folder again, or finish the run with overt train"
    )
