"""Run a layer over padded sequences as if each came alone: what padding holds, and how much of it there is, changes nothing."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from overt.errors import InputError
from overt.layers.parts.padding import blanked
from overt.layers.parts.sequence_form import SAME, Form, back, known_form, name_of, rows


def run(layer: nn.Module, given: Any, args: tuple, kwargs: dict[str, Any], lengths: Tensor, axis: int) -> Any:
    """The layer's output, with zeros at padding; `axis` is where the positions are.

    A recurrent layer runs packed, so its states are those at each sequence's own end; a convolution sees the zeros that it would
    pad with; a Transformer layer gets its padding mask; an nn.Sequential runs so layer by layer; a layer that takes
    `lengths` gets them. Any other layer gets zeros where there is padding.
    """
    given = _blank(given, lengths, axis)
    if isinstance(layer, nn.Sequential):
        return _sequential(layer, given, lengths, axis)
    if isinstance(layer, nn.RNNBase):
        output = _recurrent(layer, given, lengths, *args, **kwargs)
    elif isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerEncoder):
        padding = _padding(rows(given, axis), lengths)
        output = layer(given, *args, src_key_padding_mask=padding, **kwargs)
    elif "lengths" in inspect.signature(layer.forward).parameters:
        output = layer(given, *args, lengths=lengths, **kwargs)
    else:
        output = layer(given, *args, **kwargs)
    left = lengths_after(layer, lengths)
    return (_blank(output[0], left, axis), *output[1:]) if isinstance(output, tuple) else _blank(output, left, axis)


def lengths_after(layer: nn.Module, lengths: Tensor) -> Tensor:
    """How many positions the layer leaves of each sequence; only convolutions change it."""
    if isinstance(layer, nn.Sequential):
        for child in layer:
            lengths = lengths_after(child, lengths)
        return lengths
    inner = getattr(layer, "layer", None)
    if isinstance(getattr(layer, "form", None), Form) and isinstance(inner, nn.Module):
        return lengths_after(inner, lengths)
    return _convolved(layer, lengths) if isinstance(layer, nn.Conv1d) else lengths


def _blank(states: Any, lengths: Tensor, axis: int) -> Any:
    if not isinstance(states, Tensor) or not states.is_floating_point():
        return states
    return back(blanked(rows(states, axis), lengths), axis)


def _sequential(layer: nn.Sequential, given: Any, lengths: Tensor, axis: int) -> Any:
    for child in layer:
        if known_form(child) is None and not isinstance(child, SAME):
            raise InputError(
                "with lengths each layer of an nn.Sequential is one whose padding can be kept apart",
                got=name_of(child),
                fix="wrap the layers one by one, or leave lengths= out and pass a mask=",
            )
        given = run(child, given, (), {}, lengths, axis)
        lengths = lengths_after(child, lengths)
    return given


def _recurrent(layer: nn.RNNBase, given: Tensor, lengths: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
    """Packed; a sequence of length 0, which cannot be packed, takes a step that is then forgotten."""
    first = layer.batch_first
    packed = pack_padded_sequence(given, lengths.clamp(min=1).cpu(), first, enforce_sorted=False)
    output, states = layer(packed, hx)
    hidden, _ = pad_packed_sequence(output, first, total_length=given.shape[1 if first else 0])
    if isinstance(states, tuple):
        initial = (None, None) if hx is None else hx
        return hidden, tuple(_unmoved(state, start, lengths) for state, start in zip(states, initial, strict=True))
    return hidden, _unmoved(states, hx, lengths)


def _unmoved(state: Tensor, start: Tensor | None, lengths: Tensor) -> Tensor:
    """The last state, or the initial one where there was no step: (layers, B, H)."""
    return torch.where((lengths == 0)[:, None], 0 if start is None else start, state)


def _convolved(layer: nn.Conv1d, lengths: Tensor) -> Tensor:
    """What torch.nn.Conv1d's own formula for the length L' says of each sequence."""
    if layer.padding_mode != "zeros":
        raise InputError(
            "with lengths a convolution pads with zeros, since its sequences end at different places",
            got=f"padding_mode={layer.padding_mode!r}",
            fix='use padding_mode="zeros", or convolve the sequences one by one',
        )
    if layer.padding == "same":
        return lengths
    reach = layer.dilation[0] * (layer.kernel_size[0] - 1) + 1
    padded = lengths if layer.padding == "valid" else lengths + 2 * int(layer.padding[0])
    left = torch.div(padded - reach, layer.stride[0], rounding_mode="floor") + 1
    # A sequence of length 0 has no positions, whatever a convolution would make of the zeros around it.
    return torch.where(lengths == 0, 0, left.clamp(min=0))


def _padding(states: Tensor, lengths: Tensor) -> Tensor:
    """torch's key padding mask, True at padding; of an empty sequence one position stays: some kernels make it NaN."""
    positions = torch.arange(states.shape[-2], device=states.device)
    return positions >= lengths.clamp(min=1)[:, None]  # (B, L)
