"""Multi-head attention: several parallel attentions, each on its own projections of the inputs."""

from typing import Any

import torch
from torch import Tensor, nn

from overt.attention import check
from overt.attention.biases import sum_of
from overt.attention.kernels.call import as_normalizer, as_score
from overt.attention.masks import Lengths
from overt.attention.mechanism import attend
from overt.attention.normalizers import Softmax
from overt.attention.scores import Dot
from overt.attention.trace import Steps, steps
from overt.attention.typing import BiasLike, LengthsLike, MaskLike, NormalizerLike, Refused, ScoreLike, WindowLike
from overt.errors import InputError
from overt.layers.cross_attention import Prepared
from overt.layers.kv_cache import KVCache, check_cache, restored_on_error
from overt.layers.parts import checks
from overt.layers.parts.chunks import aligned, check_chunk
from overt.layers.parts.extra_keys import bias_with_extra, mask_with_extra, with_extra
from overt.layers.parts.heads import join_heads, split_heads, with_batch
from overt.layers.parts.padding import (
    checked_lengths,
    combine_masks,
    joint_batch,
    lengths_mask,
    window_mask,
    zero_masked_keys,
    zero_padding,
)
from overt.layers.parts.registered import RegisteredPiece
from overt.layers.positions.base import Positions
from overt.layers.positions.named import named
from overt.layers.torch_interop import weights

NAME = "MultiHeadAttention"


class MultiHeadAttention(nn.Module):
    """H parallel attentions, each on its own projections of query, key and value; an output projection joins them.

        head_h = attend(query · W_Q^h, key · W_K^h, value · W_V^h)        output = [head_1 … head_H] · W_O

    Vaswani et al. 2017, section 3.2.2. Each head is `head_width` wide, by default width / heads. `kv_heads`, a divisor of `heads`,
    lets several query heads share one head of keys and values (Ainslie et al. 2023, section 2.2). `key_width` and `value_width`
    are the widths of key and value if they are not `width`; by default the value is as wide as the key.

    `positions` is "rotary", "alibi", "sinusoidal" or "relative", or a module of `overt.layers`. Without it order has no influence.
    `causal` and `window` are `SelfAttention`'s; `score`, `normalizer` are `attend`'s, for every head; their tensors are
    learned with the layer. `extra_key` and `zero_key` add a learned key and a key of zeros that every query may attend to (torch's
    add_bias_kv and add_zero_attn; `overt.layers.parts.extra_keys`). `dropout` zeroes weights, in training only. `bias` gives the four
    projections a bias, zero at first. Their matrices start like `nn.Transformer`'s: uniform as in Glorot and Bengio 2010, equation 16,
    and 1/√2 of that for query, key and value of one width. Larger matrices slow down training with the norm after each sublayer.

    Shapes: query (..., Q, width), key (..., K, key_width), value (..., K, value_width) → (..., Q, width), batch first, or
    without a batch. The default of `key` is the query, that of `value` the key. `mask` and `bias` broadcast against
    (..., H, Q, K); True in a mask means *may attend*. `lengths` (B,) excludes the keys' padding, and in self-attention the
    padded queries too, whose rows of the output are zeros. The last query is aligned with the last key.
    With a `cache` (`KVCache`), one for each layer, the tokens of this call follow those of earlier calls, and K counts all tokens in the
    cache; several tokens that follow others need a causal layer or mask. A call that is refused leaves the cache unchanged.

    A query that may attend to nothing gets zeros from every head, so the output's bias. Raises InputError and KindError for inputs
    that do not fit, and for torch's keywords for masks, whose True means the opposite.

    >>> layer = MultiHeadAttention(512, heads=8, kv_heads=2, positions="rotary", causal=True)
    >>> x = torch.randn(2, 10, 512)
    >>> layer(x).shape, layer.weights(x).shape
    (torch.Size([2, 10, 512]), torch.Size([2, 8, 10, 10]))
    """

    def __init__(
        self,
        width: int,
        heads: int,
        key_width: int | None = None,
        value_width: int | None = None,
        kv_heads: int | None = None,
        positions: Any = None,
        *,
        head_width: int | None = None,
        bias: bool = True,
        causal: bool = False,
        window: WindowLike = None,
        extra_key: bool = False,
        zero_key: bool = False,
        score: ScoreLike | None = None,
        normalizer: NormalizerLike | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        checks.widths(NAME, width=width, heads=heads, key_width=key_width, value_width=value_width, head_width=head_width)
        check.probability("dropout", dropout)
        window_mask(causal, window)  # refuses an invalid window
        self.width = width
        self.heads = heads
        self.kv_heads: int = _kv_heads(kv_heads, heads)
        self.head_width: int = _head_width(width, heads) if head_width is None else head_width
        self.key_width: int = width if key_width is None else key_width
        self.value_width: int = self.key_width if value_width is None else value_width
        self.causal = causal
        self.window = window
        self.zero_key = zero_key
        self.dropout = dropout
        kv_width = self.kv_heads * self.head_width
        gain = 2**-0.5 if width == self.key_width == self.value_width else 1.0  # initialized as one matrix of width 3 · width
        self.query: nn.Linear = _projection(width, heads * self.head_width, bias, gain)
        self.key: nn.Linear = _projection(self.key_width, kv_width, bias, gain)
        self.value: nn.Linear = _projection(self.value_width, kv_width, bias, gain)
        self.output: nn.Linear = _projection(heads * self.head_width, width, bias)
        self.extra_key: nn.Parameter | None = nn.Parameter(torch.randn(kv_width) * kv_width**-0.5) if extra_key else None
        self.extra_value: nn.Parameter | None = nn.Parameter(torch.randn(kv_width) * kv_width**-0.5) if extra_key else None
        self.positions: Positions = named(positions, heads, self.head_width, width, causal) or Positions()
        self.score: RegisteredPiece = RegisteredPiece(Dot() if score is None else as_score(score))
        self.normalizer: RegisteredPiece = RegisteredPiece(Softmax() if normalizer is None else as_normalizer(normalizer))

    def forward(
        self,
        query: Tensor,
        key: Tensor | Prepared | None = None,
        value: Tensor | None = None,
        *,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        lengths: LengthsLike | None = None,
        cache: KVCache | None = None,
        **unknown: Refused,
    ) -> Tensor:
        """The output for each query: (..., Q, width)."""
        with restored_on_error(cache):
            step = mask is None and bias is None and lengths is None and self._steps(cache)
            arguments, query_lengths, batched = self._arguments(query, key, value, mask, bias, lengths, cache, step, **unknown)
            heads = arguments if isinstance(arguments, Tensor) else attend(**arguments)  # (..., H, Q, head_width)
        output = self.output(join_heads(heads))  # (..., Q, width)
        return zero_padding(output if batched else output.squeeze(0), query_lengths)

    def _arguments(
        self, query, key=None, value=None, mask=None, bias=None, lengths=None, cache=None, step=False, **unknown
    ) -> tuple[Any, Tensor | None, bool]:
        """The arguments of `attend`, or the output of the cache's `step`; the lengths of the queries; whether there is a batch."""
        checks.refuse_torch_keywords(NAME, unknown)
        query_is_key = key is None or key is query
        query, key, value, lengths, batched = self._checked(query, key, value, mask, bias, lengths, cache)

        if isinstance(key, Prepared):
            queries, (keys, values, key_lengths) = split_heads(self.query(query), self.heads), key
        else:
            query_positions, key_positions = self._positions(query, key, cache)
            queries = split_heads(self.query(self.positions.inputs(query, query_positions)), self.heads)  # (..., H, Q, D)
            queries = self.positions.heads(queries, query_positions)
            keys, values, key_lengths = self._projected(key, value, key_positions, lengths)  # (..., Hk, K, D)
        offset = None  # the slot of query 0 among the keys; None aligns the last query with the last key
        if cache is not None:
            if step and query.shape[-2] == 1:
                heads = cache.step(with_batch(queries), with_batch(keys), with_batch(values), self.score.current().scale)
                return heads, None, batched
            keys, values, offset, key_lengths, _ = cache.extend(with_batch(keys), with_batch(values), lengths)

        mask, bias = aligned(combine_masks(mask, window_mask(self.causal, self.window)), bias, offset)
        extra = (self.extra_key is not None) + self.zero_key
        arguments = {
            "query": with_batch(queries),
            "key": with_extra(with_batch(keys), self.extra_key, self.zero_key),
            "value": with_extra(with_batch(values), self.extra_value, self.zero_key),
            "score": self.score.current(),
            "mask": mask_with_extra(combine_masks(mask, lengths_mask(key_lengths)), extra),
            "bias": bias_with_extra(sum_of(self.positions.bias(offset), bias), extra),
            "normalizer": self.normalizer.current(),
            "dropout": self.dropout if self.training else 0.0,
        }
        return arguments, lengths if query_is_key else None, batched

    def _projected(self, key: Tensor, value: Tensor, positions: Any, lengths: Tensor | None) -> Prepared:
        heads = split_heads(self.key(self.positions.inputs(key, positions)), self.kv_heads)  # (..., Hk, K, D)
        return Prepared(self.positions.heads(heads, positions), split_heads(self.value(value), self.kv_heads), lengths)

    def _positions(self, query: Tensor, key: Tensor, cache: KVCache | None) -> tuple[Any, Any]:
        """Positions of queries and keys: after the cache's tokens, or with the last query at the last key's position."""
        if type(self.positions) is Positions:
            return None, None
        if cache is not None:
            positions = cache.positions(query.shape[-2], query.device)
            return positions, positions
        shift, device = key.shape[-2] - query.shape[-2], query.device
        positions = torch.arange(query.shape[-2], device=device) + max(shift, 0)
        return positions, torch.arange(key.shape[-2], device=device) + max(-shift, 0)

    def steps(self, query: Tensor, key: Tensor | Prepared | None = None, value: Tensor | None = None, **options: Any) -> Steps:
        """Scores, masked scores and weights (..., H, Q, K), and the output of each head (..., H, Q, head_width).

        The options are `forward`'s. The columns of `extra_key` and `zero_key` follow the K keys. A cache stores the tokens.
        """
        with restored_on_error(options.get("cache")):
            arguments, query_lengths, batched = self._arguments(query, key, value, **options)
            if query_lengths is not None:  # padded queries attend to nothing, not even to extra keys
                padding = Lengths(arguments["key"].shape[-2], query_lengths)
                arguments["mask"] = combine_masks(arguments["mask"], padding)
            result = steps(**arguments)
        return result if batched else Steps(*(tensor.squeeze(0) for tensor in result))

    def weights(
        self, query: Tensor, key: Tensor | Prepared | None = None, value: Tensor | None = None, **options: Any
    ) -> Tensor:
        """The weights of each head: (..., H, Q, K), with columns for extra keys after the K keys, as in `steps`."""
        return self.steps(query, key, value, **options).weights

    def prepare(self, key: Tensor, value: Tensor | None = None, *, lengths: LengthsLike | None = None) -> Prepared:
        """Keys and values (..., Hk, K, head_width) of another sequence, projected once for many calls `layer(query, prepared)`."""
        if type(self.positions) is not Positions or self.causal or self.window is not None:
            raise InputError(
                "a layer without positions, causal and window, since the queries are not in the sequence of prepared keys",
                got="a layer with one of them",
                fix="build the layer without them; in self-attention pass cache=overt.layers.KVCache() instead",
            )
        value = key if value is None else value
        self._check_keys(key, value)
        lengths = None if lengths is None else checked_lengths(lengths, key)
        zeroed = zero_padding(key, lengths)
        return self._projected(zeroed, zeroed if value is key else zero_padding(value, lengths), None, lengths)

    @classmethod
    def from_torch(cls, layer: nn.MultiheadAttention) -> "MultiHeadAttention":
        """Convert torch's layer, with copies of its weights; always batch first, and every parameter is trainable.

        >>> theirs = nn.MultiheadAttention(16, 4, batch_first=True)
        >>> x = torch.randn(2, 5, 16)
        >>> torch.allclose(MultiHeadAttention.from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-6)
        True
        """
        result = cls(**weights.options(layer)).to(layer.out_proj.weight)
        result.load_state_dict(layer.state_dict())
        return result.train(layer.training)

    def to_torch(self) -> nn.MultiheadAttention:
        """Convert to torch's layer, batch first, with copies of the weights; an InputError if torch has no such layer."""
        return weights.torch_layer(self)

    def _load_from_state_dict(self, state_dict, prefix, *others):  # type: ignore[override]
        weights.rename_from_torch(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _checked(self, query, key, value, mask, bias, lengths, cache) -> tuple[Any, Any, Any, Tensor | None, bool]:
        """Query, key and value with defaults filled in and zeros at padding; the lengths; whether there is a batch."""
        checks.states(NAME, "query", query, self.width, option="width")
        if isinstance(key, Prepared):
            _check_prepared(value, lengths, cache)
            dimensions = max(query.ndim, key.key.ndim - 1)
            checks.refuse_ambiguous(NAME, mask, bias, dimensions)
            return query, key, None, None, dimensions > 2
        query_is_key = key is None or key is query
        key = query if key is None else key
        value = key if value is None else value
        self._check_keys(key, value)
        if cache is not None:
            check_cache(cache, self, self.window, query_is_key)
            check_chunk(cache, query.shape[-2], self.causal, self.window, mask)
        dimensions = max(query.ndim, key.ndim, value.ndim)
        checks.refuse_ambiguous(NAME, mask, bias, dimensions)
        lengths = None if lengths is None else checked_lengths(lengths, key)
        if cache is not None:  # then the mask covers all keys of the cache, not only these
            mask = None
        # Otherwise NaN in a masked key would reach the gradients: 0 · NaN is NaN.
        batch = joint_batch(query, key, value)
        visible = zero_masked_keys(zero_padding(key, lengths), mask, batch, heads=True)
        if visible is not key:
            same = value is key
            value = visible if same else zero_masked_keys(zero_padding(value, lengths), mask, batch, heads=True)
            if query_is_key:  # a masked key is still a query, so only its non-finite numbers become zero
                query = visible if mask is None else torch.where(query.isfinite(), query, visible)
        return query, visible, value, lengths, dimensions > 2

    def _check_keys(self, key: Any, value: Any) -> None:
        checks.states(NAME, "key", key, self.key_width, option="key_width")
        checks.states(NAME, "value", value, self.value_width, option="value_width")

    def _steps(self, cache: KVCache | None) -> bool:
        """Whether a token attends plainly to all of a rounded cache: a dot product under a softmax, without other options."""
        if (
            not isinstance(cache, KVCache)
            or cache.store != "int8"
            or self.window is not None
            or self.extra_key is not None
            or self.zero_key
        ):
            return False
        score, softmax = self.score.current(), self.normalizer.current()
        dropped = self.training and self.dropout > 0
        plain = type(score) is Dot and score.softcap is None and not isinstance(score.scale, Tensor)
        plain = plain and type(softmax) is Softmax and softmax.sink is None and not isinstance(softmax.temperature, Tensor)
        plain = plain and softmax.temperature == 1
        return bool(plain) and not dropped and self.positions.bias(None) is None

    def extra_repr(self) -> str:
        """The non-default options."""
        options = {
            "key_width": (self.key_width, self.width),
            "value_width": (self.value_width, self.key_width),
            "kv_heads": (self.kv_heads, self.heads),
            "causal": (self.causal, False),
            "window": (self.window, None),
            "extra_key": (self.extra_key is not None, False),
            "zero_key": (self.zero_key, False),
            "dropout": (self.dropout, 0.0),
        }
        changed = [f"{name}={value}" for name, (value, default) in options.items() if value != default]
        return ", ".join([f"{self.width}, heads={self.heads}, head_width={self.head_width}", *changed])


def torch_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of a model with torch's layers in place of its `MultiHeadAttention`.

    `load_state_dict` converts back: it also accepts torch's names.

    >>> list(torch_state_dict(nn.Sequential(MultiHeadAttention(4, 2, bias=False))))
    ['0.in_proj_weight', '0.out_proj.weight']
    """
    state = model.state_dict()
    for name, module in model.named_modules(remove_duplicate=False):  # a shared layer is saved under all its names
        if isinstance(module, MultiHeadAttention):
            state = weights.renamed_for_torch(state, module, f"{name}." if name else "")
    return state


def _check_prepared(value: Any, lengths: Any, cache: Any) -> None:
    arguments = {"value": value, "lengths": lengths, "cache": cache}
    present = [name for name, argument in arguments.items() if argument is not None]
    if present:
        raise InputError(
            "prepared keys alone: they have their values and lengths, and need no cache",
            got=", ".join(present) + " beside them",
            fix="pass value and lengths to layer.prepare(key, value, lengths=lengths)",
        )


def _head_width(width: int, heads: int) -> int:
    if width % heads:
        raise InputError(
            "heads that divide the width evenly",
            got=f"width={width}, heads={heads}",
            fix=f"choose another number of heads, or say how wide each is: head_width={max(width // heads, 1)}",
        )
    return width // heads


def _kv_heads(kv_heads: int | None, heads: int) -> int:
    checks.widths(NAME, kv_heads=kv_heads)
    if kv_heads is not None and heads % kv_heads:
        raise InputError(
            "kv_heads to divide heads, so that each serves the same number of query heads",
            got=f"heads={heads}, kv_heads={kv_heads}",
            fix=f"choose one of {', '.join(str(number) for number in range(1, heads + 1) if heads % number == 0)}",
        )
    return heads if kv_heads is None else kv_heads


def _projection(features: int, width: int, bias: bool, gain: float = 1.0) -> nn.Linear:
    linear = nn.Linear(features, width, bias=bias)
    nn.init.xavier_uniform_(linear.weight, gain)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
