"""What order and distance do: small tasks that can be learned only by what tells order, or by what reaches far back.

**Order.** Attention sums over a set, so a Transformer without positions reads the words of a sequence and not their order: a source
and its permutation are one to it. It can learn to sort, since the answer depends on the set alone, and neither to copy nor to
reverse. With positions it learns all three (`rewriting`).

**Distance.** A recurrent layer passes what it read through every step on the way, and the gradient back through each of them, so a token is
learned to be remembered only so far (Bengio et al. 1994); gates reach farther (Hochreiter and Schmidhuber 1997; Cho et al. 2014). To
attention all places are one step away (Vaswani et al. 2017, section 4): `recall`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from overt.attention import check
from overt.layers import CrossAttention, Sinusoidal
from overt.models import greedy_search

START, END, FIRST = 1, 2, 4  # token ids: the symbols follow the special ones
REWRITTEN = {
    "copy": lambda symbols: symbols,
    "reverse": lambda symbols: symbols.flip(-1),
    "sort": lambda symbols: symbols.sort(-1).values,
}
RECURRENT = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def sequences(task: str, count: int, length: int, symbols: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Different symbols in a random order (count, length), and what "copy", "reverse" or "sort" makes of them.

    >>> source, target = sequences("reverse", 1, 3, 5, torch.Generator().manual_seed(0))
    >>> source.tolist(), target.tolist()
    ([[6, 7, 8]], [[8, 7, 6]])
    """
    check.one_of("task", task, REWRITTEN)
    source = torch.rand(count, symbols, generator=generator).argsort(-1)[:, :length] + FIRST
    return source, REWRITTEN[task](source)


def rewriting(
    model: nn.Module, task: str, *, length: int = 5, symbols: int = 8, updates: int = 300, batch: int = 32, seed: int = 0
) -> float:
    """Train a translator to copy, reverse or sort, and say what share of new sequences it then writes without a mistake.

    `model` is any of `overt.models` that translates, of at least `symbols` + 4 words on both sides. Guessing the order of 5 symbols is
    right once in 120 times.

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
        wanted = functional.pad(target, (0, 1), value=END)
        scores = model(source, functional.pad(target, (1, 0), value=START))
        return functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())

    _train(model, loss, updates)
    source, target = sequences(task, 500, length, symbols, generator)
    written = greedy_search(model, source, longest=length)
    return sum(text.tokens == wanted for text, wanted in zip(written, target.tolist(), strict=True)) / len(target)


class Recall(nn.Module):
    """Reads a sequence of symbols in one way, and scores at its last place what stood at its first.

    With "rnn", "gru" or "lstm" the last state scores it. With "attention" the last place attends to all, itself included: the last
    row of self-attention, with `Sinusoidal` positions, since which place is the first is a question of order.

    >>> Recall("attention", symbols=8)(torch.randint(8, (2, 6))).shape
    torch.Size([2, 8])
    """

    def __init__(self, layer: str, symbols: int, width: int = 32):
        super().__init__()
        check.one_of("layer", layer, (*RECURRENT, "attention"))
        self.embedding = nn.Embedding(symbols + 1, width)  # one more, for the question
        nn.init.normal_(self.embedding.weight, std=0.5)  # so that positions, whose numbers are up to 1, are heard beside it
        self.question, self.positions = symbols, Sinusoidal(width)
        self.layer = RECURRENT[layer](width, width, batch_first=True) if layer in RECURRENT else None
        self.attention = CrossAttention(width, width, "dot") if layer == "attention" else None
        self.output = nn.Linear(width, symbols)

    def forward(self, tokens: Tensor) -> Tensor:
        """The scores of what stood first in (B, n): (B, symbols)."""
        x = self.embedding(functional.pad(tokens, (0, 1), value=self.question))  # (B, n + 1, width)
        if self.layer is not None:
            return self.output(self.layer(x)[0][:, -1])
        x = self.positions(x)
        return self.output(self.attention(x[:, -1], x))  # type: ignore[misc]


def recall(layer: str, distance: int, *, symbols: int = 8, updates: int = 300, batch: int = 32, seed: int = 0) -> float:
    """Train to recall the token `distance` places back, the first of random ones, and say what share of new ones is recalled.

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
