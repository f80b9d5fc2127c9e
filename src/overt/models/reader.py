"""The encoder of a tagger or a classifier: recurrent, convolutional, with self-attention, or only embeddings."""

from typing import Any

from torch import Tensor, nn

from overt.attention import check
from overt.attention.typing import LengthsLike
from overt.errors import InputError
from overt.layers import Contextual, SelfAttention, Sinusoidal
from overt.layers.parts.checks import widths
from overt.layers.parts.padded_run import run_padded
from overt.layers.parts.padding import checked_lengths, zero_padding
from overt.layers.parts.sequence_form import original_order, positions_second_last
from overt.models.attention_weights import attention_weights
from overt.models.tokens import checked_tokens
from overt.models.transformer_encoder import TransformerEncoder

RECURRENT: dict[str, type[nn.RNN | nn.GRU | nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
KERNEL_SIZE = 5  # words in the window of a convolution
# EMBEDDING_STD: the initial standard deviation of embeddings: small, so that dot products are nearly equal and attention starts as a mean.
EMBEDDING_STD = 0.1
READERS = (*RECURRENT, "convolution", "attention", "embeddings", "transformer")


class Reader(nn.Module):
    """Words to states: embeddings x_i, a layer h_1 … h_n = layer(x_1 … x_n), and with self-attention [h_i, c_i].

    | encoder              | h_i                                                              | order              |
    |----------------------|------------------------------------------------------------------|--------------------|
    | "rnn", "gru", "lstm" | the states of both directions side by side, each `width` wide    | recurrence         |
    | "convolution"        | relu(W [x_(i−2) … x_(i+2)]), as wide as these (Kim 2014)         | within the window  |
    | "attention"          | tanh(W x_i), as wide as these: each word alone                   | by `positions`     |
    | "embeddings"         | x_i, the embeddings alone                                        | by `positions`     |
    | "transformer"        | those of a `TransformerEncoder` with `layers` and `heads`        | by `positions`     |

    `self_attention` appends c_i = Σ_j a_ij h_j to h_i (`overt.layers.Contextual`): a name that `overt.layers.SelfAttention` takes, or
    "plain", the dot product of the states themselves, with nothing learned. "attention" is self-attention instead of recurrence,
    by default with "dot", learned queries, keys and values. `positions="sinusoidal"` are added to the embeddings, with the scale of
    these at the start; a Transformer takes the others too. `embedding` is the width of the embeddings, by default `width`. `dropout`
    is for embeddings, between `layers`, and for the output.

    Shapes: tokens (B, n) ids → (B, n, features). Tokens (B, n, P) have P ids for a word, its own and those of its parts, such as its
    ending, and its embedding is their sum (Bojanowski et al. 2017, section 3.2). With `lengths` (B,) padding influences nothing and its
    rows are zeros. Raises InputError and KindError for inputs that do not fit.

    >>> import torch
    >>> reader = Reader(100, 8, encoder="gru", self_attention="additive")
    >>> reader(torch.randint(100, (2, 5)), lengths=torch.tensor([5, 3])).shape, reader.features
    (torch.Size([2, 5, 32]), 32)
    """

    def __init__(
        self,
        words: int,
        width: int,
        *,
        encoder: str = "lstm",
        layers: int = 1,
        embedding: int | None = None,
        self_attention: str | None = None,
        positions: str | None = None,
        heads: int = 4,
        dropout: float = 0.0,
    ):
        super().__init__()
        check.choice("encoder", encoder, READERS)
        check.probability("dropout", dropout)
        widths("a model", words=words, width=width, layers=layers, embedding=embedding, heads=heads)
        self.words = words
        self.dropout: nn.Dropout = nn.Dropout(dropout)
        if encoder == "transformer":
            _refuse_with_transformer(embedding, self_attention)
            self.layer: nn.Module = TransformerEncoder(
                words, width, heads, layers, 4 * width, positions=positions, dropout=dropout
            )
            self.features: int = width
            return
        check.choice("positions", positions, (None, "sinusoidal"))
        embedding = width if embedding is None else embedding
        self.embedding: nn.Embedding = nn.Embedding(words, embedding)
        nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        self.positions: Sinusoidal | None = None if positions is None else Sinusoidal(embedding)
        self.axis = -1 if encoder == "convolution" else -2  # of the positions in the layer's input and output
        self.layer, self.features = _layer(encoder, embedding, width, layers, dropout)
        self_attention = "dot" if encoder == "attention" and self_attention is None else self_attention
        if self_attention is not None:
            # The values are the states themselves, except with "dot", which learns them. The layer refuses invalid names.
            name, projections = ("dot", False) if self_attention == "plain" else (self_attention, None)
            attention = SelfAttention(self.features, name, projections=projections)  # type: ignore[arg-type]
            self.layer = Contextual(self.layer, attention, axis=self.axis, features=self.features)
            self.features = self.layer.features

    def forward(self, tokens: Tensor, *, lengths: LengthsLike | None = None) -> Tensor:
        """The state of each word: (B, n, features)."""
        if isinstance(self.layer, TransformerEncoder):
            states = self.layer(checked_tokens("tokens", tokens, self.words), lengths=lengths)
            return zero_padding(states, None if lengths is None else checked_lengths(lengths, states))
        with_parts = isinstance(tokens, Tensor) and tokens.ndim == 3
        tokens = checked_tokens("tokens", tokens, self.words, "(B, n, P)" if with_parts else "(B, n)")
        words = self.embedding(tokens)
        words = words.sum(-2) if with_parts else words
        if self.positions is not None:  # scaled like the embeddings, which are initially much smaller than 1
            words = EMBEDDING_STD * self.positions(words / EMBEDDING_STD)
        words = self.dropout(words)  # (B, n, embedding)
        lengths = None if lengths is None else checked_lengths(lengths, words)
        words = original_order(words, self.axis)
        states = self.layer(words) if lengths is None else run_padded(self.layer, words, (), {}, lengths, axis=self.axis)
        return self.dropout(positions_second_last(states[0] if isinstance(states, tuple) else states, self.axis))

    def weights(self, tokens: Tensor, *, lengths: LengthsLike | None = None) -> list[Tensor]:
        """The weights of each attention: [(B, H, n, n)]; an empty list if there is none."""
        if isinstance(self.layer, TransformerEncoder):
            attentions: list[Any] = [layer.attention for layer in self.layer.layers]
            return attention_weights({"all": attentions}, lambda: self(tokens, lengths=lengths))["all"]
        if isinstance(self.layer, Contextual):
            layers = {"all": [self.layer.attention]}
            return [weights[:, None] for weights in attention_weights(layers, lambda: self(tokens, lengths=lengths))["all"]]
        return []


def _layer(encoder: str, embedding: int, width: int, layers: int, dropout: float) -> tuple[nn.Module, int]:
    """The layer between embeddings and self-attention, and the width of its states."""
    if encoder == "embeddings":
        return nn.Identity(), embedding
    if encoder == "attention":
        return nn.Sequential(nn.Linear(embedding, 2 * width), nn.Tanh()), 2 * width
    if encoder == "convolution":
        return nn.Sequential(nn.Conv1d(embedding, 2 * width, KERNEL_SIZE, padding="same"), nn.ReLU()), 2 * width
    between = dropout if layers > 1 else 0.0
    return RECURRENT[encoder](embedding, width, layers, batch_first=True, dropout=between, bidirectional=True), 2 * width


def _refuse_with_transformer(embedding: int | None, self_attention: str | None) -> None:
    if embedding is not None or self_attention is not None:
        raise InputError(
            "no embedding and self_attention beside a Transformer, which has its self-attention, and embeddings as wide as its states",
            got=f"embedding={embedding!r} and self_attention={self_attention!r}",
            fix="leave both out, or use another encoder",
        )
