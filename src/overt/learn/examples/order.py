"""Order and distance: small tasks that need positions, or that need information from far back.

**Order.** Attention sums over a set, so a Transformer without positions does not see the order of a sequence: a source and its
permutation are equal to it. It can learn to sort, since the answer depends on the set only, but not to copy or to reverse. With
positions it learns all three (`rewriting`).

**Distance.** A recurrent layer passes information through every step in between, and the gradient back through each of them, so it
learns to remember a token over a limited distance (Bengio et al. 1994); gates extend it (Hochreiter and Schmidhuber 1997; Cho et al.
2014). For attention every position is one step away (Vaswani et al. 2017, section 4): `recall`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from overt.attention import check
from overt.layers import CrossAttention, Sinusoidal
from overt.models import greedy_search

START, END, FIRST = 1, 2, 4  # token ids; symbols follow the special tokens
REWRITTEN: dict[str, Callable[[Tensor], Tensor]] = {
    "copy": lambda symbols: symbols,
    "reverse": lambda symbols: symbols.flip(-1),
    "sort": lambda symbols: symbols.sort(-1).values,
}
RECURRENT: dict[str, type[nn.RNN | nn.GRU | nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def sequences(task: str, count: int, length: int, symbols: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Different symbols in a random order (count, length), and the result of "copy", "reverse" or "sort".

    >>> source, target = sequences("reverse", 1, 3, 5, torch.Generator().manual_seed(0))
    >>> source.tolist(), target.tolist()
    ([[6, 7, 8]], [[8, 7, 6]])
    """
    check.choice("task", task, REWRITTEN)
    source = torch.rand(count, symbols, generator=generator).argsort(-1)[:, :length] + FIRST
    return source, REWRITTEN[task](source)


def rewriting(
    model: nn.Module, task: str, *, length: int = 5, symbols: int = 8, updates: int = 300, batch: int = 32, seed: int = 0
) -> float:
    """Train a translator to copy, reverse or sort, and return the share of new sequences that it solves completely.

    `model` is a translator of `overt.models`, with at least `symbols` + 4 words on both sides. A guessed order of 5 symbols is right
    once in 120 times.

    >>> from overt.models import Transformer
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> model = Transformer(12, 12, 16, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=32, dropout=0.0)
    >>> 0 <= rewriting(model, "copy", updates=2) < 0.1
    True
    """
    generator = torch.Generator().manual_seed(seed)

    def loss() -> Tensor:
        source, target = sequences(task, batch, length, symbols, generator)
        labels = functional.pad(target, (0, 1), value=END)
        scores = model(source, functional.pad(target, (1, 0), value=START))
        return functional.cross_entropy(scores.flatten(0, 1), labels.flatten())

    _train(model, loss, updates)
    source, target = sequences(task, 500, length, symbols, generator)
    written = greedy_search(model, source, longest=length)
    return sum(text.tokens == tokens for text, tokens in zip(written, target.tolist(), strict=True)) / len(target)


class Recall(nn.Module):
    """A model of one layer that predicts the first symbol of a sequence at its last position.

    With "rnn", "gru" or "lstm" the last state gives the scores. With "attention" the last position attends to all, itself included: the
    last row of self-attention, with `Sinusoidal` positions, since finding the first position needs order.

    >>> Recall("attention", symbols=8)(torch.randint(8, (2, 6))).shape
    torch.Size([2, 8])
    """

    def __init__(self, layer: str, symbols: int, width: int = 32):
        super().__init__()
        check.choice("layer", layer, (*RECURRENT, "attention"))
        self.embedding: nn.Embedding = nn.Embedding(symbols + 1, width)  # one more, for the query token
        nn.init.normal_(self.embedding.weight, std=0.5)  # small next to the positions, whose values are up to 1
        self.query_token = symbols
        self.positions: Sinusoidal = Sinusoidal(width)
        self.layer: nn.RNN | nn.GRU | nn.LSTM | None = (
            RECURRENT[layer](width, width, batch_first=True) if layer in RECURRENT else None
        )
        self.attention: CrossAttention | None = CrossAttention(width, width, "dot") if layer == "attention" else None
        self.output: nn.Linear = nn.Linear(width, symbols)

    def forward(self, tokens: Tensor) -> Tensor:
        """The scores of the first symbol: (B, n) → (B, symbols)."""
        x = self.embedding(functional.pad(tokens, (0, 1), value=self.query_token))  # (B, n + 1, width)
        if self.layer is not None:
            return self.output(self.layer(x)[0][:, -1])
        x = self.positions(x)
        return self.output(self.attention(x[:, -1], x))  # type: ignore[misc]


def recall(layer: str, distance: int, *, symbols: int = 8, updates: int = 300, batch: int = 32, seed: int = 0) -> float:
    """Train to recall the token `distance` positions back, and return the share of new tokens that are recalled.

    `layer` is "rnn", "gru", "lstm" or "attention" (`Recall`). Guessing is right once in `symbols` times.

    >>> recall("attention", 4, updates=2) < 0.5
    True
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Recall(layer, symbols)

    def draw(count: int) -> Tensor:
        return torch.randint(symbols, (count, distance), generator=generator)

    def loss() -> Tensor:
        tokens = draw(batch)
        return functional.cross_entropy(model(tokens), tokens[:, 0])

    _train(model, loss, updates)
    tokens = draw(1000)
    with torch.no_grad():
        return float((model(tokens).argmax(-1) == tokens[:, 0]).float().mean())


def _train(model: nn.Module, loss: Callable[[], Tensor], updates: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=updates)
    for _ in range(updates):
        optimizer.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
