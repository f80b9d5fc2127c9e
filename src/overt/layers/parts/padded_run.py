"""Run a layer over padded sequences, so that padding does not change the output of any sequence."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from overt.errors import InputError
from overt.layers.parts.padding import zero_padding
from overt.layers.parts.sequence_form import SAME, SequenceForm, known_form, layer_name, original_order, positions_second_last


def run_padded(layer: nn.Module, input: Any, args: tuple[Any, ...], kwargs: dict[str, Any], lengths: Tensor, axis: int) -> Any:
    """The layer's output, with zeros at padding; `axis` is the positions' dimension.

    A recurrent layer runs packed, so its states are those at the end of each sequence; a convolution gets zeros, as its own padding
    has; a Transformer layer gets a padding mask; an nn.Sequential runs layer by layer; a layer that takes
    `lengths` gets them. Any other layer gets zeros at padding.
    """
    input = _zero_padding(input, lengths, axis)
    if isinstance(layer, nn.Sequential):
        return _sequential(layer, input, lengths, axis)
    if isinstance(layer, nn.RNNBase):
        output = _recurrent(layer, input, lengths, *args, **kwargs)
    elif isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerEncoder)):
        padding = _key_padding_mask(positions_second_last(input, axis), lengths)
        output = layer(input, *args, src_key_padding_mask=padding, **kwargs)
    elif "lengths" in inspect.signature(layer.forward).parameters:
        output = layer(input, *args, lengths=lengths, **kwargs)
    else:
        output = layer(input, *args, **kwargs)
    lengths = lengths_after(layer, lengths)
    if isinstance(output, tuple):
        return _zero_padding(output[0], lengths, axis), *output[1:]
    return _zero_padding(output, lengths, axis)


def lengths_after(layer: nn.Module, lengths: Tensor) -> Tensor:
    """The lengths of the layer's output; only convolutions change them."""
    if isinstance(layer, nn.Sequential):
        for child in layer:
            lengths = lengths_after(child, lengths)
        return lengths
    inner = getattr(layer, "layer", None)
    if isinstance(getattr(layer, "form", None), SequenceForm) and isinstance(inner, nn.Module):
        return lengths_after(inner, lengths)
    return _convolved_lengths(layer, lengths) if isinstance(layer, nn.Conv1d) else lengths


def _zero_padding(states: Any, lengths: Tensor, axis: int) -> Any:
    if not isinstance(states, Tensor) or not states.is_floating_point():
        return states
    return original_order(zero_padding(positions_second_last(states, axis), lengths), axis)


def _sequential(layer: nn.Sequential, states: Any, lengths: Tensor, axis: int) -> Any:
    for child in layer:
        if known_form(child) is None and not isinstance(child, SAME):
            raise InputError(
                "layers of an nn.Sequential whose padding can be excluded, with lengths=",
                got=layer_name(child),
                fix="wrap the layers one by one, or leave lengths= out and pass a mask=",
            )
        states = run_padded(child, states, (), {}, lengths, axis)
        lengths = lengths_after(child, lengths)
    return states


def _recurrent(layer: nn.RNNBase, input: Tensor, lengths: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
    """Run packed; a sequence of length 0 cannot be packed, so it runs one step, whose result is dropped."""
    first = layer.batch_first
    packed = pack_padded_sequence(input, lengths.clamp(min=1).cpu(), first, enforce_sorted=False)
    output, states = layer(packed, hx)
    hidden, _ = pad_packed_sequence(output, first, total_length=input.shape[1 if first else 0])
    if isinstance(states, tuple):
        initial = (None, None) if hx is None else hx
        return hidden, tuple(_initial_if_empty(state, start, lengths) for state, start in zip(states, initial, strict=True))
    return hidden, _initial_if_empty(states, hx, lengths)


def _initial_if_empty(state: Tensor, start: Tensor | None, lengths: Tensor) -> Tensor:
    """The last state, or the initial state of an empty sequence: (layers, B, H)."""
    return torch.where((lengths == 0)[:, None], 0 if start is None else start, state)


def _convolved_lengths(layer: nn.Conv1d, lengths: Tensor) -> Tensor:
    """The lengths after the convolution, by the formula of torch.nn.Conv1d's documentation."""
    if layer.padding_mode != "zeros":
        raise InputError(
            'padding_mode="zeros" in a convolution with lengths=, since its sequences end at different positions',
            got=f"padding_mode={layer.padding_mode!r}",
            fix='use padding_mode="zeros", or convolve the sequences one by one',
        )
    if layer.padding == "same":
        return lengths
    span = layer.dilation[0] * (layer.kernel_size[0] - 1) + 1
    padded = lengths if layer.padding == "valid" else lengths + 2 * int(layer.padding[0])
    positions = torch.div(padded - span, layer.stride[0], rounding_mode="floor") + 1
    # An empty sequence stays empty, even if the convolution has an output for its zeros.
    return torch.where(lengths == 0, 0, positions.clamp(min=0))


def _key_padding_mask(states: Tensor, lengths: Tensor) -> Tensor:
    """torch's key padding mask, True at padding; an empty sequence gets one position, since some kernels return NaN for none."""
    positions = torch.arange(states.shape[-2], device=states.device)
    return positions >= lengths.clamp(min=1)[:, None]  # (B, L)
