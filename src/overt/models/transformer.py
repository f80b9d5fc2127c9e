"""The Transformer: an encoder reads the source, a decoder writes the target word by word, both made of attention."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from overt.layers import KVCache, Prepared
from overt.layers.parts.checks import widths
from overt.layers.parts.padding import zero_padding
from overt.models.attention_weights import attention_weights
from overt.models.config import TransformerConfig, constructor_arguments
from overt.models.tokens import checked_tokens, needed_lengths
from overt.models.transformer_encoder import TransformerEncoder
from overt.models.transformer_layers import DecoderLayer, TokenEmbedding, TransformerMemory, tie


class Transformer(nn.Module):
    """An encoder and a decoder: the probability of each target word, given the source and the target words before it.

        memory = encoder(source)        states = decoder(target, memory)        scores = W_out · states

    Vaswani et al. 2017, section 3; the softmax over the scores is left to the loss. `positions` are "sinusoidal", "learned" (up to
    `longest`), "rotary", "alibi", "relative" or None; `norm` is "pre" or "post"; `kv_heads`, a divisor of `heads`, shares
    keys and values among heads. `tied="all"` makes one matrix of both embeddings and W_out (section 3.4; equal vocabularies),
    "target" of the decoder's embedding and W_out, None keeps three.

    Shapes: source (B, S) and target (B, T) of whole numbers, the target with its start token first; lengths (B,) where rows end
    in padding → scores (B, T, target_words). Padding influences no other position.

    >>> model = Transformer(100, 100, width=16, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=32)
    >>> model(torch.tensor([[5, 7, 2]]), torch.tensor([[1, 8, 9, 4]])).shape
    torch.Size([1, 4, 100])
    """

    def __init__(
        self,
        source_words: int,
        target_words: int,
        width: int = 512,
        heads: int = 8,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        feed_forward: int = 2048,
        *,
        kv_heads: int | None = None,
        positions: str | None = "sinusoidal",
        norm: str = "pre",
        activation: str = "relu",
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        tied: str | None = "target",
        longest: int = 512,
    ):
        super().__init__()
        self.config: dict[str, Any] = constructor_arguments(locals())
        config = TransformerConfig.from_arguments(self.config)
        self.encoder: TransformerEncoder = TransformerEncoder(source_words, layers=encoder_layers, **vars(config))
        self.decoder: TransformerDecoder = TransformerDecoder(target_words, decoder_layers, config)
        self.output: nn.Linear = nn.Linear(width, target_words, bias=False)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        tie(self.output, self.encoder.embedding, self.decoder.embedding, tied)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_lengths: Tensor | None = None,
        target_lengths: Tensor | None = None,
    ) -> Tensor:
        """The scores of the word that follows each target word, in one pass, as for training: (B, T, target_words)."""
        return self.output(self.states(source, target, source_lengths=source_lengths, target_lengths=target_lengths))

    def states(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_lengths: Tensor | None = None,
        target_lengths: Tensor | None = None,
    ) -> Tensor:
        """The input of `output`: (B, T, width). Beyond `target_lengths` it is undefined, and no earlier state depends on it."""
        return self.decoder(target, self._read(source, source_lengths))

    @torch.no_grad()
    def weights(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_lengths: Tensor | None = None,
        target_lengths: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """The weights of every head, layer by layer, zeros at padding.

        "encoder" (B, H, S, S), "decoder" (B, H, T, T) and "cross" (B, H, T, S): each a list with a tensor for each layer.
        """
        layers: dict[str, Any] = {
            "encoder": [layer.attention for layer in self.encoder.layers],
            "decoder": [layer.self_attention for layer in self.decoder.layers],
            "cross": [layer.cross_attention for layer in self.decoder.layers],
        }
        lengths = needed_lengths(target_lengths, target)
        weights = attention_weights(layers, lambda: self.states(source, target, source_lengths=source_lengths))
        return weights | {name: [zero_padding(weight, lengths) for weight in weights[name]] for name in ("decoder", "cross")}

    def start(self, source: Tensor, *, source_lengths: Tensor | None = None) -> TransformerMemory:
        """Read the source (B, S): the memory from which `step` starts."""
        return TransformerMemory(len(source), len(self.decoder.layers), self._read(source, source_lengths))

    def step(self, tokens: Tensor, memory: TransformerMemory) -> Tensor:
        """The scores of the next word of each row, after the last one (R,): (R, target_words). Adds the tokens to the memory."""
        tokens = checked_tokens("tokens", tokens, self.decoder.words, "(R,)")
        return self.output(self.decoder(tokens[:, None], memory.source, memory.caches))[:, 0]

    def _read(self, source: Tensor, lengths: Tensor | None) -> list[Prepared]:
        """The source, as the keys and values of each layer's cross-attention."""
        states = self.encoder(source, lengths=lengths)
        return self.decoder.prepare(states, needed_lengths(lengths, source))


class TransformerDecoder(nn.Module):
    """From target words to states that depend on earlier target words and on the source: embeddings, then `DecoderLayer`s.

    Shapes: tokens (B, n), the source `prepare(states, lengths)` → (B, n, width).
    """

    def __init__(self, words: int, layers: int, config: TransformerConfig):
        super().__init__()
        widths("TransformerDecoder", layers=layers)
        self.words = words
        self.embedding: TokenEmbedding = TokenEmbedding(words, config.width, config.positions, config.dropout, config.longest)
        self.layers: nn.ModuleList = nn.ModuleList(DecoderLayer(config) for _ in range(layers))
        self.norm: nn.LayerNorm | nn.Identity = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()

    def prepare(self, states: Tensor, lengths: Tensor | None = None) -> list[Prepared]:
        """The encoder's states (B, S, width) as each layer's keys and values, projected once."""
        return [layer.cross_attention.prepare(states, lengths=lengths) for layer in self.layers]  # type: ignore[operator]

    def forward(self, tokens: Tensor, source: Sequence[Prepared], caches: Sequence[KVCache] | None = None) -> Tensor:
        """The states of all tokens; with `caches`, one for each layer, the tokens follow the cached ones."""
        tokens = checked_tokens("target", tokens, self.words)
        positions = None if caches is None else caches[0].positions(tokens.shape[1], tokens.device)
        x = self.embedding(tokens, positions)
        for layer, prepared, cache in zip(self.layers, source, caches or [None] * len(self.layers), strict=True):
            x = layer(x, prepared, cache=cache)
        return self.norm(x)
