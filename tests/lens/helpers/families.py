"""Small Hugging Face models with random weights, one of each family: what to feed them, and what a recording has to hold."""

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor

LENGTH, TARGET, WORDS = 9, 5, 60
_WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": WORDS}
_GROUPED = {**_WIDE, "num_key_value_heads": 2, "head_dim": 8}
_BOTH = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "vocab_size": WORDS,
}
_SMALL_WHISPER = {**_BOTH, "num_mel_bins": 8, "max_source_positions": LENGTH, "max_target_positions": 32, "pad_token_id": 0}


@dataclass(frozen=True)
class Family:
    """One kind of model. `kind` is "encoder", "decoder", "both" (text to text), "image" or "sound" (sound to text)."""

    name: str
    model: str
    kind: str
    settings: dict[str, Any]
    layers: tuple[str, ...]
    paths: tuple[str, ...] = ("eager", "sdpa")
    config: str = ""
    special: dict[str, int] = field(default_factory=lambda: {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2})

    def build(self, path: str = "eager", dtype: torch.dtype = torch.float32) -> transformers.PreTrainedModel:
        """The model, with the same weights on every path."""
        torch.manual_seed(0)
        kind = getattr(transformers, self.config or f"{self.name}Config")
        config = kind(**self.settings, **(self.special if self.kind != "image" else {}))
        model = getattr(transformers, self.model)._from_config(config, attn_implementation=path)
        # Fresh weights are so small that all scores are nearly equal: an error would hardly be seen in the weights.
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn_like(parameter)
                parameter.copy_(0.3 * noise if parameter.ndim > 1 else parameter + 0.1 * noise)
        return model.to(dtype).eval()

    def inputs(self, side: str | None = None, batch: int = 2) -> dict[str, Tensor]:
        """Random inputs; `side` is where the first sequence is padded, by three tokens."""
        draw = torch.Generator().manual_seed(1)
        if self.kind == "image":
            return {"pixel_values": torch.randn(batch, 3, 8, 8, generator=draw)}
        target = {"decoder_input_ids": torch.randint(3, WORDS, (batch, TARGET), generator=draw)}
        if self.kind == "sound":
            return {"input_features": torch.randn(batch, 8, 2 * LENGTH, generator=draw), **target}
        arguments = {"input_ids": torch.randint(3, WORDS, (batch, LENGTH), generator=draw)}
        if side is not None:
            visible = torch.ones(batch, LENGTH, dtype=torch.long)
            visible[0, slice(0, 3) if side == "left" else slice(-3, None)] = 0
            arguments["attention_mask"] = visible
        return arguments | target if self.kind == "both" else arguments

    @property
    def sides(self) -> tuple[str | None, ...]:
        """Where padding makes sense."""
        return (None,) if self.kind in ("image", "sound") else (None, "left", "right")

    @property
    def generates(self) -> bool:
        """Whether the model writes text."""
        return self.kind in ("decoder", "both", "sound")

    def idle(self, arguments: dict[str, Tensor], queries: int) -> Tensor:
        """The queries (B, Q) that are padding before a causal mask and a window: some may attend to nothing."""
        visible = arguments.get("attention_mask")
        if self.kind != "decoder" or visible is None:
            return torch.zeros(len(next(iter(arguments.values()))), queries, dtype=torch.bool)
        return visible[:, -queries:] == 0


def written(model, family: Family, tokens: int = 4, **options):
    """What `generate` gives for two prompts, the first padded where there is padding."""
    arguments = {name: tensor for name, tensor in family.inputs("left").items() if name != "decoder_input_ids"}
    exact = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}
    # Whisper's own `generate` returns the attention of some beams only.
    return transformers.GenerationMixin.generate(
        model, **arguments, **exact, return_dict_in_generate=True, output_scores=True, **options
    )


def attentions(output: Any) -> list[Tensor]:
    """The weights (B, H, Q, K) that a model returns itself, in the order in which it attends."""
    if "encoder_attentions" not in output:
        return list(output.attentions)
    between = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.encoder_attentions, *(weights for pair in between for weights in pair)]


def same(first: Any, second: Any) -> bool:
    """Whether two outputs of a model are equal to the bit, NaN where the other is."""
    pairs = list(zip(_tensors(first), _tensors(second), strict=True))
    return bool(pairs) and all(torch.equal(a.nan_to_num(nan=7e7), b.nan_to_num(nan=7e7)) for a, b in pairs)


def _tensors(output: Any) -> list[Tensor]:
    outputs = output if isinstance(output, tuple) else dict(output)
    return [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _each(*names: str) -> tuple[str, ...]:
    return tuple(name.format(layer) for layer in range(2) for name in names)


_SEQUENCES = (
    *_each("model.encoder.layers.{}.self_attn"),
    *_each("model.decoder.layers.{}.self_attn", "model.decoder.layers.{}.encoder_attn"),
)
_DECODER = _each("model.layers.{}.self_attn")

FAMILIES = [
    Family("Bert", "BertModel", "encoder", _WIDE, _each("encoder.layer.{}.attention.self")),
    Family(
        "DistilBert",
        "DistilBertModel",
        "encoder",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 40, "vocab_size": WORDS},
        _each("transformer.layer.{}.attention"),
    ),
    Family(
        "GPT2",
        "GPT2LMHeadModel",
        "decoder",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": WORDS},
        _each("transformer.h.{}.attn"),
    ),
    Family("Llama", "LlamaForCausalLM", "decoder", _GROUPED, _DECODER),
    Family("Mistral", "MistralForCausalLM", "decoder", {**_GROUPED, "sliding_window": 4}, _DECODER),
    Family(
        "Gemma2",
        "Gemma2ForCausalLM",
        "decoder",
        {**_GROUPED, "sliding_window": 4, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 8},
        _DECODER,
        paths=("eager",),
    ),
    Family(
        "GptOss",
        "GptOssForCausalLM",
        "decoder",
        {**_GROUPED, "sliding_window": 4, "num_local_experts": 2, "num_experts_per_tok": 1},
        _DECODER,
        paths=("eager",),
    ),
    Family(
        "T5",
        "T5ForConditionalGeneration",
        "both",
        {"d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4, "vocab_size": WORDS},
        (
            *_each("encoder.block.{}.layer.0.SelfAttention"),
            *_each("decoder.block.{}.layer.0.SelfAttention", "decoder.block.{}.layer.1.EncDecAttention"),
        ),
        special={"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 2},
    ),
    Family("Bart", "BartForConditionalGeneration", "both", _BOTH, _SEQUENCES),
    Family(
        "Whisper",
        "WhisperForConditionalGeneration",
        "sound",
        _SMALL_WHISPER,
        _SEQUENCES,
        special={"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    ),
    Family(
        "ViT",
        "ViTModel",
        "image",
        {key: number for key, number in _WIDE.items() if key != "vocab_size"} | {"image_size": 8, "patch_size": 2},
        _each("layers.{}.attention"),
    ),
    Family(
        "Bloom",
        "BloomForCausalLM",
        "decoder",
        {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": WORDS},
        _each("transformer.h.{}.self_attention"),
        paths=("eager",),
    ),
    Family(
        "Albert",
        "AlbertModel",
        "encoder",
        {**_WIDE, "embedding_size": 16},
        ("encoder.albert_layer_groups.0.albert_layers.0.attention",) * 2,
    ),
]
