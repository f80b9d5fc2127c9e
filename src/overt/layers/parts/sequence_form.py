"""The form of a layer that maps a sequence to a sequence: the axis of its positions, and the widths of input and output.

| layer                                 | its output                                    | positions | features                 |
|---------------------------------------|-----------------------------------------------|-----------|--------------------------|
| nn.RNN, nn.LSTM, nn.GRU               | (L, B, D), with batch_first (B, L, D); (L, D) | 0 or −2   | proj_size or hidden_size |
| nn.Linear, nn.Embedding               | (..., L, D)                                   | −2        | out_features, …          |
| nn.Conv1d                             | (B, C, L); (C, L)                             | −1        | out_channels             |
| nn.TransformerEncoder, …EncoderLayer  | (L, B, D), with batch_first (B, L, D); (L, D) | 0 or −2   | d_model                  |
| Contextual                            | as its layer's                                | as its    | twice its layer's        |
| nn.Sequential of these                | as its last layer's                           | as its    | its last layer's         |

A bidirectional layer has twice the features. In an nn.Sequential, activations, dropout and norms do not count. For any other layer
the caller passes `axis=` and `features=`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from overt.errors import InputError

# SAME: layers that change neither the positions nor the width.
SAME = (nn.Identity, nn.Dropout, nn.LayerNorm, nn.RMSNorm, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid)
AXES = {0: 0, 1: -2, -2: -2, 2: -1, -1: -1}


class SequenceForm(NamedTuple):
    """The axis of the positions in a layer's output (0, −2 or −1), and the widths of its input, where known, and its output."""

    axis: int
    input_features: int | None
    output_features: int


def known_form(layer: nn.Module) -> SequenceForm | None:
    """The form of a layer in the table; None for any other."""
    if isinstance(layer, nn.Sequential):
        return _sequential(layer)
    form = getattr(layer, "form", None)
    if isinstance(form, SequenceForm):
        return form
    for kind, form_by_kind in _TABLE.items():
        if isinstance(layer, kind):
            return form_by_kind(layer)
    return None


def required_form(layer: nn.Module, axis: Any = None, features: int | None = None) -> SequenceForm:
    """The form of a layer, from the table or from the caller's arguments."""
    if axis is not None and axis not in AXES:
        raise InputError(
            "axis as the dimension of the positions in the layer's output",
            got=repr(axis),
            fix="pass 0 for (L, B, D), 1 for (B, L, D), 2 for (B, C, L)",
        )
    known, name = known_form(layer), layer_name(layer)
    negative_axis = None if axis is None else AXES[axis]
    if known is None and (axis is None or features is None):
        missing = [argument for argument, value in (("axis=", axis), ("features=", features)) if value is None]
        raise InputError(
            "RNN, LSTM, GRU, Linear, Conv1d, TransformerEncoderLayer or nn.Sequential of them, whose output Contextual knows",
            got=f"{name} without {' and '.join(missing)}",
            fix="say where the positions are, as in axis=1 for (B, L, D), and how wide the output is, as in features=64",
        )
    if known is None:
        return SequenceForm(negative_axis, None, features)  # type: ignore[arg-type]
    if features is not None and features != known.output_features:
        raise InputError(
            f"{known.output_features} features, as this {name} has", got=f"features={features}", fix="leave features= out"
        )
    if axis is not None and negative_axis != known.axis and _fixed_axis(layer):
        raise InputError(f"the positions of this {name} on axis {known.axis}", got=f"axis={axis}", fix="leave axis= out")
    return known._replace(axis=known.axis if negative_axis is None else negative_axis)


def layer_name(layer: nn.Module) -> str:
    """The name of the layer in messages."""
    return f"nn.{type(layer).__name__}" if type(layer).__module__.startswith("torch.nn") else type(layer).__name__


def positions_second_last(tensor: Tensor, axis: int) -> Tensor:
    """Move a layer's dimensions to (..., L, D); a view."""
    return tensor.mT if axis == -1 else tensor.movedim(0, -2) if axis == 0 else tensor


def original_order(tensor: Tensor, axis: int) -> Tensor:
    """Move (..., L, D) back to the layer's order of dimensions; a view."""
    return tensor.mT if axis == -1 else tensor.movedim(-2, 0) if axis == 0 else tensor


def _recurrent(layer: Any) -> SequenceForm:
    width = (layer.proj_size or layer.hidden_size) * (2 if layer.bidirectional else 1)
    return SequenceForm(-2 if layer.batch_first else 0, layer.input_size, width)


def _transformer(layer: Any) -> SequenceForm:
    attention = layer.self_attn
    return SequenceForm(-2 if attention.batch_first else 0, attention.embed_dim, attention.embed_dim)


# _TABLE: the form of each kind of layer. A lazy layer has 0 input features until its first call.
_TABLE: dict[type, Callable[[Any], SequenceForm]] = {
    nn.RNNBase: _recurrent,
    nn.Linear: lambda layer: SequenceForm(-2, layer.in_features or None, layer.out_features),
    nn.Embedding: lambda layer: SequenceForm(-2, None, layer.embedding_dim),
    nn.Conv1d: lambda layer: SequenceForm(-1, layer.in_channels or None, layer.out_channels),
    nn.TransformerEncoderLayer: _transformer,
    nn.TransformerEncoder: lambda layer: _transformer(layer.layers[0]),
}


def _sequential(layer: nn.Sequential) -> SequenceForm | None:
    children = [child for child in layer if not isinstance(child, SAME)]
    for child in list(layer)[:-1]:
        if isinstance(child, nn.RNNBase):
            raise InputError(
                "a recurrent layer last in an nn.Sequential, since it returns its states beside its output",
                got=f"nn.{type(child).__name__} before another layer",
                fix="make two layers of it, or pick the output with a module between",
            )
    forms = [known_form(child) for child in children]
    if not forms or forms[-1] is None:
        return None
    fixed = [form.axis for child, form in zip(children, forms, strict=True) if form is not None and _fixed_axis(child)]
    if None not in forms and len(set(fixed)) > 1:
        raise InputError(
            "layers with their positions on one axis in an nn.Sequential",
            got=f"axes {fixed}",
            fix="use the same batch_first, or put a module that transposes between them",
        )
    return SequenceForm(
        fixed[-1] if fixed else -2, None if forms[0] is None else forms[0].input_features, forms[-1].output_features
    )


def _fixed_axis(layer: nn.Module) -> bool:
    """Whether the layer fixes the positions' axis; a linear layer works with any."""
    if isinstance(layer, nn.Sequential):
        return any(_fixed_axis(child) for child in layer)
    return not isinstance(layer, (nn.Linear, nn.Embedding, *SAME))
