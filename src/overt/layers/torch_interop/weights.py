"""Convert weights between torch's `nn.MultiheadAttention` and `MultiHeadAttention`: the same numbers under other names.

| torch                                                                      | here                                   |
|----------------------------------------------------------------------------|----------------------------------------|
| in_proj_weight (3E, E), or {q,k,v}_proj_weight where widths differ          | {query,key,value}.weight               |
| in_proj_bias (3E)                                                          | {query,key,value}.bias                 |
| out_proj.weight (E, E), out_proj.bias (E)                                  | output.weight, output.bias             |
| bias_k, bias_v (1, 1, E)                                                   | extra_key, extra_value (E)             |

E is the width. In both, the rows of a matrix are ordered by head.
"""

from typing import Any

import torch
from torch import Tensor, nn

from overt.attention.normalizers import Softmax
from overt.attention.scores import Dot
from overt.errors import InputError, KindError
from overt.layers.positions.base import Positions
from overt.layers.torch_interop.replacing import ReplacedAttention

_KNOWN_FORWARD = (nn.MultiheadAttention.forward, ReplacedAttention.forward)
_PARTS = ("query", "key", "value")


def rename_from_torch(state: dict[str, Any], prefix: str) -> None:
    """Rename torch's entries at this prefix to the names here, in place; other entries stay."""
    for kind in ("weight", "bias"):
        if (packed := state.pop(f"{prefix}in_proj_{kind}", None)) is not None:
            state |= {f"{prefix}{part}.{kind}": matrix for part, matrix in zip(_PARTS, packed.chunk(3), strict=True)}
        if (output := state.pop(f"{prefix}out_proj.{kind}", None)) is not None:
            state[f"{prefix}output.{kind}"] = output
    for part in _PARTS:
        if (matrix := state.pop(f"{prefix}{part[0]}_proj_weight", None)) is not None:
            state[f"{prefix}{part}.weight"] = matrix
    for part in ("key", "value"):
        if (extra := state.pop(f"{prefix}bias_{part[0]}", None)) is not None:
            state[f"{prefix}extra_{part}"] = extra.flatten()


def renamed_for_torch(state: dict[str, Tensor], layer: Any, prefix: str) -> dict[str, Tensor]:
    """The state with the entries of a `MultiHeadAttention` at this prefix under torch's names; an error if torch has no such layer."""
    _refuse_unknown_to_torch(layer)
    ours = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
    others = {name: value for name, value in state.items() if not name.startswith(prefix)}
    matrices, biases = ([ours[f"{part}.{kind}"] for part in _PARTS if f"{part}.{kind}" in ours] for kind in ("weight", "bias"))
    if layer.key_width == layer.value_width == layer.width:
        theirs = {"in_proj_weight": torch.cat(matrices)}
    else:
        theirs = {f"{part[0]}_proj_weight": matrix for part, matrix in zip(_PARTS, matrices, strict=True)}
    if biases:
        theirs["in_proj_bias"] = torch.cat(biases)
    theirs |= {f"bias_{part[0]}": ours[f"extra_{part}"][None, None] for part in ("key", "value") if f"extra_{part}" in ours}
    theirs |= {name.replace("output.", "out_proj."): ours[name] for name in ("output.weight", "output.bias") if name in ours}
    return others | {prefix + name: value for name, value in theirs.items()}


def options(layer: Any) -> dict[str, Any]:
    """The arguments of a `MultiHeadAttention` equivalent to torch's layer."""
    if not isinstance(layer, nn.MultiheadAttention) or type(layer).forward not in _KNOWN_FORWARD:
        raise KindError(
            "torch.nn.MultiheadAttention in from_torch, since a subclass with another forward may compute something else",
            got=type(layer).__name__,
            fix="build a MultiHeadAttention and load its weights: layer.load_state_dict(theirs.state_dict())",
        )
    return {
        "width": layer.embed_dim,
        "heads": layer.num_heads,
        "key_width": layer.kdim,
        "value_width": layer.vdim,
        "bias": layer.in_proj_bias is not None,
        "extra_key": layer.bias_k is not None,
        "zero_key": layer.add_zero_attn,
        "dropout": layer.dropout,
    }


def torch_layer(layer: Any) -> nn.MultiheadAttention:
    """torch's layer with copies of the weights of a `MultiHeadAttention`."""
    state = renamed_for_torch(layer.state_dict(), layer, "")
    result = nn.MultiheadAttention(
        layer.width,
        layer.heads,
        dropout=layer.dropout,
        bias=layer.query.bias is not None,
        add_bias_kv=layer.extra_key is not None,
        add_zero_attn=layer.zero_key,
        kdim=layer.key_width,
        vdim=layer.value_width,
        batch_first=True,
        device=layer.query.weight.device,
        dtype=layer.query.weight.dtype,
    )
    result.load_state_dict(state)
    return result.train(layer.training)


def _refuse_unknown_to_torch(layer: Any) -> None:
    score, normalizer = layer.score.current(), layer.normalizer.current()
    plain = type(score) is Dot and score.softcap is None and _number(score.scale) in (None, layer.head_width**-0.5)
    softmax = type(normalizer) is Softmax and normalizer.sink is None and _number(normalizer.temperature) == 1
    unknown = {
        f"kv_heads={layer.kv_heads}": layer.kv_heads != layer.heads,
        f"head_width={layer.head_width}": layer.head_width * layer.heads != layer.width,
        "positions": type(layer.positions) is not Positions,
        "causal or window, which torch takes at each call": layer.causal or layer.window is not None,
        f"the score {score}": not plain,
        f"the normalizer {normalizer}": not softmax,
    }
    different = [name for name, is_different in unknown.items() if is_different]
    if different:
        raise InputError(
            "scaled dot products and a softmax, in heads that share the width evenly, as torch's MultiheadAttention computes them",
            got="a layer with " + ", ".join(different),
            fix="save the layer itself: layer.state_dict()",
        )


def _number(setting: Any) -> Any:
    """A numeric setting; NaN, which equals no number, for a tensor."""
    return float("nan") if isinstance(setting, Tensor) else setting
