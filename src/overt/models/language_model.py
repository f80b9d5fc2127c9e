"""A language model: a Transformer without a source, which predicts the next word from those before it."""

from typing import Any

import torch
from torch import Tensor, nn

from overt.layers.parts.padding import zero_padding
from overt.models.attention_weights import attention_weights
from overt.models.config import TransformerConfig, constructor_arguments
from overt.models.tokens import checked_tokens, needed_lengths
from overt.models.transformer_encoder import TransformerEncoder
from overt.models.transformer_layers import TransformerMemory


class LanguageModel(nn.Module):
    """The probability of each word, given the words before it: a causal encoder, and scores of all words.

        states = body(tokens)        scores = W_out · states

    Liu et al. 2018, section 4.2.4 (a Transformer's decoder alone); Radford et al. 2018, section 3.1. With `tied` W_out is the
    embedding. The other arguments are `TransformerEncoder`'s.

    Shapes: tokens (B, n) of whole numbers, lengths (B,) → scores (B, n, words); beyond a length they are undefined. `documents` (B, n)
    are the ids of the texts if a row has several, one after the other: the scores of each are those without the others.

    >>> model = LanguageModel(100, width=16, heads=2, layers=1, feed_forward=32).eval()
    >>> model(torch.tensor([[1, 5, 7]])).shape
    torch.Size([1, 3, 100])
    >>> memory = model.start(torch.tensor([[1, 5]]))
    >>> torch.allclose(model.step(torch.tensor([7]), memory), model(torch.tensor([[1, 5, 7]]))[:, -1], atol=1e-5)
    True
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
        tied: bool = True,
        longest: int = 512,
    ):
        super().__init__()
        self.config: dict[str, Any] = constructor_arguments(locals())
        self.body: TransformerEncoder = TransformerEncoder(
            words, layers=layers, causal=True, **vars(TransformerConfig.from_arguments(self.config))
        )
        self.output: nn.Linear = nn.Linear(width, words, bias=False)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        if tied:
            self.output.weight = self.body.embedding.table.weight

    def forward(self, tokens: Tensor, *, lengths: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """The scores of the word that follows each token: (B, n, words)."""
        return self.output(self.states(tokens, lengths=lengths, documents=documents))

    def states(self, tokens: Tensor, *, lengths: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """The input of `output`: (B, n, width). Padding comes last, so no token attends to it, for any lengths."""
        return self.body(tokens, documents=documents)

    @torch.no_grad()
    def weights(self, tokens: Tensor, *, lengths: Tensor | None = None) -> dict[str, list[Tensor]]:
        """The weights of every head, zeros at padding: "decoder", a list of (B, H, n, n), one for each layer."""
        layers: dict[str, Any] = {"decoder": [layer.attention for layer in self.body.layers]}
        weights = attention_weights(layers, lambda: self.body(tokens))["decoder"]
        lengths = needed_lengths(lengths, tokens)
        return {"decoder": [zero_padding(weight, lengths) for weight in weights]}

    def start(self, tokens: Tensor, *, lengths: Tensor | None = None) -> TransformerMemory:
        """Read a prompt (B, n), which may be empty; `step` continues it."""
        memory = TransformerMemory(len(tokens), len(self.body.layers))
        if tokens.shape[1]:
            self.body(tokens, lengths=lengths, caches=memory.caches)
        return memory

    def step(self, tokens: Tensor, memory: TransformerMemory) -> Tensor:
        """The scores of the next word of each row, after the last one (R,): (R, words). Adds the tokens to the memory."""
        tokens = checked_tokens("tokens", tokens, self.body.words, "(R,)")
        return self.output(self.body(tokens[:, None], caches=memory.caches))[:, 0]
