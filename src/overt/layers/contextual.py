"""Self-attention after a layer, such as a recurrent one: each hidden state with its context, [h_i, c_i]."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from overt.attention.masks import from_padding
from overt.attention.typing import BiasLike, LearnedScoreLike, LengthsLike, MaskLike, WindowLike
from overt.errors import InputError, KindError
from overt.layers.parts.padded_run import lengths_after, run_padded
from overt.layers.parts.padding import checked_lengths, combine_masks
from overt.layers.parts.sequence_form import (
    SequenceForm,
    known_form,
    layer_name,
    original_order,
    positions_second_last,
    required_form,
)
from overt.layers.self_attention import SelfAttention

_TAKES_NO_PACKED = (nn.Linear, nn.Conv1d, nn.TransformerEncoderLayer, nn.TransformerEncoder)


class Contextual(nn.Module):
    """A layer and the context of each of its states: h_1 … h_n = layer(x), c_i = Σ_j a_ij h_j, a_ij = softmax_j f(h_i, h_j) → [h_i, c_i].

    It is called like the layer, and returns the same with an output of twice the width: an LSTM takes its (h_0, c_0) and returns its
    states unchanged with the output, packed sequences come out packed, and a Conv1d keeps its order (B, C, L). So the next layer reads
    2 × the width, which is `features`. The table of `overt.layers.parts.sequence_form` lists the known layers and the axes of their
    positions; for any other module that maps a sequence to a sequence pass `axis=` (0 for (L, B, D), 1 for (B, L, D), 2 for (B, C, L))
    and `features=`.

    `attention` is a name, "additive", "dot", "general", "concat", "cosine" or "gaussian" (what each learns:
    `overt.layers.parts.learned_scores`, without a value matrix, since c_i is a mixture of states), a score object, or a
    `SelfAttention`, used unchanged. In a decoder use `causal=True`, which excludes later positions; `window` is `SelfAttention`'s.

    In addition to the layer's arguments the call takes `lengths` (B,), which excludes padding from layer and attention, so that each
    sequence has the output that it has without the others, and zeros after its end; and the attention's `mask` and `bias`, against
    (B, n, n) for any order of the layer. A Transformer layer's `src_key_padding_mask` also masks the attention.

    >>> import torch
    >>> layer = Contextual(nn.LSTM(64, 128, batch_first=True), "additive")
    >>> output, (h_n, c_n) = layer(torch.randn(2, 10, 64))
    >>> output.shape, h_n.shape, layer.features
    (torch.Size([2, 10, 256]), torch.Size([1, 2, 128]), 256)
    """

    def __init__(
        self,
        layer: nn.Module,
        attention: SelfAttention | LearnedScoreLike,
        *,
        features: int | None = None,
        axis: int | None = None,
        causal: bool = False,
        window: WindowLike = None,
    ):
        super().__init__()
        if not isinstance(layer, nn.Module):
            raise KindError("a torch.nn.Module in Contextual", got=repr(layer), fix="make the layer: nn.LSTM(64, 128)")
        if features is None and isinstance(attention, SelfAttention) and known_form(layer) is None:
            features = attention.features
        self._inner = required_form(layer, axis, features)
        _refuse_bidirectional(layer, causal)
        self.layer = layer
        self.attention: SelfAttention = _attention(attention, self._inner.output_features, layer_name(layer), causal, window)

    @property
    def features(self) -> int:
        """The width of the output, [h_i, c_i]."""
        return 2 * self.attention.features

    @property
    def form(self) -> SequenceForm:
        """The axis of the positions, and the widths of input and output."""
        return self._inner._replace(output_features=self.features)

    def forward(
        self,
        input: Any,
        *args: Any,
        lengths: LengthsLike | None = None,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        **kwargs: Any,
    ) -> Any:
        """The result of the layer, with [h_i, c_i] instead of h_i."""
        self._check_width(input)
        mask = combine_masks(mask, self._padding_mask(input, args, kwargs, lengths))
        if lengths is None:
            output = self.layer(input, *args, **kwargs)
        else:
            lengths = self._checked_lengths(lengths, input)
            output = run_padded(self.layer, input, args, kwargs, lengths, self._inner.axis)
            lengths = lengths_after(self.layer, lengths)
        if isinstance(output, PackedSequence):
            return self._packed(output, mask, bias)
        if not isinstance(output, tuple):
            return self._joined(output, lengths, mask, bias)
        hidden, *states = output
        if isinstance(hidden, PackedSequence):
            return self._packed(hidden, mask, bias), *states
        return self._joined(hidden, lengths, mask, bias), *states

    def _joined(self, hidden: Any, lengths: Tensor | None, mask: Any, bias: Any) -> Tensor:
        axis, width = self._inner.axis, self.attention.features
        if not isinstance(hidden, Tensor) or hidden.ndim < 2 or positions_second_last(hidden, axis).shape[-1] != width:
            raise InputError(
                f"states of {width} features from {layer_name(self.layer)}, with the positions on axis {axis}",
                got=f"a tensor {tuple(hidden.shape)}" if isinstance(hidden, Tensor) else type(hidden).__name__,
                fix="say on which axis the positions are with axis=, and how many features there are with features=",
            )
        context = self.attention(positions_second_last(hidden, axis), lengths=lengths, mask=mask, bias=bias)
        return torch.cat([hidden, original_order(context, axis)], dim=-2 if axis == -1 else -1)

    def _packed(self, hidden: PackedSequence, mask: Any, bias: Any) -> PackedSequence:
        padded, lengths = pad_packed_sequence(hidden, batch_first=True)
        context = self.attention(padded, lengths=lengths, mask=mask, bias=bias)
        if hidden.sorted_indices is not None:
            context, lengths = context[hidden.sorted_indices], lengths[hidden.sorted_indices.cpu()]
        context = pack_padded_sequence(context, lengths, batch_first=True)
        return hidden._replace(data=torch.cat([hidden.data, context.data], dim=-1))

    def _check_width(self, input: Any) -> None:
        packed, expected = isinstance(input, PackedSequence), self._inner.input_features
        states = input.data if packed else input
        if packed and isinstance(self.layer, _TAKES_NO_PACKED):
            raise KindError(
                f"padded sequences for {layer_name(self.layer)}",
                got="a PackedSequence",
                fix="pass pad_packed_sequence's output, and its lengths as lengths=",
            )
        if expected is None or not isinstance(states, Tensor):
            return
        if not states.is_floating_point():
            raise KindError(
                f"floating-point numbers for {layer_name(self.layer)}",
                got=f"a {states.dtype} tensor",
                fix="embed the tokens first: nn.Sequential(nn.Embedding(…), …)",
            )
        features = states.shape[-1] if packed or states.ndim < 2 else positions_second_last(states, self._inner.axis).shape[-1]
        if features != expected:
            raise InputError(
                f"{expected} features for this {layer_name(self.layer)}",
                got=f"{'packed data' if packed else 'an input'} {tuple(states.shape)}, which has {features}",
                fix=f"build it for {features} features; the output [h, c] of a Contextual is twice as wide as its layer's",
            )

    def _checked_lengths(self, lengths: Any, input: Any) -> Tensor:
        if isinstance(input, PackedSequence):
            raise InputError(
                "a packed sequence alone, since it has its lengths",
                got="lengths= beside it",
                fix="leave lengths= out, or pad it",
            )
        states = positions_second_last(input, self._inner.axis) if input.is_floating_point() else input[..., None]
        lengths = checked_lengths(lengths, states)
        if lengths.ndim != 1:
            raise InputError(
                "lengths (B,) beside a batch, one for each sequence",
                got=f"lengths {tuple(lengths.shape)} and an input {tuple(input.shape)}",
                fix="cut a single sequence to its length: x[:length]",
            )
        return lengths

    def _padding_mask(self, input: Any, args: tuple[Any, ...], kwargs: dict[str, Any], lengths: Any) -> Any:
        """Convert a Transformer layer's `src_key_padding_mask` to a mask of overt."""
        if not isinstance(self.layer, (nn.TransformerEncoderLayer, nn.TransformerEncoder)):
            return None
        padding = inspect.signature(self.layer.forward).bind(input, *args, **kwargs).arguments.get("src_key_padding_mask")
        if padding is not None and lengths is not None:
            raise InputError(
                "either lengths= or src_key_padding_mask=, since both say what is padding",
                got="both",
                fix="leave one of them out",
            )
        return None if padding is None else from_padding(padding)


def _attention(
    attention: SelfAttention | LearnedScoreLike, width: int, name: str, causal: bool, window: WindowLike
) -> SelfAttention:
    """The caller's layer, or a new one of this width whose values are the states."""
    if not isinstance(attention, SelfAttention):
        return SelfAttention(width, attention, project_values=False, causal=causal, window=window)
    if causal or window is not None:
        raise InputError(
            "causal and window in the SelfAttention itself",
            got=f"causal={causal}, window={window}",
            fix="pass them to it: SelfAttention(features, causal=True)",
        )
    if attention.features != width:
        raise InputError(
            f"a SelfAttention for {width} features, the width of the states of this {name}",
            got=f"SelfAttention({attention.features})",
            fix=f"build SelfAttention({width})",
        )
    return attention


def _refuse_bidirectional(layer: nn.Module, causal: bool) -> None:
    if causal and any(isinstance(module, nn.RNNBase) and module.bidirectional for module in layer.modules()):
        raise InputError(
            "states that depend on no later position, as a causal attention needs them",
            got="causal=True over a bidirectional layer",
            fix="build the layer with bidirectional=False",
        )
