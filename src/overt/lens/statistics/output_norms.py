"""How long each value is once the head's output matrix has turned it: what a weight is worth to the layers that follow."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.lens.captured import CapturedCall
from overt.lens.head import Head

# What the matrix is called inside the module that attends: overt and torch; Llama and its kin; GPT-2; T5; DistilBERT; Falcon.
_OWN = ("output", "out_proj", "o_proj", "c_proj", "o", "out_lin", "dense", "wo")
_BESIDE = ("output.dense",)  # … and beside it, in BERT's and ViT's `attention.self`


class OutputNorms(NamedTuple):
    """‖v_j W_O‖ for each key, (B, K), or None and the reason why it is not known."""

    norms: Tensor | None
    why: str


@torch.no_grad()
def output_norms(head: Head, model: nn.Module) -> OutputNorms:
    """The length of what each value adds to the layer's output, ‖v_j W_O^h‖, where the head's matrix is known for sure.

        o_i = Σ_j α_ij v_j W_O^h        so key j adds a vector of length α_ij · ‖v_j W_O^h‖

    Kobayashi et al. 2020, section 3: a large weight on a short vector adds little. The matrix is looked for in the module that
    attended, by the names that libraries give it, and taken only if it is the one that fits: it reads all heads side by side, and
    nothing that normalises or gates stands between. `model` is the one that was recorded, since a recording holds no parameters.

    Shapes: (B, K), in the values' units. Raises InputError if the model has no module of the layer's name.

    >>> import overt
    >>> layer = overt.layers.MultiHeadAttention(8, heads=2)
    >>> with overt.lens.record(layer) as recording:
    ...     _ = layer(torch.randn(3, 5, 8))
    >>> output_norms(recording[0, 1], layer).norms.shape
    torch.Size([3, 5])
    """
    if not isinstance(head.captured, CapturedCall):
        return OutputNorms(None, "the recording kept summaries, which hold no values")
    value = head.value  # (B, K, E)
    found = output_matrix(model, head.layer, head.captured.total, value.shape[-1])
    if isinstance(found, str):
        return OutputNorms(None, found)
    own = found[:, head.head]  # (width, E)
    # ‖v W‖² = v (W W^T) v^T: the small product first, so that nothing as wide as the model grows with K.
    both = (own.mT.double() @ own.double()).to(value.device)  # (E, E)
    wide = value.double()
    return OutputNorms(((wide @ both) * wide).sum(-1).clamp(min=0).sqrt().to(value.dtype), "")


def output_matrix(model: nn.Module, layer: str, heads: int, width: int) -> Tensor | str:
    """The matrix that reads the heads of a layer, (model's width, H, E), or a sentence that says why none is known.

    >>> attention = nn.MultiheadAttention(8, 2)
    >>> output_matrix(attention, "MultiheadAttention", heads=2, width=4).shape
    torch.Size([8, 2, 4])
    >>> output_matrix(nn.Identity(), "Identity", heads=2, width=4)
    'Identity has no output matrix of a known name'
    """
    module, parent = _modules(model, layer)
    named = list(_candidates(module, parent))
    if not named:
        return f"{layer} has no output matrix of a known name"
    fitting = [(name, weight) for name, weight in named if weight.shape[1] == heads * width]
    if len(fitting) != 1:
        shapes = ", ".join(f"{name} reads {weight.shape[1]}" for name, weight in named)
        return f"{layer} has no single output matrix that reads {heads} heads of {width} numbers ({shapes})"
    between = next(_between(module, heads * width), None)
    if between is not None:
        return f"{layer} holds {between}, which may stand between its heads and its output matrix"
    return fitting[0][1].detach().unflatten(1, (heads, width))


def _modules(model: nn.Module, layer: str) -> tuple[nn.Module, nn.Module | None]:
    """The module that attended, and the one that it is part of; a model that attends itself is named by its class."""
    known = dict(model.named_modules())
    if layer in known:
        return known[layer], known.get(layer.rpartition(".")[0])
    if layer == type(model).__name__:
        return model, None
    raise InputError(
        f"output norms need the model that was recorded, with its module {layer}",
        got=f"a {type(model).__name__} without it",
        fix="pass the same model as to overt.lens.record",
    )


def _candidates(module: nn.Module, parent: nn.Module | None) -> Iterator[tuple[str, Tensor]]:
    """Matrices that may be the one, each (out, in): the module's own first, its sibling's only where it has none."""
    own = [(name, weight) for name in _OWN if (weight := _weight(getattr(module, name, None))) is not None]
    yield from own
    if own or parent is None:
        return
    for path in _BESIDE:
        first, last = path.split(".")
        weight = _weight(getattr(getattr(parent, first, None), last, None))
        if weight is not None:
            yield path, weight


def _weight(found: object) -> Tensor | None:
    """A linear layer's matrix as (out, in); transformers' Conv1D holds it the other way round."""
    weight = getattr(found, "weight", None)
    if not isinstance(found, nn.Module) or not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    if isinstance(found, nn.Linear):
        return weight
    return weight.mT if type(found).__name__ == "Conv1D" and weight.shape[1] == getattr(found, "nf", None) else None


def _between(module: nn.Module, width: int) -> Iterator[str]:
    """What inside the module may change the heads' outputs before the matrix reads them."""
    for name, child in module.named_children():
        asks = name.startswith(("q_", "k_", "query", "key"))
        sizes = [tensor.numel() for tensor in child.parameters(recurse=False)]
        if "gate" in name or (asks and isinstance(child, nn.Linear) and name == "q_proj" and child.out_features == 2 * width):
            yield f"a gate, {name}"
        elif "Norm" in type(child).__name__ and not asks and width in sizes:
            yield f"{type(child).__name__}, {name}"
