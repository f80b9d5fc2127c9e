"""The recurrent form of self-attention: every hidden state goes on beside its context, [h_i, c_i]."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from overt.attention.masks import from_padding
from overt.attention.typing import BiasLike, LearnedScoreLike, LengthsLike, MaskLike, WindowLike
from overt.errors import InputError, KindError
from overt.layers.parts.padded_run import lengths_after, run
from overt.layers.parts.padding import checked_lengths, combined
from overt.layers.parts.sequence_form import Form, back, form_of, known_form, name_of, rows
from overt.layers.self_attention import SelfAttention

_TAKES_NO_PACKED = (nn.Linear, nn.Conv1d, nn.TransformerEncoderLayer, nn.TransformerEncoder)


class Contextual(nn.Module):
    """A layer and the context of each of its states: h_1 … h_n = layer(x), c_i = Σ_j a_ij h_j, a_ij = softmax_j f(h_i, h_j) → [h_i, c_i].

    The call and the return are the layer's own, twice as wide: an LSTM takes its (h_0, c_0) and returns its states unchanged beside the
    output, packed sequences come out packed, and a Conv1d keeps its order (B, C, L). So the next layer reads 2 × the width, and
    `features` says it. Layers that are known, and where their positions are, are the table of
    `overt.layers.parts.sequence_form`; for any other
    module that maps a sequence to a sequence say `axis=` (0 for (L, B, D), 1 for (B, L, D), 2 for (B, C, L)) and `features=`.


    `attention` is a name, "additive", "dot", "general", "concat", "cosine" or "gaussian" (what each learns:
    `overt.layers.parts.learned_scores`,
    without a value matrix, since c_i is a mixture of states), a score of your own, or a `SelfAttention`, taken as it is. For a decoder
    that must not look ahead: `causal=True`; `window` is `SelfAttention`'s.

    Beside the layer's own arguments the call takes `lengths` (B,), which excludes padding from layer and attention, so that each
    sequence gets what it would alone and zeros after its end; and `mask` and `bias` of the attention, against (B, n, n) whatever the
    layer's order. A Transformer layer's `src_key_padding_mask` holds for the attention too.

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
            raise KindError("Contextual wraps a torch.nn.Module", got=repr(layer), fix="make the layer: nn.LSTM(64, 128)")
        if features is None and isinstance(attention, SelfAttention) and known_form(layer) is None:
            features = attention.features
        self._inner = form_of(layer, axis, features)
        _refuse_lookahead(layer, causal)
        self.layer = layer
        self.attention = _attention(attention, self._inner.gives, name_of(layer), causal, window)

    @property
    def features(self) -> int:
        """The width of the output, [h_i, c_i]."""
        return 2 * self.attention.features

    @property
    def form(self) -> Form:
        """Where the positions of the output are, and how wide it reads and gives."""
        return self._inner._replace(gives=self.features)

    def forward(
        self,
        input: Any,
        *args: Any,
        lengths: LengthsLike | None = None,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        **kwargs: Any,
    ) -> Any:
        """What the layer returns, with [h_i, c_i] in the place of h_i."""
        self._check_width(input)
        mask = combined(mask, self._padding_mask(input, args, kwargs, lengths))
        if lengths is None:
            output = self.layer(input, *args, **kwargs)
        else:
            lengths = self._checked(lengths, input)
            output = run(self.layer, input, args, kwargs, lengths, self._inner.axis)
            lengths = lengths_after(self.layer, lengths)
        if isinstance(output, PackedSequence):
            return self._packed(output, mask, bias)
        if not isinstance(output, tuple):
            return self._joined(output, lengths, mask, bias)
        hidden, *states = output
        joined = (
            self._packed(hidden, mask, bias)
            if isinstance(hidden, PackedSequence)
            else self._joined(hidden, lengths, mask, bias)
        )
        return joined, *states

    def _joined(self, hidden: Any, lengths: Tensor | None, mask: Any, bias: Any) -> Tensor:
        axis, width = self._inner.axis, self.attention.features
        if not isinstance(hidden, Tensor) or hidden.ndim < 2 or rows(hidden, axis).shape[-1] != width:
            raise InputError(
                f"{name_of(self.layer)} gives a sequence of states of {width} features, its positions on axis {axis}",
                got=f"a tensor {tuple(hidden.shape)}" if isinstance(hidden, Tensor) else type(hidden).__name__,
                fix="say where its positions are with axis= and how wide it is with features=",
            )
        context = self.attention(rows(hidden, axis), lengths=lengths, mask=mask, bias=bias)
        return torch.cat([hidden, back(context, axis)], dim=-2 if axis == -1 else -1)

    def _packed(self, hidden: PackedSequence, mask: Any, bias: Any) -> PackedSequence:
        padded, lengths = pad_packed_sequence(hidden, batch_first=True)
        context = self.attention(padded, lengths=lengths, mask=mask, bias=bias)
        if hidden.sorted_indices is not None:
            context, lengths = context[hidden.sorted_indices], lengths[hidden.sorted_indices.cpu()]
        context = pack_padded_sequence(context, lengths, batch_first=True)
        return hidden._replace(data=torch.cat([hidden.data, context.data], dim=-1))

    def _check_width(self, given: Any) -> None:
        packed, reads = isinstance(given, PackedSequence), self._inner.reads
        states = given.data if packed else given
        if packed and isinstance(self.layer, _TAKES_NO_PACKED):
            raise KindError(
                f"{name_of(self.layer)} reads padded sequences",
                got="a PackedSequence",
                fix="pass pad_packed_sequence's output, and its lengths as lengths=",
            )
        if reads is None or not isinstance(states, Tensor):
            return
        if not states.is_floating_point():
            raise KindError(
                f"{name_of(self.layer)} reads floating-point numbers",
                got=f"a {states.dtype} tensor",
                fix="embed the tokens first: nn.Sequential(nn.Embedding(…), …)",
            )
        found = states.shape[-1] if packed or states.ndim < 2 else rows(states, self._inner.axis).shape[-1]
        if found != reads:
            raise InputError(
                f"this {name_of(self.layer)} reads {reads} features",
                got=f"{'packed data' if packed else 'an input'} {tuple(states.shape)}, which has {found}",
                fix=f"build it to read {found}; what a Contextual gives, [h, c], is twice its layer's width",
            )

    def _checked(self, lengths: Any, given: Any) -> Tensor:
        if isinstance(given, PackedSequence):
            raise InputError(
                "a packed sequence carries its own lengths", got="lengths= beside it", fix="leave lengths= out, or pad it"
            )
        states = rows(given, self._inner.axis) if given.is_floating_point() else given[..., None]
        lengths = checked_lengths(lengths, states)
        if lengths.ndim != 1:
            raise InputError(
                "lengths go with a batch, one a sequence, (B,)",
                got=f"lengths {tuple(lengths.shape)} and an input {tuple(given.shape)}",
                fix="cut a single sequence to its length: x[:length]",
            )
        return lengths

    def _padding_mask(self, given: Any, args: tuple, kwargs: dict[str, Any], lengths: Any) -> Any:
        """What a Transformer layer is told of padding, as a mask of ours."""
        if not isinstance(self.layer, nn.TransformerEncoderLayer | nn.TransformerEncoder):
            return None
        told = inspect.signature(self.layer.forward).bind(given, *args, **kwargs).arguments.get("src_key_padding_mask")
        if told is not None and lengths is not None:
            raise InputError("padding is told once", got="lengths= and src_key_padding_mask=", fix="leave one of them out")
        return None if told is None else from_padding(told)


def _attention(
    attention: SelfAttention | LearnedScoreLike, width: int, name: str, causal: bool, window: WindowLike
) -> SelfAttention:
    """The caller's own, or one of this width whose values are the states."""
    if not isinstance(attention, SelfAttention):
        return SelfAttention(width, attention, project_values=False, causal=causal, window=window)
    if causal or window is not None:
        raise InputError(
            "causal and window belong to the SelfAttention where one is given",
            got=f"causal={causal}, window={window}",
            fix="pass them to it: SelfAttention(features, causal=True)",
        )
    if attention.features != width:
        raise InputError(
            f"this {name} gives states of {width} features",
            got=f"SelfAttention({attention.features})",
            fix=f"build SelfAttention({width})",
        )
    return attention


def _refuse_lookahead(layer: nn.Module, causal: bool) -> None:
    if causal and any(isinstance(module, nn.RNNBase) and module.bidirectional for module in layer.modules()):
        raise InputError(
            "a causal attention needs states that have not seen what comes after them",
            got="causal=True over a bidirectional layer",
            fix="build the layer with bidirectional=False",
        )
