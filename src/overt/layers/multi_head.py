"""Multi-head attention: several attentions side by side, each in a subspace of its own."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.attention import check
from overt.attention.biases import ALiBi, RelativePositionBias
from overt.attention.masks import Lengths, Mask, as_mask
from overt.attention.mechanism import attend
from overt.attention.normalizers import Softmax
from overt.attention.scores import Dot
from overt.attention.trace import Steps, steps
from overt.attention.typing import BiasLike, LengthsLike, MaskLike, NormalizerLike, ScoreLike, WindowLike
from overt.errors import InputError, KindError
from overt.layers.cross_attention import Prepared
from overt.layers.kv_cache import KVCache, step_of
from overt.layers.parts import checks
from overt.layers.parts.bias_sum import sum_of
from overt.layers.parts.extra_keys import bias_with_extra, mask_with_extra, with_extra
from overt.layers.parts.heads import joined, lifted, split
from overt.layers.parts.padding import blanked, blanked_keys, checked_lengths, combined, lengths_mask, reach
from overt.layers.parts.registered import Held
from overt.layers.positions.base import Positions
from overt.layers.positions.named import named
from overt.layers.torch_interop import weights

NAME = "MultiHeadAttention"


class MultiHeadAttention(nn.Module):
    """H attentions side by side: head h asks W_Q^h x_i, is asked by W_K^h y_j, mixes W_V^h y_j; W_O joins what the heads give.

        head_h = attend(query · W_Q^h, key · W_K^h, value · W_V^h)        output = [head_1 … head_H] · W_O

    Vaswani et al. 2017, section 3.2.2. Each head is `head_width` wide, width / heads unless given. `kv_heads`, a divisor of `heads`,
    lets several query heads share one head of keys and values (Ainslie et al. 2023, section 2.2). `key_width` and `value_width`
    are those of what is asked, where it is not as wide as what asks; the value's is the key's unless given.

    `positions` is "rotary", "alibi", "sinusoidal" or "relative", or a module of `overt.layers`. Without it order has no influence.
    `causal` and `window` are `SelfAttention`'s; `score`, `normalizer` objects of overt, for every head; the tensors they hold are
    learned with the layer. `extra_key` and `zero_key` add a learned key and a key of zeros that every query may attend to (torch's
    add_bias_kv and add_zero_attn; `overt.layers.parts.extra_keys`). `dropout` zeroes weights, in training only. `bias` gives the four
    projections a bias, zero at first. Their matrices start as `nn.Transformer`'s: uniform as Glorot and Bengio 2010 have it
    (equation 16), and 1/√2 of that for query, key and value of one width. Larger ones hold back norms behind the sublayers.

    Shapes: query (..., Q, width), key (..., K, key_width), value (..., K, value_width) → (..., Q, width), batch first, or
    without a batch. Without a key the query asks itself; without a value the key is it. `mask` and `bias` broadcast against
    (..., H, Q, K); True in a mask means *may attend*. `lengths` (B,) excludes the keys' padding, and where the query asks itself
    its own, whose rows come out as zeros. Queries and keys are aligned at the end: the last of each stand at one place.
    With a `cache` (`KVCache`) the tokens of this call go on from those before, and K counts what it holds. A call that is refused
    leaves the cache as it was.

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
        reach(causal, window)
        self.width, self.heads, self.kv_heads = width, heads, _kv_heads(kv_heads, heads)
        self.head_width = _head_width(width, heads) if head_width is None else head_width
        self.key_width = width if key_width is None else key_width
        self.value_width = self.key_width if value_width is None else value_width
        self.causal, self.window, self.zero_key, self.dropout = causal, window, zero_key, dropout
        keys = self.kv_heads * self.head_width
        gain = 2**-0.5 if width == self.key_width == self.value_width else 1.0  # as if they were one matrix of three outputs
        self.query = _projection(width, heads * self.head_width, bias, gain)
        self.key = _projection(self.key_width, keys, bias, gain)
        self.value = _projection(self.value_width, keys, bias, gain)
        self.output = _projection(heads * self.head_width, width, bias)
        self.extra_key = nn.Parameter(torch.randn(keys) * keys**-0.5) if extra_key else None
        self.extra_value = nn.Parameter(torch.randn(keys) * keys**-0.5) if extra_key else None
        self.positions = named(positions, heads, self.head_width, width, causal) or Positions()
        self.score = Held(Dot() if score is None else _piece("score", score))
        self.normalizer = Held(Softmax() if normalizer is None else _piece("normalizer", normalizer))

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
        **others: Any,
    ) -> Tensor:
        """What each query gets from all heads: (..., Q, width)."""
        with step_of(cache):
            asked = self._asked(query, key, value, mask, bias, lengths, cache, **others)
            heads = attend(**asked.arguments)  # (..., H, Q, head_width)
        output = self.output(joined(heads))  # (..., Q, width)
        return blanked(output.squeeze(0) if asked.alone else output, asked.lengths)

    def steps(self, query: Tensor, key: Tensor | Prepared | None = None, value: Tensor | None = None, **options: Any) -> Steps:
        """Scores, masked scores and weights (..., H, Q, K) and what each head gives (..., H, Q, head_width), for people.

        The options are `forward`'s. The columns of `extra_key` and `zero_key` follow the K keys. A cache takes the step.
        """
        with step_of(options.get("cache")):
            asked = self._asked(query, key, value, **options)
            arguments = asked.arguments
            if asked.lengths is not None:  # padded queries attend to nothing, to extra keys neither
                own = Lengths(arguments["key"].shape[-2], asked.lengths)
                arguments["mask"] = combined(arguments["mask"], own)
            found = steps(**arguments)
        return Steps(*(each.squeeze(0) for each in found)) if asked.alone else found

    def weights(
        self, query: Tensor, key: Tensor | Prepared | None = None, value: Tensor | None = None, **options: Any
    ) -> Tensor:
        """What each query takes from each key, a head at a time: (..., H, Q, K), and from extra keys after them, as in `steps`."""
        return self.steps(query, key, value, **options).weights

    def prepare(self, key: Tensor, value: Tensor | None = None, *, lengths: Any = None) -> Prepared:
        """Keys and values (..., Hk, K, head_width) of another sequence, projected once for many calls `layer(query, prepared)`."""
        if type(self.positions) is not Positions or self.causal or self.window is not None:
            raise InputError(
                "prepared keys belong to another sequence, in which the queries to come have no place",
                got="a layer with positions, causal or window",
                fix="build the layer without them; a sequence's own keys are kept by cache=overt.layers.KVCache()",
            )
        value = key if value is None else value
        self._check_keys(key, value)
        lengths = None if lengths is None else checked_lengths(lengths, key)
        own = blanked(key, lengths)
        return self._prepared(own, own if value is key else blanked(value, lengths), None, lengths)

    @classmethod
    def from_torch(cls, layer: nn.MultiheadAttention) -> "MultiHeadAttention":
        """The same layer as torch's, with copies of its weights; always batch first, and every parameter learns.

        >>> theirs = nn.MultiheadAttention(16, 4, batch_first=True)
        >>> x = torch.randn(2, 5, 16)
        >>> torch.allclose(MultiHeadAttention.from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-6)
        True
        """
        made = cls(**weights.options(layer)).to(layer.out_proj.weight)
        made.load_state_dict(layer.state_dict())
        return made.train(layer.training)

    def to_torch(self) -> nn.MultiheadAttention:
        """The same layer as torch has it, batch first, with copies of the weights; an InputError where torch has no such layer."""
        return weights.torch_layer(self)

    def _load_from_state_dict(self, state_dict, prefix, *others):  # type: ignore[override]
        weights.rename_from_torch(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _asked(self, query, key=None, value=None, mask=None, bias=None, lengths=None, cache=None, **others) -> "_Asked":
        """The one call of attention that `forward` makes."""
        checks.refuse_torch_keywords(NAME, others)
        checks.states(NAME, "query", query, self.width, option="width")
        itself = key is None or key is query
        if isinstance(key, Prepared):
            _check_prepared(value, lengths, cache)
            dimensions = max(query.ndim, key.key.ndim - 1)
            checks.refuse_ambiguous(NAME, mask, bias, dimensions)
            asking, prepared, offset = split(self.query(query), self.heads), key, None
        else:
            key = query if key is None else key
            value = key if value is None else value
            self._check_keys(key, value)
            self._check_cache(cache, itself)
            dimensions = max(query.ndim, key.ndim, value.ndim)
            checks.refuse_ambiguous(NAME, mask, bias, dimensions)
            lengths = None if lengths is None else checked_lengths(lengths, key)
            barring = None if cache is not None else mask  # with a cache the mask is for all that it holds
            query, key, value = _without_padding(query, key, value, barring, lengths, dimensions - 1, itself)
            asking, prepared, offset = self._projected(query, key, value, lengths, cache)
        arguments = self._arguments(asking, prepared, mask, bias, offset)
        return _Asked(arguments, lengths if itself else None, dimensions == 2)

    def _projected(self, query, key, value, lengths, cache) -> tuple[Tensor, Prepared, Any]:
        """Queries, and the keys and values that they ask, all in heads; with a cache, the slot of query 0 among those."""
        told = type(self.positions) is not Positions  # without positions nobody asks where tokens stand
        places: Any
        places, key_places = _places(query, key, cache) if told else (None, None)
        asking = split(self.query(self.positions.inputs(query, places)), self.heads)  # (..., H, Q, D)
        asking = self.positions.heads(asking, places)
        prepared = self._prepared(key, value, key_places, lengths)
        if cache is None:
            return asking, prepared, None
        held = cache.extend(lifted(prepared.key), lifted(prepared.value), lengths)
        return asking, Prepared(held.key, held.value, held.lengths), held.offset

    def _prepared(self, key: Tensor, value: Tensor, places: Any, lengths: Tensor | None) -> Prepared:
        heads = split(self.key(self.positions.inputs(key, places)), self.kv_heads)  # (..., Hk, K, D)
        return Prepared(self.positions.heads(heads, places), split(self.value(value), self.kv_heads), lengths)

    def _arguments(self, asking: Tensor, prepared: Prepared, mask: Any, bias: Any, offset: Any) -> dict[str, Any]:
        """What `attend` is asked for; `offset` is the slot of query 0 among the keys, None where the last ones stand together."""
        mask = combined(mask, reach(self.causal, self.window))
        if offset is not None:
            mask = None if mask is None else as_mask(mask)
            mask = mask.with_offset(offset) if isinstance(mask, Mask) else mask
            bias = (
                replace(bias, offset=offset) if isinstance(bias, ALiBi | RelativePositionBias) and bias.offset is None else bias
            )
        mask = combined(mask, lengths_mask(prepared.lengths))
        bias = sum_of(self.positions.bias(offset), bias)
        extra = (self.extra_key is not None) + self.zero_key
        return {
            "query": lifted(asking),
            "key": with_extra(lifted(prepared.key), self.extra_key, self.zero_key),
            "value": with_extra(lifted(prepared.value), self.extra_value, self.zero_key),
            "score": self.score.now(),
            "mask": mask_with_extra(mask, extra),
            "bias": bias_with_extra(bias, extra),
            "normalizer": self.normalizer.now(),
            "dropout": self.dropout if self.training else 0.0,
        }

    def _check_keys(self, key: Any, value: Any) -> None:
        checks.states(NAME, "key", key, self.key_width, option="key_width")
        checks.states(NAME, "value", value, self.value_width, option="value_width")

    def _check_cache(self, cache: KVCache | None, itself: bool) -> None:
        if cache is None:
            return
        if not isinstance(cache, KVCache):
            raise KindError(
                "a cache is an overt.layers.KVCache, one a layer", got=type(cache).__name__, fix="make one: cache=KVCache()"
            )
        if not itself:
            raise InputError(
                "a cache goes on with the tokens that ask, so they are keys and values too",
                got="a key of another sequence beside cache=",
                fix="call layer(query, cache=cache), and project another sequence once: layer.prepare(key)",
            )
        before = self.window[0] if isinstance(self.window, tuple) else self.window
        if cache.window is not None and (before is None or cache.window <= before):
            raise InputError(
                "a cache keeps all that the layer's window sees",
                got=f"KVCache(window={cache.window}) for window={self.window}",
                fix="use KVCache()" if before is None else f"use KVCache(window={before + 1}), a token's own place included",
            )

    def extra_repr(self) -> str:
        """What it was built with."""
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
        given = [f"{name}={value}" for name, (value, usual) in options.items() if value != usual]
        return ", ".join([f"{self.width}, heads={self.heads}, head_width={self.head_width}", *given])


class _Asked(NamedTuple):
    """A call of attention, the lengths of its queries, and whether it came without a batch."""

    arguments: dict[str, Any]
    lengths: Tensor | None
    alone: bool


def torch_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of a model as it would be with torch's layers in the place of its `MultiHeadAttention`.

    The way back needs no function: `load_state_dict` takes torch's names as well.

    >>> list(torch_state_dict(nn.Sequential(MultiHeadAttention(4, 2, bias=False))))
    ['0.in_proj_weight', '0.out_proj.weight']
    """
    state = model.state_dict()
    for name, module in model.named_modules(remove_duplicate=False):  # a shared layer is saved under each of its names
        if isinstance(module, MultiHeadAttention):
            state = weights.renamed_for_torch(state, module, f"{name}." if name else "")
    return state


def _without_padding(query, key, value, mask, lengths, leading, itself) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values with zeros where nothing may see them, and no NaN where such a place asks: 0 · NaN would reach the weights."""
    seen = blanked_keys(blanked(key, lengths), mask, leading, heads=True)
    if seen is key:
        return query, key, value
    value = seen if value is key else blanked_keys(blanked(value, lengths), mask, leading, heads=True)
    if itself:  # padding asks as well, but what it gets is blanked; what a mask bars as a key may ask
        query = seen if mask is None else torch.where(query.isfinite(), query, seen)
    return query, seen, value


def _places(query: Tensor, key: Tensor, cache: KVCache | None) -> tuple[Tensor, Tensor]:
    """Where queries and keys stand: after what the cache has seen, or so that the last of each stand at one place."""
    queries, keys, device = query.shape[-2], key.shape[-2], query.device
    if cache is not None:
        places = cache.places(queries, device)
        return places, places
    later = keys - queries
    return torch.arange(queries, device=device) + max(later, 0), torch.arange(keys, device=device) + max(-later, 0)


def _check_prepared(value: Any, lengths: Any, cache: Any) -> None:
    if value is not None or lengths is not None or cache is not None:
        raise InputError(
            "prepared keys bring their values and lengths, and need no cache",
            got=", ".join(
                name for name, given in (("value", value), ("lengths", lengths), ("cache", cache)) if given is not None
            ),
            fix="pass them once: layer.prepare(key, value, lengths=lengths)",
        )


def _head_width(width: int, heads: int) -> int:
    if width % heads:
        raise InputError(
            "heads that share the width evenly divide it",
            got=f"width={width}, heads={heads}",
            fix=f"choose another number of heads, or say how wide each is: head_width={max(width // heads, 1)}",
        )
    return width // heads


def _kv_heads(kv_heads: int | None, heads: int) -> int:
    checks.widths(NAME, kv_heads=kv_heads)
    if kv_heads is not None and heads % kv_heads:
        raise InputError(
            "each key and value head serves as many query heads, so kv_heads divides heads",
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


def _piece(name: str, given: Any) -> Any:
    if not callable(given) or isinstance(given, type):
        raise KindError(
            f"a {name} of heads is an object, which all of them use",
            got=repr(given),
            fix=f"pass one of overt.{name}s, as in {'overt.Dot(scale=1.0)' if name == 'score' else 'overt.Sparsemax()'}",
        )
    return given
