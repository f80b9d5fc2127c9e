"""BERT encoders for the page: their weights, their numbers in the page, and the effect of rounding."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from overt.errors import InputError
from overt.explain import minilm
from overt.play.weights import PANEL, PackedWeights, bert_weights, restored
from overt.play.wordpiece import wordpiece_options

_SERVE = "run it in Python instead: overt play FOLDER --serve"
# _PLAIN: the configuration of plain BERT, which the page supports.
_PLAIN = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False}
_SENTENCES = (
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
    "She poured water from the bottle into the cup until it was full.",
    "The trophy doesn't fit in the suitcase because it is too small.",
    "In 1889, about 300 workers finished the tower that Gustave Eiffel's company had designed.",
    "When the bank raised its rates, people who lived by the river bank hardly noticed.",
    "Why did nobody tell the two brothers that their train left at 7:45?",
    "Sky is clear today",
    "A function that calls itself must stop somewhere, or the stack overflows.",
    "Er sagte: „Das glaube ich nicht“, und ging ins Café.",
)


@dataclass(frozen=True)
class WeightRounding:
    """The effect of rounding on attention weights over some sentences: the largest difference, and the number of heads that keep their
    strongest link in these sentences."""

    largest: float
    unchanged: int
    heads: int
    sentences: int

    def sentence(self, bits: int) -> str:
        """The effect in words, for the page."""
        return (
            f"The page's weights have {bits} bits. In {self.sentences} sentences they moved attention weights by at most "
            f"{self.largest:.1g} from full precision; {self.unchanged} of {self.heads} heads kept their strongest link."
        )


@dataclass(frozen=True)
class BertEncoder:
    """A BERT encoder in a folder, for the page."""

    folder: Path
    boot: str = "play/web/boot.js"
    worker: str = "play/web/worker/service.js"
    styles: tuple[str, ...] = ()
    label: str = "Change the sentence: the model reads it here, in your browser"
    in_int8: bool = False  # whether the file's weights have at most 8 bits

    @cached_property
    def config(self) -> dict[str, Any]:
        """The model's configuration, checked."""
        config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        for name, value in _PLAIN.items():
            if config.get(name, value) != value:
                raise InputError(f"a BERT encoder, {name}: {value}", got=f"{name}: {config[name]}", fix=_SERVE)
        for name in ("hidden_size", "intermediate_size"):
            if config[name] % PANEL:
                raise InputError(f"a {name} that is a multiple of {PANEL}", got=str(config[name]), fix=_SERVE)
        return config

    @cached_property
    def state(self) -> dict[str, np.ndarray]:
        """The model's parameters as float32, without the prefix of an enclosing model."""
        from safetensors.torch import load_file

        state = load_file(self.folder / "model.safetensors")
        return {name.removeprefix("bert."): tensor.float().numpy() for name, tensor in state.items()}

    def weights(self, small: bool) -> PackedWeights:
        """The weights in the page's format."""
        return bert_weights(self.state, self.config["num_hidden_layers"], small)

    def description(self) -> dict[str, Any]:
        """The tokenizer and the sizes for the page's worker."""
        config = self.config
        shape = {
            "layers": config["num_hidden_layers"],
            "heads": config["num_attention_heads"],
            "width": config["hidden_size"],
            "inner": config["intermediate_size"],
            "epsilon": config["layer_norm_eps"],
            "limit": config["max_position_embeddings"],
            "name": "encoder.layer.#.attention.self",
        }
        return {"tokenizer": wordpiece_options(self.folder), "shape": shape}

    def facts(self) -> dict[str, Any]:
        """Facts that the page shows in addition to recordings: none."""
        return {}

    def rounding(self, small: bool) -> WeightRounding:
        """Compare the attention of the rounded weights with the attention of the original weights."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        exact, page = self._network(self.state), self._network(_rounded(self.state, small))
        largest, unchanged, heads = 0.0, 0, 0
        for sentence in _SENTENCES:
            ids = torch.tensor([tokenizer.encode(sentence).ids])
            before, after = (_attention(network, ids) for network in (exact, page))
            largest = max(largest, float((after - before).abs().max()))
            same = before.flatten(1).argmax(-1) == after.flatten(1).argmax(-1)
            unchanged, heads = unchanged + int(same.sum()), heads + len(same)
        return WeightRounding(largest, unchanged, heads, len(_SENTENCES))

    def _network(self, state: Mapping[str, np.ndarray]) -> minilm.MiniLM:
        with torch.random.fork_rng(devices=[]):
            network = minilm.MiniLM(self.config)
        tensors = {name: torch.from_numpy(array) for name, array in state.items() if name in network.state_dict()}
        network.load_state_dict(tensors)
        return network.eval().requires_grad_(False)


def _rounded(state: Mapping[str, np.ndarray], small: bool) -> dict[str, np.ndarray]:
    """The parameters in the page's precision: tables and linear maps rounded."""
    return {
        name: restored(array, small) if name.endswith(".weight") and array.ndim == 2 else array for name, array in state.items()
    }


@torch.no_grad()
def _attention(network: minilm.MiniLM, ids: torch.Tensor) -> torch.Tensor:
    """The weights of all heads of all layers, (layers · H, N, N)."""
    attention = [module for module in network.modules() if isinstance(module, minilm.BertSelfAttention)]
    outputs: list[torch.Tensor] = []
    modules = [module for item in attention for module in (item.query, item.key)]
    hooks = [module.register_forward_hook(lambda *call: outputs.append(call[-1])) for module in modules]
    network(ids)
    for hook in hooks:
        hook.remove()
    heads = [output[0].unflatten(-1, (attention[0].heads, -1)).transpose(0, 1) for output in outputs]  # (H, N, D)
    scores = torch.cat(heads[::2]) @ torch.cat(heads[1::2]).mT / math.sqrt(heads[0].shape[-1])
    return scores.softmax(-1)
