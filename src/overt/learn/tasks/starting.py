"""Fine-tuning: training that starts from a finished model's tokens and weights."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.learn.config.settings import Recipe
from overt.learn.data.corpora import CorpusSplits
from overt.learn.data.tokenizer import Tokenizer
from overt.learn.run.model_folder import load_model
from overt.learn.run.weights import get_weights, load_weights
from overt.learn.translator import bundled_folder, find_model_folder
from overt.models.transformer import Transformer

BUNDLED = "bundled"  # the name of the translator in the package


class StartingModel(NamedTuple):
    """A finished model, its tokenizer and their folder."""

    name: str  # from the recipe
    model: nn.Module
    tokenizer: Any
    folder: Path

    @property
    def note(self) -> str:
        """A sentence that names the model and the SHA-256 of its weights."""
        digest = hashlib.sha256((self.folder / "model.safetensors").read_bytes()).hexdigest()
        model = "the translator in the package" if self.name == BUNDLED else self.name
        return f"Training starts from the weights of {model}, SHA-256 {digest}."


def read_starting_model(name: str) -> StartingModel:
    """The finished model in a folder (a run's, or its `model`), or with "bundled" the translator in the package.

    Raises InputError for a folder without a finished model, and for a folder without a tokenizer.
    """
    folder = bundled_folder() if name == BUNDLED else find_model_folder(name)
    if folder is None:
        fix = f'let the run finish, check the name, write start = "{BUNDLED}" for the translator in the package, or leave start out'
        raise InputError("start to name the folder of a finished model", got=repr(name), fix=fix)
    model, tokenizer, _ = load_model(folder)
    if tokenizer is None:
        raise InputError(
            "a model with its tokenizer", got=f"no tokenizer.json in {folder}", fix="start from a run of overt train"
        )
    return StartingModel(name, model, tokenizer, folder)


def starting_tokenizer(start: StartingModel, recipe: Recipe, corpus: CorpusSplits) -> Any:
    """The starting model's tokenizer, with pieces for bytes if the recipe has byte fallback."""
    if not recipe.tokens.byte_fallback or not isinstance(start.tokenizer, Tokenizer):
        return start.tokenizer
    texts, targets = [example.source for example in corpus.train], [example.target for example in corpus.train]
    return start.tokenizer.with_byte_fallback(texts, targets)


def load_starting_weights(model: nn.Module, tokenizer: Any, start: StartingModel) -> None:
    """Copy the starting weights into a model; a new piece keeps the row that the model initialized for it.

    A Transformer may have more layers than the one it starts from: see `_added_layers`. Raises InputError for any other difference of
    architecture, that is for weights with other names or shapes.
    """
    source = f"{start.folder}/model.safetensors"
    if type(model) is not type(start.model):
        fix = f'write kind = "{type(start.model).__name__}" in [model], or start from another model'
        raise InputError(
            f"a {type(model).__name__} to start from", got=f"a {type(start.model).__name__} in {start.folder}", fix=fix
        )
    weights, initial = get_weights(start.model), get_weights(model)
    old, new = (either.pieces.get_vocab() if isinstance(either, Tokenizer) else {} for either in (start.tokenizer, tokenizer))
    if old != new:
        common = [piece for piece in new if piece in old]
        new_rows, old_rows = (torch.tensor([ids[piece] for piece in common]) for ids in (new, old))
        for name in _tables(model) & weights.keys() & initial.keys():
            weights[name] = initial[name].index_copy(0, new_rows, weights[name][old_rows])
    if isinstance(model, Transformer) and isinstance(start.model, Transformer) and model.config["norm"] == "pre":
        weights |= _added_layers(start.model, initial)
    load_weights(model, weights, source)


def _added_layers(start: Transformer, initial: dict[str, Tensor]) -> dict[str, Tensor]:
    """The initial weights of layers after those of `start`: random, but zero where a sublayer adds to the residual path.

    So the deeper model first computes the same as `start`, and learns from there (Chen, Goodfellow, Shlens 2016, "Net2Net", section 2.3).
    """
    added = {}
    for name, tensor in initial.items():
        side, _, tail = name.partition(".layers.")
        number, _, weight = tail.partition(".")
        if tail and int(number) >= len([*start.get_submodule(f"{side}.layers").children()]):
            adds = weight.startswith(
                ("attention.output.", "self_attention.output.", "cross_attention.output.", "feed_forward.narrow.")
            )
            added[name] = torch.zeros_like(tensor) if adds else tensor
    return added


def _tables(model: Any) -> set[str]:
    """The names of weights with a row for each piece: embeddings, and the output layer."""
    modules = [
        (name, module) for name, module in model.named_modules() if isinstance(module, nn.Embedding) or module is model.output
    ]
    return {f"{name}.{weight}" for name, module in modules for weight, _ in module.named_parameters()}
