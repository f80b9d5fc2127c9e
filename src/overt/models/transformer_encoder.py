"""The encoder of a Transformer: from words to a vector for each word in its context."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from overt.attention.masks import Documents
from overt.layers import KVCache
from overt.layers.parts.checks import widths
from overt.models.config import TransformerConfig, constructor_arguments
from overt.models.tokens import checked_documents, checked_tokens, needed_lengths, positions_in
from overt.models.transformer_layers import EncoderLayer, TokenEmbedding


class TransformerEncoder(nn.Module):
    """Token embeddings, then layers of self-attention and feed-forward, one on the other.

        x_0 = embedding(tokens)        x_l = layer_l(x_(l−1))        states = norm(x_L), with norm="post" x_L

    Vaswani et al. 2017, section 3.1. `positions` are "sinusoidal", "learned" (up to `longest`), "rotary", "alibi", "relative" or
    None; `kv_heads`, a divisor of `heads`, is the number of heads of keys and values. With `causal` each position attends only to
    itself and earlier ones: the body of a language model.

    Shapes: tokens (B, n) whole numbers from 0 to words − 1, lengths (B,) → states (B, n, width). Tokens beyond a length are
    padding, to which no other position attends. A row may have several consecutive texts: `documents` (B, n) are the ids
    of their texts, and the states of each are those without the others. Raises InputError and KindError for invalid tokens.

    >>> import torch
    >>> encoder = TransformerEncoder(100, width=16, heads=2, layers=2, feed_forward=32)
    >>> encoder(torch.tensor([[5, 7, 2], [9, 2, 0]]), lengths=torch.tensor([3, 2])).shape
    torch.Size([2, 3, 16])
    """

    def __init__(
        self,
        words: int,
        width: int = 512,
        heads: int = 8,
        layers: int = 6,
        feed_forward: int = 2048,
        *,
        kv_heads: int | None = None,
        positions: str | None = "sinusoidal",
        norm: str = "pre",
        activation: str = "relu",
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        causal: bool = False,
        longest: int = 512,
    ):
        super().__init__()
        self.config: dict[str, Any] = constructor_arguments(locals())
        config = TransformerConfig.from_arguments(self.config)
        widths("TransformerEncoder", layers=layers)
        self.words = words
        self.embedding: TokenEmbedding = TokenEmbedding(words, width, positions, dropout, longest)
        self.layers: nn.ModuleList = nn.ModuleList(EncoderLayer(config, causal=causal) for _ in range(layers))
        self.norm: nn.LayerNorm | nn.Identity = nn.LayerNorm(width) if norm == "pre" else nn.Identity()

    def forward(
        self,
        tokens: Tensor,
        *,
        lengths: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """The states of all tokens; with `caches`, one for each layer, the tokens follow the cached ones (causal models only)."""
        tokens = checked_tokens("tokens", tokens, self.words)
        lengths = needed_lengths(lengths, tokens)
        positions = None if caches is None else caches[0].positions(tokens.shape[1], tokens.device)
        mask = None
        if documents is not None:
            mask, positions = Documents(checked_documents(documents, tokens, caches)), positions_in(documents)
        x = self.embedding(tokens, positions)
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers), strict=True):
            x = layer(x, lengths=lengths, cache=cache, mask=mask)
        return self.norm(x)
