"""Any other text model: a folder or a Hugging Face name, loaded by transformers, without remote code or pickles."""

import inspect
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from overt.errors import InputError, needed_by
from overt.explain.encoded import Encoded, fitting, require_words

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")


class HubModel:
    """An encoder or decoder that transformers can load; for an encoder–decoder, its encoder."""

    def __init__(self, name: str):
        self.source: str = _checked_folder(name)
        self.name: str = Path(name).name if self.source != name or Path(name).is_dir() else name
        self.notes: list[str] = []

    def encode(self, text: str, truncate: bool = False) -> Encoded:
        """Split a text into the model's tokens; refuse an empty text and one longer than the model's limit."""
        encoding = self.tokenizer(
            require_words(text),
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            truncation=truncate and self.limit is not None,
            max_length=self.limit if truncate else None,
            verbose=False,
        )
        ids, spans = list(encoding["input_ids"]), [(int(start), int(end)) for start, end in encoding["offset_mapping"]]
        special = [index for index, mark in enumerate(encoding["special_tokens_mask"]) if mark]
        pieces = self.tokenizer.convert_ids_to_tokens(ids)
        return fitting(Encoded.from_pieces(text, pieces, ids, spans, special), self.limit, self.name)

    @cached_property
    def limit(self) -> int | None:
        """The largest number of tokens, if the model declares one."""
        configured = [getattr(self._config, name, None) for name in ("max_position_embeddings", "n_positions")]
        limits = [*configured, self.tokenizer.model_max_length]
        return min((int(limit) for limit in limits if limit and 0 < limit < 10**9), default=None)

    @cached_property
    def network(self) -> Any:
        """The model, in evaluation mode, with its default attention."""
        from transformers import AutoModel

        model = self._loaded(AutoModel, config=self._config, use_safetensors=True).eval()
        if self._config.is_encoder_decoder:
            self.notes.append(f"{self.name} is an encoder–decoder; this is its encoder.")
            model = model.get_encoder()
        return model.requires_grad_(False)

    @cached_property
    def causal_network(self) -> Any:
        """The model with its next-token prediction, in evaluation mode."""
        from transformers import AutoModelForCausalLM

        model = self._loaded(AutoModelForCausalLM, config=self._config, use_safetensors=True)
        return model.eval().requires_grad_(False)

    def run(self, encoded: Encoded) -> None:
        """Let the model read the tokens."""
        import torch

        extra = {"use_cache": False} if "use_cache" in inspect.signature(self.network.forward).parameters else {}
        with torch.no_grad():
            self.network(input_ids=torch.tensor([encoded.ids]), **extra)

    def word_vectors(self, ids: Sequence[int]) -> np.ndarray:
        """The tokens' own vectors (N, width), before any layer."""
        import torch

        with torch.no_grad():
            return self.network.get_input_embeddings()(torch.tensor(ids)).double().numpy()

    @cached_property
    def _config(self) -> Any:
        with needed_by(f"the model {self.name}", "text"):
            from transformers import AutoConfig
            from transformers.utils import logging
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        return self._loaded(AutoConfig)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's fast tokenizer."""
        _ = self._config
        from transformers import AutoTokenizer

        tokenizer = self._loaded(AutoTokenizer)
        if not tokenizer.is_fast:
            raise InputError(
                "a tokenizer that gives the position of each token in the text",
                got=f"{type(tokenizer).__name__} of {self.name}",
                fix="choose a model with a tokenizer.json",
            )
        return tokenizer

    def _loaded(self, kind: Any, **options: Any) -> Any:
        try:
            return kind.from_pretrained(self.source, trust_remote_code=False, **options)
        except Exception as error:  # any error of another library for a damaged folder
            reason = " ".join(str(error).split("\n")[0].split()).rstrip(".")
            raise InputError(
                f"{self.name} to load as a text model",
                got=reason,
                fix="check its name and the network, or pass the folder of a transformers model with safetensors weights",
            ) from error


def _checked_folder(name: str) -> str:
    """The name for the hub, or the folder, if it has the files of a model."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        if name.startswith((".", "/", "~")) or name.count("/") > 1 or folder.exists():
            raise InputError("a folder or a Hugging Face name as --model", got=name, fix="check the path: no such folder")
        return name
    missing = [
        " or ".join(choices)
        for choices in (("config.json",), _WEIGHTS, _TOKENIZERS)
        if not any((folder / choice).is_file() for choice in choices)
    ]
    if missing:
        raise InputError(
            "a model's folder with its configuration, safetensors weights and a tokenizer",
            got=f"{name} without {'; without '.join(missing)}",
            fix="pass the folder that save_pretrained wrote, model and tokenizer both",
        )
    return str(folder)
