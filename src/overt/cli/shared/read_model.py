"""Read the model for `overt atlas` and `overt replay`, with its tokenizer: overt's, a Hugging Face folder or name, or the packaged one."""

from pathlib import Path
from typing import Any, NamedTuple

from overt.errors import InputError, OvertError
from overt.reading import parse_json


class ReadModel(NamedTuple):
    """A model in evaluation mode, its tokenizer, and its name."""

    model: Any
    tokenizer: Any
    name: str


def read_model(name: str, *, predicts: bool = False) -> ReadModel:
    """The model of this folder or name; with `predicts`, one that predicts the next token.

    Raises InputError for a folder without a suitable model.
    """
    if _kind(name) is not None:
        return _overt_model(name, predicts)
    from overt.explain.hub_model import HubModel
    from overt.explain.text_model import NAMES, Packaged, find

    if predicts and name in NAMES:
        got, fix = (
            f"{Packaged.name}, an encoder, which predicts none",
            "pass the folder or the name of the model that the server ran",
        )
        raise InputError("a model that predicts the next token", got=got, fix=fix)
    loaded = find(name)
    network = loaded.causal_network if predicts and isinstance(loaded, HubModel) else loaded.network
    return ReadModel(network, loaded.tokenizer, loaded.name)


def _overt_model(name: str, predicts: bool) -> ReadModel:
    from overt.learn.run.model_folder import load_model
    from overt.learn.translator import find_model_folder

    folder = find_model_folder(Path(name)) or Path(name)
    model, tokenizer, config = load_model(folder)
    if predicts and config["kind"] != "LanguageModel":
        raise InputError(
            "a model that predicts the next token", got=f"a {config['kind']} in {name}", fix="pass a LanguageModel"
        )
    if tokenizer is None:
        raise InputError("a model's folder with its tokenizer", got=f"{name} without", fix="save it with the model")
    return ReadModel(model, tokenizer, Path(name).name)


def _kind(name: str) -> str | None:
    """The kind of model in an overt folder, from its config.json; None for other folders and names."""
    from overt.learn.translator import find_model_folder

    try:
        folder = find_model_folder(Path(name)) or Path(name)
        kind = parse_json((folder / "config.json").read_bytes(), strict=False).get("kind")
    except (OSError, ValueError, AttributeError, OvertError):
        return None
    return kind if isinstance(kind, str) else None
