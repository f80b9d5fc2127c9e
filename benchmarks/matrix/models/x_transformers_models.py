"""Models of x-transformers, one for each of its ways to attend: "eager" is its own product, "sdpa" its `attn_flash`."""

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.matrix.models.hugging_face import NotBuilt, randomized
from benchmarks.matrix.verdicts import Verdict, error_line, of_recording

WORDS, LENGTH, WIDTH = 64, 12, 64
SMALL: dict[str, Any] = {"dim": WIDTH, "depth": 2, "heads": 4, "attn_dim_head": 16}
DECODERS: dict[str, dict[str, Any]] = {
    "decoder": {},
    "rotary positions": {"rotary_pos_emb": True},
    "ALiBi": {"alibi_pos_bias": True},
    "T5's relative positions": {"rel_pos_bias": True},
    "dynamic positions": {"dynamic_pos_bias": True, "dynamic_pos_bias_log_distance": False},
    "no positions on some heads": {"alibi_pos_bias": True, "alibi_num_heads": 2},
    "memory keys and values": {"attn_num_mem_kv": 4},
    "normalized queries and keys": {"attn_qk_norm": True},
    "cosine similarity by group": {"attn_qk_norm": True, "attn_qk_norm_groups": 4},
    "the largest four": {"attn_sparse_topk": 4},
    "talking heads": {"attn_pre_talking_heads": True, "attn_post_talking_heads": True},
    "gated values": {"attn_gate_values": True},
    "one key head": {"attn_one_kv_head": True},
    "two key heads": {"attn_kv_heads": 2},
    "softly clamped scores": {"attn_softclamp_logits": True},
    "on attention": {"attn_on_attn": True},
    "residual attention": {"residual_attn": True},
    "a head scale": {"attn_head_scale": True},
    "macaron": {"macaron": True},
    "sandwich": {"sandwich_coef": 1},
    "shifted tokens": {"shift_tokens": 1},
    "a gate on the residual": {"gate_residual": True},
    "a zero key": {"attn_add_zero_kv": True},
    "sigmoid weights": {"attn_sigmoid": True},
    "value residual": {"add_value_residual": True},
    "laser": {"attn_laser": True},
    "forgetting": {"attn_data_dependent_alibi": True},
    "contextual positions": {"attn_use_cope": True},
    "selective": {"attn_selective": True},
    "hyper-connections": {"num_residual_streams": 2},
    "a maximum span": {"attn_max_attend_past": 4},
}
OTHERS = ("encoder", "encoder with a mask", "prefix", "encoder and decoder", "picture", "memory tokens", "recurrence")


def names() -> list[str]:
    """Every case."""
    return [*DECODERS, *OTHERS]


def build(name: str, flash: bool) -> tuple[nn.Module, dict[str, Any]]:
    """The model and what it is fed."""
    from x_transformers import Decoder, Encoder, TransformerWrapper, ViTransformerWrapper, XTransformer

    small = SMALL | ({"attn_flash": True} if flash else {})
    ids = torch.randint(0, WORDS, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH - 4]])
    words: dict[str, Any] = {"num_tokens": WORDS, "max_seq_len": 32}
    if name in DECODERS:
        return TransformerWrapper(**words, attn_layers=Decoder(**small, **DECODERS[name])), {"x": ids}
    if name in ("encoder", "encoder with a mask"):
        return TransformerWrapper(**words, attn_layers=Encoder(**small)), {"x": ids} | (
            {"mask": mask} if "mask" in name else {}
        )
    if name == "prefix":
        return TransformerWrapper(**words, attn_layers=Decoder(**small)), {"x": ids, "mask": mask}
    if name == "memory tokens":
        return TransformerWrapper(**words, num_memory_tokens=3, attn_layers=Decoder(**small)), {"x": ids}
    if name == "recurrence":
        model = TransformerWrapper(
            **words, max_mem_len=8, attn_layers=Decoder(**small, rel_pos_bias=not flash, rotary_pos_emb=flash)
        )
        return model, {
            "x": ids,
            "mems": [torch.randn(2, 8, WIDTH, generator=torch.Generator().manual_seed(index)) for index in range(2)],
        }
    if name == "picture":
        model = ViTransformerWrapper(image_size=32, patch_size=8, num_classes=5, attn_layers=Encoder(**small))
        return model, {"img": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
    both: dict[str, Any] = {"dim": WIDTH}
    for side in ("enc", "dec"):
        both |= {
            f"{side}_num_tokens": WORDS,
            f"{side}_depth": 2,
            f"{side}_heads": 4,
            f"{side}_max_seq_len": 32,
            f"{side}_attn_flash": flash,
        }
    return XTransformer(**both), {"src": ids, "tgt": ids[:, :7], "mask": mask}


def run_all(name: str) -> dict[str, Any]:
    """What is said of recording it on both paths."""
    facts: dict[str, Any] = {"class": name, "kind": "pictures" if name == "picture" else "words"}
    ways = {"recording eager": one(name, False), "recording sdpa": one(name, True)}
    return facts | {way: verdict.plain() for way, verdict in ways.items()}


def one(name: str, flash: bool) -> Verdict:
    """On one path. Raises NotBuilt where the plain path cannot be built."""
    torch.manual_seed(0)
    try:
        model, inputs = build(name, flash)
        model = randomized(model).eval()
        run(model, inputs)
    except Exception as error:  # whatever the library raises
        if flash:
            return Verdict("refused", f"x-transformers has no attn_flash for it: {error_line(error, 120)}")
        raise NotBuilt(error_line(error)) from error
    return of_recording(model, lambda each: run(each, inputs))


def run(model: nn.Module, inputs: dict[str, Any]) -> dict[str, Tensor]:
    """Its output."""
    torch.manual_seed(1)
    return {"output": model(**{name: value.clone() if isinstance(value, Tensor) else value for name, value in inputs.items()})}
