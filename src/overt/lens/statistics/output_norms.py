"""The norm of each value after the head's output matrix: how much a weight adds to the layer's output."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.lens.capture.recordable import required_model
from overt.lens.captured import CapturedCall
from overt.lens.head import Head
from overt.lens.linear.captured import CapturedMixer

# _NAMES: names of the output matrix in the attending module: overt, torch, Llama, GPT-2, T5, DistilBERT, Falcon, ModernBERT, timm, BLIP.
_NAMES = ("output", "out_proj", "o_proj", "c_proj", "o", "out_lin", "dense", "wo", "Wo", "proj", "projection")
_PROJECTED = ("q_", "k_", "query", "key", "v_", "value")  # prefixes of modules that act before the weights
_SIBLING_NAMES = ("output.dense",)  # names of the matrix next to the module (BERT's and ViT's `attention.self`)


class OutputNorms(NamedTuple):
    """‖v_j W_O‖ for each key, (B, K), or None with the reason why it cannot be computed."""

    norms: Tensor | None
    reason: str


@torch.no_grad()
def output_norms(head: Head, model: nn.Module) -> OutputNorms:
    """The norm of each value's contribution to the layer's output, ‖v_j W_O^h‖, if the head's output matrix is certain.

        o_i = Σ_j α_ij v_j W_O^h        so key j adds a vector of length α_ij · ‖v_j W_O^h‖

    Kobayashi et al. 2020, section 3: a large weight on a short vector adds little. The matrix is a parameter of the module that
    computed the attention, with one of the names that libraries use. It is used only if no other matrix reads all heads side by side
    and no norm or gate precedes it. `model` is the recorded model, because a recording has no parameters.

    Shapes: (B, K), in the values' units. Raises InputError if the model has no module of the layer's name.

    >>> import overt
    >>> layer = overt.layers.MultiHeadAttention(8, heads=2)
    >>> with overt.lens.record(layer) as recording:
    ...     _ = layer(torch.randn(3, 5, 8))
    >>> output_norms(recording[0, 1], layer).norms.shape
    torch.Size([3, 5])
    """
    if isinstance(head.captured, CapturedMixer):
        behind = "; ".join(head.captured.around) or "what follows it in the layer is not known"
        return OutputNorms(
            None, f"{head.layer} is a linear token mixer, whose values are changed before the output matrix ({behind})"
        )
    if not isinstance(head.captured, CapturedCall):
        return OutputNorms(None, "the recording has summaries, without values")
    value = head.value  # (B, K, E)
    matrix = output_matrix(model, head.layer, head.captured.total, value.shape[-1])
    if isinstance(matrix, str):
        return OutputNorms(None, matrix)
    weight = matrix[:, head.head]  # (width, E)
    # ‖v W‖² = v (W W^T) v^T: the small product first, so that no tensor as wide as the model grows with K.
    product = (weight.mT.double() @ weight.double()).to(value.device)  # (E, E)
    values = value.double()
    return OutputNorms(((values @ product) * values).sum(-1).clamp(min=0).sqrt().to(value.dtype), "")


def output_matrix(model: nn.Module, layer: str, heads: int, width: int) -> Tensor | str:
    """The matrix that reads the heads of a layer, (model's width, H, E), or the reason why no matrix is certain.

    >>> attention = nn.MultiheadAttention(8, 2)
    >>> output_matrix(attention, "MultiheadAttention", heads=2, width=4).shape
    torch.Size([8, 2, 4])
    >>> output_matrix(nn.Identity(), "Identity", heads=2, width=4)
    'Identity has no output matrix of a known name'
    """
    module, parent = _modules(model, layer)
    candidates = list(_candidates(module, parent))
    if not candidates:
        return f"{layer} has no output matrix of a known name"
    fitting = [(name, weight) for name, weight in candidates if weight.shape[1] == heads * width]
    if len(fitting) != 1:
        shapes = ", ".join(f"{name} reads {weight.shape[1]}" for name, weight in candidates)
        return f"{layer} has no single output matrix that reads {heads} heads of {width} numbers ({shapes})"
    module_in_between = next(_in_between(module, heads * width), None)
    if module_in_between is not None:
        return f"{layer} holds {module_in_between}, which may be between its heads and its output matrix"
    if fitting[0][1].is_meta:
        return f"{layer} has its output matrix on the device meta, which has no numbers"
    return fitting[0][1].detach().unflatten(1, (heads, width))


def _modules(model: nn.Module, layer: str) -> tuple[nn.Module, nn.Module | None]:
    """The module that computed the attention, and its parent; the model itself has the name of its class."""
    modules = dict(required_model(model).named_modules())
    if layer in modules:
        return modules[layer], modules.get(layer.rpartition(".")[0])
    if layer == type(model).__name__:
        return model, None
    raise InputError(
        f"the model that was recorded, with its module {layer}",
        got=f"a {type(model).__name__} without it",
        fix="pass the same model as to overt.lens.record",
    )


def _candidates(module: nn.Module, parent: nn.Module | None) -> Iterator[tuple[str, Tensor]]:
    """Candidates for the output matrix, each (out, in): the module's matrices, or its sibling's if it has none."""
    matrices = [(name, weight) for name in _NAMES if (weight := weight_matrix(getattr(module, name, None))) is not None]
    yield from matrices
    if matrices or parent is None:
        return
    for path in _SIBLING_NAMES:
        first, last = path.split(".")
        weight = weight_matrix(getattr(getattr(parent, first, None), last, None))
        if weight is not None:
            yield path, weight


def weight_matrix(layer: object) -> Tensor | None:
    """A linear map's matrix as (out, in); transformers' Conv1D stores its transpose."""
    weight = getattr(layer, "weight", None)
    if not isinstance(layer, nn.Module) or not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    if isinstance(layer, nn.Linear):
        return weight
    return weight.mT if type(layer).__name__ == "Conv1D" and weight.shape[1] == getattr(layer, "nf", None) else None


def _in_between(module: nn.Module, width: int) -> Iterator[str]:
    """Modules that may change the heads' outputs before the matrix reads them."""
    for name, child in module.named_children():
        reads_query_or_key = name.startswith(_PROJECTED[:4])
        sizes = [tensor.numel() for tensor in child.parameters(recurse=False)]
        if "gate" in name or (
            reads_query_or_key and isinstance(child, nn.Linear) and name == "q_proj" and child.out_features == 2 * width
        ):
            yield f"a gate, {name}"
        elif "Norm" in type(child).__name__ and not name.startswith(_PROJECTED) and (width in sizes or not sizes):
            yield f"{type(child).__name__}, {name}"
