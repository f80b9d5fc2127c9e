"""Keywords of attention in other libraries: `attend` accepts none of them, and its error names the replacement."""

import difflib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from overt.errors import KindError

ARGUMENTS = ("score", "mask", "bias", "normalizer", "dropout")

# FIXES: the replacement of each keyword of torch, flex_attention, flash-attn or transformers.
FIXES = {
    "is_causal": "write mask=overt.Causal(offset=0), which is aligned at the start as torch's is_causal is",
    "enable_gqa": "leave it out: fewer heads of key and value than of query are grouped without it",
    "dropout": "leave it out: the weights are those before dropout",
    "key_padding_mask": "write mask=overt.masks.from_padding(key_padding_mask), in which True means padding",
    "need_weights": "call overt.steps(…).weights for the weights, or overt.summarize(…) for their statistics in linear memory",
    "average_attn_weights": "call overt.steps(…).weights.mean(-3)",
    "attention_mask": "write mask=overt.masks.from_attention_mask(attention_mask)",
    "head_mask": "multiply the output of each head by it",
    "block_mask": "write mask= with overt's masks, such as overt.Causal() & overt.Window(255, 0), or an object with block(rows, keys)",
    "mask_mod": "write mask= with overt's masks, such as overt.Causal() & overt.Window(255, 0), or an object with block(rows, keys)",
    "score_mod": "write score= with a function (query, key) -> (..., Q, K), or bias= with what is added to the scores",
    "kernel_options": "leave it out: overt.plan(…) says which kernel computes the call, and overt.use_path(…) forces one",
    "return_lse": "call overt.attend(…, return_lse=True)",
    "return_aux": "call overt.attend(…, return_lse=True)",
    "return_attn_probs": "call overt.steps(…).weights",
    "output_attentions": "call overt.steps(…).weights",
    "causal": "write mask=overt.Causal(), which is aligned at the end as flash-attn's causal is",
    "window_size": "write mask=overt.Window(before, after)",
    "alibi_slopes": "write bias=overt.ALiBi(alibi_slopes)",
    "attn_bias": "write bias=attn_bias",
    "s_aux": "write normalizer=overt.Softmax(sink=s_aux)",
    "sinks": "write normalizer=overt.Softmax(sink=sinks)",
    "cu_seqlens": "write mask=overt.masks.from_cu_seqlens(cu_seqlens)",
    "temperature": "write normalizer=overt.Softmax(temperature=…)",
    "lengths": "write mask=overt.Lengths(lengths)",
    "window": "write mask=overt.Window(before, after)",
}
SCALES = {"scale": "scale", "softmax_scale": "scale", "sm_scale": "scale", "softcap": "softcap"}
SWITCHES = {
    "is_causal",
    "causal",
    "need_weights",
    "return_lse",
    "return_attn_probs",
    "output_attentions",
}  # of no effect if False


def refuse(unknown: Mapping[str, Any]) -> None:
    """Raise the KindError that names the replacement of each unknown keyword."""
    received = ", ".join(f"{name}={_short(value)}" for name, value in unknown.items())
    fixes = "; ".join(
        f"{name}: {_fix(name, value)}" if len(unknown) > 1 else _fix(name, value) for name, value in unknown.items()
    )
    raise KindError("score, mask, bias and normalizer as the arguments of attention", got=received, fix=fixes)


def _fix(name: str, value: Any) -> str:
    if value is None or (value is False and name in SWITCHES):
        return "leave it out"
    if name == "attn_mask":
        if isinstance(value, Tensor) and value.is_floating_point():
            return "write bias=attn_mask, which is added to the scores"
        return (
            "write mask=attn_mask where True means may attend, as in torch's scaled_dot_product_attention, or mask=~attn_mask"
        )
    if name == "dropout_p":
        return f"write dropout={_short(value)}"
    if name in SCALES:
        return f"write score=overt.Dot({SCALES[name]}={_short(value)})"
    close = difflib.get_close_matches(name, ARGUMENTS, n=1, cutoff=0.7)
    return FIXES.get(name) or (f"write {close[0]}=" if close else f"leave {name} out")


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else "…"
