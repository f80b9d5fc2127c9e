"""Translators for the page: their weights, their numbers in the page, and the effect of rounding."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn

from overt.errors import InputError
from overt.learn.data.tokenizer import END, START
from overt.learn.run.int8_rows import SCALE
from overt.learn.run.model_folder import load_model
from overt.models import Seq2Seq, Transformer, from_config
from overt.models.decoding import greedy_search
from overt.play.bpe import bpe_options
from overt.play.encoders import WeightRounding
from overt.play.weights import PANEL, PackedWeights, restored
from overt.reading import read_json

_SERVE = "run it in Python instead: overt play FOLDER --serve"
_MAP = "see in the terminal what each word attended to: overt translate TEXT --model FOLDER --map"  # recurrent models
_SENTENCES = (
    "I think that the black cat is sleeping on my bed.",
    "She knows that the old man is waiting for his son.",
    "Where did you buy these shoes?",
    "We went to the cinema yesterday, but the film was too long.",
    "Nobody wants to work on Sunday.",
    "If it rains tomorrow, we will stay at home.",
    "The animal didn't cross the street because it was too tired.",
    "My brother has three dogs, and he loves them all.",
)
_LONGEST = 512  # tokens, if the model has no limit of its own
_POSITIONS = ("sinusoidal", "learned", None)


@dataclass(frozen=True)
class PageTranslator:
    """A translator in a folder of overt train, for the page, with the models of the bottleneck lesson."""

    folder: Path
    lesson: Mapping[str, Path] = field(default_factory=dict)
    curves: Mapping[str, Any] = field(default_factory=dict)
    boot: str = "play/web/translation/boot.js"
    worker: str = "play/web/translator/service.js"
    styles: tuple[str, ...] = ("play/web/translation/translation.css",)
    label: str = "Change the sentence: it is translated here, in your browser"

    @classmethod
    def with_lesson(cls, folder: Path) -> "PageTranslator":
        """The translator in a folder, with the bundled models of the lesson if they are installed."""
        bundled = Path(str(files("overt").joinpath("learn/bundled/bottleneck")))
        curves = bundled / "curves.json"
        if not curves.is_file():
            return cls(folder)
        measured = json.loads(curves.read_text(encoding="utf-8"))
        return cls(folder, {name: bundled / name for name in measured}, measured)

    @cached_property
    def in_int8(self) -> bool:
        """Whether the translator's file has int8 weights, which more bits would not make more precise."""
        with safe_open(self.folder / "model.safetensors", framework="pt") as file:
            return any(name.endswith(SCALE) for name in file.keys())  # noqa: SIM118

    def weights(self, small: bool) -> PackedWeights:
        """The weights of all models in the page's format; the lesson's always have 8 bits."""
        packed = PackedWeights(small)
        for name, model in self._models.items():
            packed.small = small or name != "translator"
            _pack(packed, f"{name}.", model)
        return packed

    def description(self) -> dict[str, Any]:
        """The tokenizers and the sizes for the page's worker."""
        folders = {"translator": self.folder, **self.lesson}
        models = self._models.items()
        return {"models": {name: {"tokenizer": bpe_options(folders[name]), "shape": _shape(model)} for name, model in models}}

    def facts(self) -> dict[str, Any]:
        """Facts that the page shows about the model: its heads, and the lesson's curves."""
        return {"shape": _shape(self._models["translator"]), "curves": dict(self.curves)}

    def rounding(self, small: bool) -> WeightRounding:
        """Compare all attention weights of the rounded and the original model, while they score the model's own translations."""
        model, tokenizer, _ = load_model(self.folder)
        config: Any = model.config
        page = from_config({"kind": type(model).__name__, **config}).eval()
        page.load_state_dict({name: _rounded(name, tensor, small) for name, tensor in model.state_dict().items()})
        limit = _shape(model)["limit"] or _LONGEST
        largest, unchanged, heads = 0.0, 0, 0
        for sentence in _SENTENCES:
            source = torch.tensor([[*tokenizer.encode(sentence)[: limit - 1], END]])
            [written] = greedy_search(model, source, start=START, end=END, longest=min(2 * source.shape[1] + 10, limit - 1))
            target = torch.tensor([[START, *written.tokens]])
            for before, after in zip(_attention(model, source, target), _attention(page, source, target), strict=True):
                largest = max(largest, float((after - before).abs().max()))
                same = before.flatten(1).argmax(-1) == after.flatten(1).argmax(-1)
                unchanged, heads = unchanged + int(same.sum()), heads + len(same)
        return WeightRounding(largest, unchanged, heads, len(_SENTENCES))

    @cached_property
    def _models(self) -> dict[str, Any]:
        return {name: _loaded(folder) for name, folder in {"translator": self.folder, **self.lesson}.items()}


def require_transformer(folder: Path, name: str) -> None:
    """Raise InputError for an overt folder whose model is no Transformer translator."""
    kind = read_json(folder / "config.json", "a model of overt", _SERVE).get("kind")
    if kind != Transformer.__name__:
        raise InputError(
            "a Transformer, which translates in the page",
            got=f"a {kind} in {name}",
            fix=_MAP.replace("FOLDER", name) if kind == Seq2Seq.__name__ else f"run it in Python: overt play {name} --serve",
        )


def _loaded(folder: Path) -> Any:
    """The model in a folder, if the page supports it."""
    model = load_model(folder)[0]
    if isinstance(model, Transformer):
        _require("positions", model.config["positions"], _POSITIONS)
    elif isinstance(model, Seq2Seq):
        _require("layer", model.config["layer"], ("gru",), _MAP)
        _require("layers", model.config["layers"], (1,), _MAP)
        _require("attention", model.config["attention"], (None, "additive", "concat", "general", "dot"), _MAP)
        _require("self_attention", model.config["self_attention"], (None,), _MAP)
    else:
        raise InputError("a Transformer or a Seq2Seq, which translate", got=f"a {type(model).__name__} in {folder}", fix=_SERVE)
    for name in ("width", "feed_forward"):
        if model.config.get(name, 0) % PANEL:
            raise InputError(f"a {name} that is a multiple of {PANEL}", got=str(model.config[name]), fix=_SERVE)
    return model


def _require(name: str, value: Any, choices: tuple[Any, ...], fix: str = _SERVE) -> None:
    if value not in choices:
        raise InputError(f"{name} as one of {', '.join(map(str, choices))}, which the page computes", got=str(value), fix=fix)


def _shape(model: Any) -> dict[str, Any]:
    """The sizes for web/translator."""
    config = model.config
    same: dict[str, Any] = {"kind": type(model).__name__, "tables": _tables(model)}
    same |= {"width": config["width"], "words": config["target_words"]}
    if isinstance(model, Seq2Seq):
        attention = {"concat": "additive"}.get(config["attention"], config["attention"])
        return same | {
            "attention": attention,
            "scoreWith": config["score_with"],
            "bidirectional": config["bidirectional"],
            "limit": None,
        }
    return same | {
        "heads": config["heads"],
        "layers": config["encoder_layers"],
        "decoderLayers": config["decoder_layers"],
        "inner": config["feed_forward"],
        "norm": config["norm"],
        "activation": config["activation"],
        "positions": config["positions"],
        "limit": config["longest"] if config["positions"] == "learned" else None,
    }


def _tables(model: Any) -> dict[str, str]:
    """The name under which each embedding's rows are stored: the output layer's, if they are tied."""
    embeddings = {"source": _embedding(model, "source"), "target": _embedding(model, "target")}
    return {name: "output" if table is model.output.weight else name for name, table in embeddings.items()}


def _embedding(model: Any, side: str) -> Tensor:
    part = {"source": "encoder", "target": "decoder"}[side]
    module = getattr(model, f"{side}_embedding") if isinstance(model, Seq2Seq) else getattr(model, part).embedding
    return module.table.weight


def _pack(packed: PackedWeights, prefix: str, model: Any) -> None:
    packed.begin()
    put = _Putting(packed, prefix)
    put.linear("output", model.output)
    for side, table in _tables(model).items():
        if table == side:
            put.rows(side, _embedding(model, side))
    (_pack_seq2seq if isinstance(model, Seq2Seq) else _pack_transformer)(put, model)


@dataclass(frozen=True)
class _Putting:
    """Stores a model's parameters under names with a prefix; outputs are padded with zeros to a whole panel."""

    packed: PackedWeights
    prefix: str

    def rows(self, name: str, weight: Tensor, bias: Tensor | None = None) -> None:
        """A linear map: weight (out, in) and bias (out) or None."""
        padding = -len(weight) % PANEL
        vector = None if bias is None else np.pad(bias.detach().numpy(), (0, padding))
        self.packed.linear(f"{self.prefix}{name}", np.pad(weight.detach().numpy(), ((0, padding), (0, 0))), vector)

    def linear(self, name: str, *modules: nn.Linear) -> None:
        """Linear layers, concatenated to one map."""
        bias = None if modules[0].bias is None else torch.cat([module.bias for module in modules])
        self.rows(name, torch.cat([module.weight for module in modules]), bias)

    def norm(self, name: str, module: nn.Module) -> None:
        """A layer norm; nothing if there is none."""
        if isinstance(module, nn.LayerNorm):
            self.packed.vector(f"{self.prefix}{name}.gain", module.weight.detach().numpy())
            self.packed.vector(f"{self.prefix}{name}.bias", module.bias.detach().numpy())

    def attention(self, name: str, module: Any, parts: Mapping[str, str]) -> None:
        """The maps of an attention: `parts` names each map by the letters of its concatenated parts."""
        projections = {"q": module.query, "k": _repeated_heads(module.key, module), "v": _repeated_heads(module.value, module)}
        for part, letters in parts.items():
            self.linear(f"{name}.{part}", *(projections[letter] for letter in letters))


def _repeated_heads(projection: nn.Linear, module: Any) -> nn.Linear:
    """A projection of keys or values for each query head: shared heads are repeated."""
    shared = module.heads // module.kv_heads
    if shared == 1:
        return projection
    repeated = nn.Linear(projection.in_features, shared * projection.out_features)
    weight, bias = projection.weight.detach(), projection.bias.detach()
    repeated.weight = nn.Parameter(weight.unflatten(0, (module.kv_heads, -1)).repeat_interleave(shared, 0).flatten(0, 1))
    repeated.bias = nn.Parameter(bias.unflatten(0, (module.kv_heads, -1)).repeat_interleave(shared, 0).flatten())
    return repeated


def _pack_transformer(put: _Putting, model: Any) -> None:
    for side, part in (("source", model.encoder), ("target", model.decoder)):
        if model.config["positions"] == "learned":
            put.packed.table(f"{put.prefix}{side}.positions", part.embedding.positions.table.detach().numpy())
    put.norm("encoder.norm", model.encoder.norm)
    put.norm("decoder.norm", model.decoder.norm)
    for number, layer in enumerate(model.encoder.layers):
        put.packed.begin()
        name = f"encoder.{number}"
        put.attention(name, layer.attention, {"vectors": "qkv"})
        put.linear(f"{name}.output", layer.attention.output)
        put.norm(f"{name}.self", layer.around_attention.norm)
        _pack_feed_forward(put, name, layer)
    for number, layer in enumerate(model.decoder.layers):
        put.packed.begin()
        name = f"decoder.{number}"
        put.attention(name, layer.self_attention, {"vectors": "qkv"})
        put.attention(name, layer.cross_attention, {"query": "q", "keys": "kv"})
        put.linear(f"{name}.output", layer.self_attention.output)
        put.linear(f"{name}.mixed", layer.cross_attention.output)
        put.norm(f"{name}.self", layer.around_self_attention.norm)
        put.norm(f"{name}.cross", layer.around_cross_attention.norm)
        _pack_feed_forward(put, name, layer)


def _pack_feed_forward(put: _Putting, name: str, layer: Any) -> None:
    put.linear(f"{name}.widen", layer.feed_forward.widen)
    put.linear(f"{name}.narrow", layer.feed_forward.narrow)
    put.norm(f"{name}.feed", layer.around_feed_forward.norm)


def _pack_seq2seq(put: _Putting, model: Any) -> None:
    directions = ("", "_reverse") if model.config["bidirectional"] else ("",)
    for name, module, ends in (("encoder", model.encoder, directions), ("decoder", model.decoder, ("",))):
        for end in ends:
            for part, letters in (("input", "ih"), ("hidden", "hh")):
                weight, bias = (getattr(module, f"{kind}_{letters}_l0{end}") for kind in ("weight", "bias"))
                put.rows(f"{name}.{part}{end}", weight, bias)
    put.linear("first_state", model.first_state)
    put.linear("readout", model.readout)
    if model.attention is None:
        return
    scoring = model.attention.scoring
    if scoring.key is None:
        put.rows("attention.key", scoring.weight)  # general: q · W h_j
        return
    put.rows("attention.query", scoring.query.weight)
    put.rows("attention.key", scoring.key.weight)
    if model.attention.value is None:
        put.packed.vector(f"{put.prefix}attention.weight", scoring.weight.detach().numpy())
    else:
        put.linear("attention.value", model.attention.value)


def _rounded(name: str, tensor: Tensor, small: bool) -> Tensor:
    """A parameter in the page's precision: tables and linear maps rounded."""
    return torch.from_numpy(restored(tensor.numpy(), small)) if tensor.ndim == 2 else tensor


@torch.no_grad()
def _attention(model: Any, source: Tensor, target: Tensor) -> list[Tensor]:
    """The weights of all heads of each layer, (H, Q, K)."""
    return [layer[0] for layers in model.weights(source, target).values() for layer in layers]
