"""A recurrent encoder and a recurrent decoder, connected by one context vector or by attention."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from overt.attention import check
from overt.attention.typing import LengthsLike
from overt.errors import InputError
from overt.layers import Contextual, CrossAttention, Prepared
from overt.layers.parts.checks import widths
from overt.layers.parts.padded_run import run_padded
from overt.layers.parts.padding import checked_lengths, zero_padding
from overt.models.attention_weights import attention_weights
from overt.models.config import constructor_arguments
from overt.models.tokens import checked_tokens
from overt.models.transformer_layers import TokenEmbedding, tie

RECURRENT: dict[str, type[nn.GRU | nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}
NAME = "Seq2Seq"


class Seq2Seq(nn.Module):
    """A translator with recurrent layers: the encoder reads the source to states h_j, the decoder writes with states s_i.

        s_0 = tanh(W_0 h_end)     s_i = GRU([y_(i−1), c_i], s_(i−1))     scores of word i = W_o tanh(W_r [y_(i−1), s_i, c_i])

    y_i is the embedding of word i, h_end the encoder's last state, of both directions if it is bidirectional, and c_i is, with

    - `attention=None`, one context vector for the whole sentence, c_i = h_end: the bottleneck through which all information on the
      source passes (Cho et al. 2014, section 2.2);
    - `score_with="previous"`, Σ_j a_ij h_j with a_ij = softmax_j f(s_(i−1), h_j): each word has a context (Bahdanau et al. 2015,
      sections 3.1 and A.1.2). Each position needs the state before it, so the decoder is a loop;
    - `score_with="current"`, the same with f(s_i, h_j): the state comes first, s_i = GRU(y_(i−1), s_(i−1)), then its context (Luong et
      al. 2015, section 3, without input feeding). All positions of a known target are computed in one pass;
    - `score_with="both"`, s_i is the query of c_i, and the next state reads it too, s_i = GRU([y_(i−1), c_(i−1)], s_(i−1)), c_0 = 0: the
      query depends on earlier attention (Chan et al. 2016, section 3.2; "input feeding" in Luong et al. 2015, section 3.3, where
      the input is the readout of c_(i−1) and s_(i−1)). This too is a loop.

    `attention` is a name that `overt.layers.CrossAttention` takes, f; with "dot" the values are projected too. With `self_attention`,
    such a name too, the encoder's states attend to each other first, so that h_j becomes [h_j, c_j] (`overt.layers.Contextual`).
    `layer` is "gru" or "lstm", `width` that of embeddings and states. `tied="target"` makes one matrix of the target's embedding and the
    output, "all" of the source's embedding too. `dropout` is for embeddings, between `layers`, for h_j and before the output.

    Shapes: source (B, S), target (B, T), token ids → scores (B, T, target_words); the target begins with the start token, and row i
    scores what follows its word i. `source_lengths` (B,) exclude padding, `target_lengths` set the states at the target's padding
    to zero. Raises InputError and KindError for inputs that do not fit.

    >>> model = Seq2Seq(1000, 1200, width=64)
    >>> source, target = torch.randint(4, 1000, (2, 7)), torch.randint(4, 1200, (2, 5))
    >>> model(source, target).shape, model.weights(source, target)["cross"][0].shape
    (torch.Size([2, 5, 1200]), torch.Size([2, 1, 5, 7]))
    """

    def __init__(
        self,
        source_words: int,
        target_words: int,
        width: int = 256,
        *,
        layer: str = "gru",
        layers: int = 1,
        bidirectional: bool = True,
        attention: str | None = "additive",
        self_attention: str | None = None,
        score_with: str = "previous",
        dropout: float = 0.0,
        tied: str | None = None,
    ):
        self.config: dict[str, Any] = constructor_arguments(locals())
        super().__init__()
        widths(NAME, source_words=source_words, target_words=target_words, width=width, layers=layers)
        check.choice("layer", layer, RECURRENT)
        check.choice("score_with", score_with, ("previous", "current", "both"))
        check.probability("dropout", dropout)
        self.source_words = source_words
        self.target_words = target_words
        self.score_with = score_with
        between = dropout if layers > 1 else 0.0
        recurrent = RECURRENT[layer]
        reader = recurrent(width, width, layers, dropout=between, bidirectional=bidirectional, batch_first=True)
        self.encoder: nn.GRU | nn.LSTM | Contextual = reader if self_attention is None else Contextual(reader, self_attention)  # type: ignore[arg-type]
        ends = width * (2 if bidirectional else 1)  # the width of h_end
        states = ends if self_attention is None else 2 * ends  # the width of h_j
        self.attention: CrossAttention | None = None
        if attention is not None:
            self.attention = CrossAttention(width, states, attention, width=width)  # type: ignore[arg-type]
        if self.attention is None and self_attention is not None:
            raise InputError(
                "attention where there is self_attention: without it the decoder reads only the encoder's last state",
                got=f"attention=None and self_attention={self_attention!r}",
                fix="leave self_attention out, or give the decoder an attention",
            )
        reads_contexts = self.attention is None or score_with != "current"
        self.decoder: nn.GRU | nn.LSTM = recurrent(
            width + (states if reads_contexts else 0), width, layers, dropout=between, batch_first=True
        )
        self.first_state: nn.Linear = nn.Linear(ends, layers * width * (2 if layer == "lstm" else 1))
        self.readout: nn.Linear = nn.Linear(2 * width + states, width)
        self.output: nn.Linear = nn.Linear(width, target_words)
        self.source_embedding: TokenEmbedding = TokenEmbedding(source_words, width, None, dropout)
        self.target_embedding: TokenEmbedding = TokenEmbedding(target_words, width, None, dropout)
        self.dropout: nn.Dropout = nn.Dropout(dropout)
        tie(self.output, self.source_embedding, self.target_embedding, tied)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_lengths: LengthsLike | None = None,
        target_lengths: LengthsLike | None = None,
    ) -> Tensor:
        """The scores of the word after each of the target's: (B, T, target_words)."""
        return self.output(self.states(source, target, source_lengths=source_lengths, target_lengths=target_lengths))

    def states(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_lengths: LengthsLike | None = None,
        target_lengths: LengthsLike | None = None,
    ) -> Tensor:
        """The input of `output`: (B, T, width)."""
        memory = self.start(source, source_lengths=source_lengths)
        states = self._write(checked_tokens("target", target, self.target_words, "(B, T)"), memory)
        return zero_padding(states, None if target_lengths is None else checked_lengths(target_lengths, states))

    def start(self, source: Tensor, *, source_lengths: LengthsLike | None = None) -> "Seq2SeqMemory":
        """Read the source (B, S): the memory from which `step` starts."""
        states, end, lengths = self._read(source, source_lengths)
        encoded = end if self.attention is None else self.attention.prepare(states, lengths=lengths)
        context = torch.zeros_like(states[:, 0]) if self.score_with == "both" else None
        return Seq2SeqMemory(encoded, self._first_state(end), torch.arange(len(source), device=source.device), context)

    def step(self, tokens: Tensor, memory: "Seq2SeqMemory") -> Tensor:
        """The scores of the word after these, one for each row, (R,): (R, target_words). The memory advances by a word."""
        tokens = checked_tokens("tokens", tokens, self.target_words, "(R,)")
        return self.output(self._write(tokens[:, None], memory)).squeeze(1)

    def weights(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_lengths: LengthsLike | None = None,
        target_lengths: LengthsLike | None = None,
    ) -> dict[str, list[Tensor]]:
        """The weights: "cross" [(B, 1, T, S)] with attention, "encoder" [(B, 1, S, S)] with self-attention."""
        result = {}
        if isinstance(self.encoder, Contextual):
            layers = {"encoder": [self.encoder.attention]}
            encoder_weights = attention_weights(layers, lambda: self._read(source, source_lengths))["encoder"]
            result["encoder"] = [weights[:, None] for weights in encoder_weights]
        if self.attention is not None:
            memory = self.start(source, source_lengths=source_lengths)
            words = self.target_embedding(checked_tokens("target", target, self.target_words, "(B, T)"))
            first = _top(memory.state)[:, None]
            states, _ = self._decoded(words, memory)
            queries = torch.cat([first, states[:, :-1]], dim=1) if self.score_with == "previous" else states
            weights = self.attention.weights(queries, memory.source)
            lengths = None if target_lengths is None else checked_lengths(target_lengths, weights)
            result["cross"] = [zero_padding(weights, lengths)[:, None]]
        return result

    def _read(self, source: Tensor, lengths: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """The encoder's states (B, S, features), its last state (B, ends), and the checked lengths."""
        words = self.source_embedding(checked_tokens("source", source, self.source_words, "(B, S)"))
        lengths = None if lengths is None else checked_lengths(lengths, words)
        states, last = self.encoder(words) if lengths is None else run_padded(self.encoder, words, (), {}, lengths, axis=-2)
        hidden = last[0] if isinstance(last, tuple) else last  # (layers · directions, B, width)
        directions = 2 if self.config["bidirectional"] else 1
        return self.dropout(states), hidden[-directions:].movedim(0, 1).flatten(1), lengths

    def _first_state(self, end: Tensor) -> Any:
        """s_0 = tanh(W_0 h_end) in the form of torch's recurrent layers: (layers, B, width), for an LSTM a pair."""
        layers, width = self.decoder.num_layers, self.decoder.hidden_size
        first = torch.tanh(self.first_state(end)).unflatten(-1, (-1, layers, width))  # (B, 1 or 2, layers, width)
        parts = tuple(part.contiguous() for part in first.movedim(0, 2))
        return parts if len(parts) == 2 else parts[0]

    def _write(self, target: Tensor, memory: "Seq2SeqMemory") -> Tensor:
        """The input (B, T, width) of the output layer for these words; the memory advances by them."""
        words = self.target_embedding(target)
        states, contexts = self._decoded(words, memory)
        return self.dropout(torch.tanh(self.readout(torch.cat([words, states, contexts], dim=-1))))

    def _decoded(self, words: Tensor, memory: "Seq2SeqMemory") -> tuple[Tensor, Tensor]:
        """The decoder's states s_i (B, T, width) and contexts c_i (B, T, features)."""
        if self.attention is None:
            contexts = memory.source[:, None].expand(-1, words.shape[1], -1)
            states, memory.state = self.decoder(torch.cat([words, contexts], dim=-1), memory.state)
            return states, contexts
        if self.score_with == "current":
            states, memory.state = self.decoder(words, memory.state)
            return states, self.attention(states, memory.source)
        states, contexts = [], []
        for word in words.unbind(1):  # (B, width)
            context = memory.context if self.score_with == "both" else self.attention(_top(memory.state), memory.source)
            state, memory.state = self.decoder(torch.cat([word, context], dim=-1)[:, None], memory.state)
            if self.score_with == "both":
                context = memory.context = self.attention(_top(memory.state), memory.source)
            states.append(state)
            contexts.append(context)  # (B, features)
        return torch.cat(states, dim=1), torch.stack(contexts, dim=1)


@dataclass
class Seq2SeqMemory:
    """The state of decoding between steps: the encoded source, the decoder's state, and the source of each of its R rows."""

    source: Any  # `Prepared`: the encoder's states, projected once; without attention h_end (R, ends)
    state: Any  # (layers, R, width); a pair for an LSTM
    rows: Tensor  # (R,)
    context: Any = None  # with score_with="both" the last context, (R, features)

    def reorder(self, indices: Any) -> None:
        """Replace row i by a copy of row indices[i], for beam search; the number of rows may change."""
        indices = torch.as_tensor(indices, device=self.rows.device)
        self.state = tuple(part[:, indices] for part in self.state) if isinstance(self.state, tuple) else self.state[:, indices]
        self.context = None if self.context is None else self.context[indices]
        rows = self.rows[indices]
        if torch.equal(rows, self.rows):  # the beams of a sentence share its source
            return
        self.rows = rows
        if isinstance(self.source, Tensor):
            self.source = self.source[indices]
        else:
            key, value, lengths = self.source
            self.source = Prepared(key[indices], value[indices], None if lengths is None else lengths[indices])


def _top(state: Any) -> Tensor:
    """The state of the top layer, (B, width)."""
    return (state[0] if isinstance(state, tuple) else state)[-1]
