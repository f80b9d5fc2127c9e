"""The parts of a Transformer: embeddings, its two kinds of layers, and the memory of decoding.

    encoder layer: self-attention → feed-forward                    decoder layer: self-attention → cross-attention → feed-forward

Each sublayer has a residual connection (`Residual`), so a layer only adds to its input.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from overt.attention import check
from overt.attention.typing import MaskLike
from overt.errors import InputError
from overt.layers import KVCache, LearnedPositions, MultiHeadAttention, Prepared, Sinusoidal
from overt.layers.parts.checks import widths
from overt.models.config import TransformerConfig
from overt.models.dropout import Dropout

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}
NORMS = ("pre", "post")


class TokenEmbedding(nn.Module):
    """Words as vectors with their positions: √width · table[token] + P_position, then dropout.

    Vaswani et al. 2017, sections 3.4 and 3.5. The table starts as normal numbers of standard deviation 1/√width, so that the embeddings
    have 1, and the same table can score words at the output. `positions` "sinusoidal" or "learned" (up to `longest`) are added
    here; None and other positions have no effect.

    Shapes: tokens (B, n) whole numbers → (B, n, width); positions (n,) or (B, n), by default 0 to n − 1.

    >>> TokenEmbedding(100, 16)(torch.tensor([[1, 7, 2]])).shape
    torch.Size([1, 3, 16])
    """

    def __init__(self, words: int, width: int, positions: str | None = "sinusoidal", dropout: float = 0.0, longest: int = 512):
        super().__init__()
        widths("TokenEmbedding", words=words, width=width, longest=longest)
        self.table: nn.Embedding = nn.Embedding(words, width)
        nn.init.normal_(self.table.weight, std=width**-0.5)
        self.positions: Sinusoidal | LearnedPositions | None = Sinusoidal(width) if positions == "sinusoidal" else None
        self.positions = LearnedPositions(longest, width) if positions == "learned" else self.positions
        self.dropout: Dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """The vector of each token: (B, n, width)."""
        x = self.table(tokens) * self.table.embedding_dim**0.5  # (B, n, width)
        return self.dropout(x if self.positions is None else self.positions(x, positions))


class Residual(nn.Module):
    """A sublayer f with its residual connection: x + dropout(f(norm(x))), or with "post" norm(x + dropout(f(x))).

    "post" is Vaswani et al. 2017, section 5.4. With "pre" the residual path has no norm, so deep stacks train
    without a careful warm-up (Xiong et al. 2020, section 3).

    >>> around = Residual(4, norm="pre")
    >>> torch.equal(around(torch.ones(2, 4), torch.zeros_like), torch.ones(2, 4))
    True
    """

    def __init__(self, width: int, norm: str = "pre", dropout: float = 0.0):
        super().__init__()
        check.choice("norm", norm, NORMS)
        self.first: bool = norm == "pre"
        self.norm: nn.LayerNorm = nn.LayerNorm(width)
        self.dropout: Dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x plus the output of the sublayer, with the norm before or after."""
        if self.first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class FeedForward(nn.Module):
    """Two linear layers with an activation between, the same at every position: W_2 act(W_1 x + b_1) + b_2.

    Vaswani et al. 2017, section 3.3. `activation` is "relu", "gelu" or "silu".

    >>> FeedForward(16, 64)(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, hidden: int, activation: str = "relu"):
        super().__init__()
        widths("FeedForward", width=width, feed_forward=hidden)
        check.choice("activation", activation, ACTIVATIONS)
        self.widen: nn.Linear = nn.Linear(width, hidden)
        self.activation: nn.Module = ACTIVATIONS[activation]()
        self.narrow: nn.Linear = nn.Linear(hidden, width)
        for linear in (self.widen, self.narrow):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) → (..., width)."""
        return self.narrow(self.activation(self.widen(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward layer, each in a residual. With `causal` no position attends to later ones.

    Vaswani et al. 2017, section 3.1.

    Shapes: x (B, n, width) → the same; lengths (B,). With a `cache` the n tokens follow the cached ones. A `mask` excludes further keys.

    >>> layer = EncoderLayer(TransformerConfig(width=16, heads=2, feed_forward=32))
    >>> layer(torch.randn(2, 5, 16), lengths=torch.tensor([5, 3])).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, config: TransformerConfig, causal: bool = False):
        super().__init__()
        self.attention: MultiHeadAttention = MultiHeadAttention(
            config.width,
            config.heads,
            kv_heads=config.kv_heads,
            positions=config.attention_positions,
            causal=causal,
            dropout=config.attention_dropout,
        )
        self.feed_forward: FeedForward = FeedForward(config.width, config.feed_forward, config.activation)
        self.around_attention: Residual = Residual(config.width, config.norm, config.dropout)
        self.around_feed_forward: Residual = Residual(config.width, config.norm, config.dropout)

    def forward(
        self, x: Tensor, *, lengths: Tensor | None = None, cache: KVCache | None = None, mask: MaskLike | None = None
    ) -> Tensor:
        """The states of the next layer: (B, n, width)."""
        x = self.around_attention(x, lambda x: self.attention(x, mask=mask, lengths=lengths, cache=cache))
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to an encoder's states, then the feed-forward layer, each in a residual.

    Vaswani et al. 2017, section 3.1. `positions` act only in the self-attention: the source is another sequence.

    Shapes: x (B, n, width), the source `cross_attention.prepare(states, lengths=…)` → (B, n, width). With a `cache` the n tokens
    follow the cached ones.

    >>> layer = DecoderLayer(TransformerConfig(width=16, heads=2, feed_forward=32))
    >>> source = layer.cross_attention.prepare(torch.randn(2, 7, 16))
    >>> layer(torch.randn(2, 5, 16), source).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        width, heads, dropout = config.width, config.heads, config.attention_dropout
        self.self_attention: MultiHeadAttention = MultiHeadAttention(
            width, heads, kv_heads=config.kv_heads, positions=config.attention_positions, causal=True, dropout=dropout
        )
        self.cross_attention: MultiHeadAttention = MultiHeadAttention(width, heads, kv_heads=config.kv_heads, dropout=dropout)
        self.feed_forward: FeedForward = FeedForward(width, config.feed_forward, config.activation)
        self.around_self_attention: Residual = Residual(width, config.norm, config.dropout)
        self.around_cross_attention: Residual = Residual(width, config.norm, config.dropout)
        self.around_feed_forward: Residual = Residual(width, config.norm, config.dropout)

    def forward(self, x: Tensor, source: Prepared, *, cache: KVCache | None = None) -> Tensor:
        """The states of the next layer: (B, n, width)."""
        x = self.around_self_attention(x, lambda x: self.self_attention(x, cache=cache))
        x = self.around_cross_attention(x, lambda x: self.cross_attention(x, source))
        return self.around_feed_forward(x, self.feed_forward)


class TransformerMemory:
    """The state of decoding: a cache of earlier tokens for each layer, and the source, if any, as each layer's keys and values.

    Row i decodes for sentence `sentences[i]` of the sentences that the model's `start` read.

    >>> memory = TransformerMemory(rows=2, layers=1)
    >>> memory.reorder([1, 1, 0])
    >>> memory.sentences
    [1, 1, 0]
    """

    def __init__(self, rows: int, layers: int, source: Sequence[Prepared] = ()):
        self.sentences: list[int] = list(range(rows))
        self.caches: list[KVCache] = [KVCache() for _ in range(layers)]
        self.source: list[Prepared] = list(source)

    def reorder(self, indices: Tensor | Sequence[int]) -> None:
        """Replace row i by a copy of row indices[i]; the number of rows may change."""
        indices = torch.as_tensor(indices)
        for cache in self.caches:
            if cache.lengths.numel():
                cache.reorder(indices)
        sentences = [self.sentences[index] for index in indices.tolist()]
        # The beams of a sentence share its source, so it is copied only if the sentences of rows change.
        if sentences != self.sentences:
            self.source = [_rows(prepared, indices) for prepared in self.source]
            self.sentences = sentences


def _rows(prepared: Prepared, indices: Tensor) -> Prepared:
    indices = indices.to(prepared.key.device)
    lengths = None if prepared.lengths is None else prepared.lengths[indices]
    return Prepared(prepared.key.index_select(0, indices), prepared.value.index_select(0, indices), lengths)


def tie(output: nn.Linear, source: TokenEmbedding, target: TokenEmbedding, tied: str | None) -> None:
    """Share one matrix between the scores and the target's embedding ("target"), also the source's ("all"), or share none (None).

    Press and Wolf 2017, section 3; Vaswani et al. 2017, section 3.4.
    """
    check.choice("tied", tied, ("all", "target", None))
    source_words, target_words = source.table.num_embeddings, target.table.num_embeddings
    if tied == "all" and source_words != target_words:
        raise InputError(
            "one vocabulary for both languages, for one matrix of source, target and output",
            got=f"source_words={source_words}, target_words={target_words}",
            fix='use joint tokens, or tied="target"',
        )
    if tied is not None:
        output.weight = target.table.weight
    if tied == "all":
        source.table.weight = target.table.weight
