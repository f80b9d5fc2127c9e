"""Writing with a model, a word at a time: the likeliest next word (greedy), a drawn one (sample), or the likeliest texts (beam).

A model gives the probability of a text as a product, p(y | x) = Π_t p(y_t | x, y_1 … y_(t−1)). Every text ends with the end token,
whose probability counts too; a text of `longest` tokens may only end. So the probabilities of all texts add up to 1.

A translator goes on from its source, a text from the start token. A language model has no source: it goes on from a prompt.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.attention import check
from overt.errors import InputError
from overt.models.language_model import LanguageModel

# Rows that have ended leave when this share of all is left: to leave, the memory of the others has to be copied.
_LEAVING = 0.75


class Hypothesis(NamedTuple):
    """A text that a model wrote: its tokens, without start and end, and its score.

    The score is Σ_t log p(y_t | …), the end token's included, in nats; `beam_search` divides it by a power of the text's length.

    >>> Hypothesis([7, 5], -1.5).tokens
    [7, 5]
    """

    tokens: list[int]
    score: float


@torch.no_grad()
def greedy_search(
    model: Any,
    source: Tensor,
    *,
    source_lengths: Tensor | None = None,
    start: int = 1,
    end: int = 2,
    longest: int | None = None,
) -> list[Hypothesis]:
    """Write the likeliest next word until that is the end: one hypothesis for each row of the source (B, S).

    `longest` bounds the tokens of a text; unless given it is 2 · S + 10 for a source of S tokens. The model is in eval mode meanwhile.

    >>> from overt.models import Transformer
    >>> model = Transformer(9, 9, width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16)
    >>> [text] = greedy_search(model, torch.tensor([[5, 7, 2]]), longest=4)
    >>> len(text.tokens) <= 4, text.score < 0
    (True, True)
    """
    with _begun(model, source, source_lengths, start, longest) as begun:
        return _written(model, *begun, end, lambda scores: scores.max(-1).indices)  # faster than argmax, and the same


@torch.no_grad()
def sample(
    model: Any,
    source: Tensor,
    *,
    source_lengths: Tensor | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    start: int = 1,
    end: int = 2,
    longest: int | None = None,
) -> list[Hypothesis]:
    """Draw each word from softmax(scores / temperature): one hypothesis for each row of the source (B, S).

    `top_k` leaves only the k likeliest words to draw from (Fan et al. 2018, section 5.1), `top_p` only the fewest likeliest that
    together have this probability (Holtzman et al. 2020, section 3.1). The score is that of the model itself, without any of these.
    The other arguments are `greedy_search`'s.

    >>> from overt.models import Transformer
    >>> model = Transformer(9, 9, width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16)
    >>> source = torch.tensor([[5, 7, 2]])
    >>> draws = [sample(model, source, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    >>> draws[0] == draws[1], sample(model, source, top_k=1)[0].tokens == greedy_search(model, source)[0].tokens
    (True, True)
    """
    check.positive("temperature", temperature)
    if top_k is not None:
        check.whole_number("top_k", top_k)
    if top_p is not None:
        check.positive("top_p", top_p)

    def draw(scores: Tensor) -> Tensor:
        chances = likeliest(torch.softmax(scores / temperature, dim=-1), top_k, top_p)
        return torch.multinomial(chances, 1, generator=generator)[:, 0]

    with _begun(model, source, source_lengths, start, longest) as begun:
        return _written(model, *begun, end, draw)


def likeliest(chances: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """The chances (R, V) with zeros for all but the k likeliest words, and but the fewest likeliest with probability p together.

    >>> likeliest(torch.tensor([[0.5, 0.1, 0.25, 0.15]]), top_p=0.7)
    tensor([[0.5000, 0.0000, 0.2500, 0.0000]])
    """
    ranked, words = chances.sort(dim=-1, descending=True, stable=True)  # (R, V)
    before = ranked.cumsum(-1) - ranked  # (R, V), what the likelier words have
    out = torch.zeros_like(ranked, dtype=torch.bool) if top_p is None else before >= top_p * ranked.sum(-1, keepdim=True)
    out[:, top_k:] |= top_k is not None
    return torch.zeros_like(chances).scatter(-1, words, ranked.masked_fill(out, 0))


@torch.no_grad()
def beam_search(
    model: Any,
    source: Tensor,
    *,
    source_lengths: Tensor | None = None,
    size: int = 5,
    length_penalty: float = 1.0,
    best: int = 1,
    start: int = 1,
    end: int = 2,
    longest: int | None = None,
) -> list[list[Hypothesis]]:
    """Write `size` texts at a time, always the likeliest: the `best` of them for each row of the source (B, S), best first.

        score(y) = Σ_t log p(y_t | …) / |y|^length_penalty        |y| counts the tokens of y and its end

    At each step every text of the beam goes on with every word, and the likeliest of all these stay. A text that ends keeps its
    place in the beam, so a search is over when `size` texts have ended. With length_penalty 0 the score is the log probability, which
    is the larger the shorter a text is; 1 makes it the mean of a token. There may be fewer texts than `best` where few exist.
    The other arguments are `greedy_search`'s.

    >>> from overt.models import Transformer
    >>> model = Transformer(9, 9, width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16)
    >>> [texts] = beam_search(model, torch.tensor([[5, 7, 2]]), size=4, best=2)
    >>> len(texts), texts[0].score >= texts[1].score
    (2, True)
    """
    check.whole_number("size", size)
    check.whole_number("best", best)
    if best > size:
        raise InputError("a beam gives at most as many texts as it holds", got=f"best={best}, size={size}", fix="raise size")
    with _begun(model, source, source_lengths, start, longest) as (memory, tokens, limits):
        if len(tokens) == 0:
            return []
        memory.reorder(torch.arange(len(tokens)).repeat_interleave(size))
        search = _Beams(len(tokens), size, end, length_penalty, limits)
        tokens = tokens.repeat_interleave(size)
        while len(search.sentences):
            rows = search.advance(model.step(tokens, memory).float())
            if len(search.sentences):
                memory.reorder(rows)
                tokens = search.written[:, :, -1].flatten()
    return [sorted(texts, key=lambda text: -text.score)[:best] for texts in search.ended]


class _Beams:
    """The beams of all sentences still searched, B · size rows; a place whose text has ended, or none, has log probability −∞."""

    def __init__(self, sentences: int, size: int, end: int, length_penalty: float, limits: Tensor):
        self.size, self.end, self.length_penalty, self.limits = size, end, length_penalty, limits
        self.ended: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        device = limits.device
        self.sentences = torch.arange(sentences, device=device)  # (B,)
        self.places = torch.full((sentences,), size, device=device)  # (B,) how many texts may still go on
        self.written = torch.empty(sentences, size, 0, dtype=torch.long, device=device)  # (B, size, t)
        # All places begin alike, so one of them stands for all.
        self.totals = torch.full((sentences, size), -torch.inf, device=device)  # (B, size)
        self.totals[:, 0] = 0

    def advance(self, scores: Tensor) -> Tensor:
        """Let the likeliest texts go on by a word, given all scores (B · size, V), and say which row each comes from."""
        length, words = self.written.shape[-1], scores.shape[-1]
        gains = torch.log_softmax(scores, dim=-1).unflatten(0, (-1, self.size))  # (B, size, V)
        full = (length >= self.limits)[:, None, None] & (torch.arange(words, device=scores.device) != self.end)
        totals = (self.totals[..., None] + gains.masked_fill(full, -torch.inf)).flatten(1)  # (B, size · V)
        totals, chosen = totals.topk(self.size)  # (B, size), best first; NaN would be the best
        _refuse_nan(totals)
        origin, token = chosen // words, chosen % words
        there = (torch.arange(self.size, device=scores.device) < self.places[:, None]) & totals.isfinite()
        over = there & (token == self.end)
        self._keep(over, origin, totals / (length + 1) ** self.length_penalty)
        self.places = self.places - over.sum(-1)
        self.totals = totals.masked_fill(over | ~there, -torch.inf)
        before = self.written.gather(1, origin[..., None].expand(-1, -1, length))  # (B, size, t)
        self.written = torch.cat((before, token[..., None]), dim=-1)  # (B, size, t + 1)
        return self._going(origin)

    def _keep(self, over: Tensor, origin: Tensor, scores: Tensor) -> None:
        """Put the texts that are over among those that have ended."""
        for row, place in over.nonzero().tolist():
            text = self.written[row, origin[row, place]].tolist()
            self.ended[int(self.sentences[row])].append(Hypothesis(text, float(scores[row, place])))

    def _going(self, origin: Tensor) -> Tensor:
        """Leave out sentences in which nothing goes on, and give the row that each row of the others comes from."""
        going = self.totals.isfinite().any(-1)
        going |= going.sum() > _LEAVING * len(going)
        rows = torch.arange(len(origin), device=origin.device)[:, None] * self.size + origin  # (B, size)
        self.sentences, self.places, self.limits = self.sentences[going], self.places[going], self.limits[going]
        self.totals, self.written = self.totals[going], self.written[going]
        return rows[going].flatten()


def _written(
    model: Any, memory: Any, tokens: Tensor, limits: Tensor, end: int, choose: Callable[[Tensor], Tensor]
) -> list[Hypothesis]:
    """One text a row, its words chosen one by one from their scores (R, V)."""
    texts: list[list[int]] = [[] for _ in tokens]
    totals = [0.0] * len(texts)
    rows, going, length = list(range(len(texts))), set(range(len(texts))), 0  # the text of each row; those that go on
    while going:
        scores = model.step(tokens, memory).float()  # (R, V)
        tokens, length = torch.where(length >= limits, end, choose(scores)), length + 1  # (R,)
        gained = -nn.functional.cross_entropy(scores, tokens, reduction="none")  # (R,)
        _refuse_nan(gained)
        for row, token, gain in zip(rows, tokens.tolist(), gained.tolist(), strict=True):
            if row in going:
                totals[row] += gain
                texts[row] += [token] if token != end else []
                going -= {row} if token == end else set()
        if going and len(going) <= _LEAVING * len(rows):
            places = [place for place, row in enumerate(rows) if row in going]
            memory.reorder(places)
            tokens, limits, rows = tokens[places], limits[places], [rows[place] for place in places]
    return [Hypothesis(text, total) for text, total in zip(texts, totals, strict=True)]


def _refuse_nan(totals: Tensor) -> None:
    if totals.isnan().any():
        raise InputError(
            "a model that writes gives each word a score",
            got="NaN",
            fix="look for NaN in its parameters: training may have failed",
        )


@contextmanager
def _begun(
    model: Any, source: Tensor, lengths: Tensor | None, start: int, longest: int | None
) -> Iterator[tuple[Any, Tensor, Tensor]]:
    """The memory, the tokens to go on from, and how many tokens each text may have; within, the model is in eval mode."""
    if longest is not None:
        check.whole_number("longest", longest, minimum=0)
    own = torch.full((len(source),), source.shape[1]) if lengths is None else torch.as_tensor(lengths)
    own = own.to(source.device)
    limits = 2 * own + 10 if longest is None else torch.full_like(own, longest)
    with evaluating(model):
        if isinstance(model, LanguageModel):
            _refuse_no_prompt(own)
            last = source.gather(1, (own - 1)[:, None])[:, 0]
            yield model.start(source[:, :-1], lengths=own - 1), last, limits
        else:
            yield model.start(source, source_lengths=lengths), torch.full_like(own, start), limits


def _refuse_no_prompt(lengths: Tensor) -> None:
    if (lengths < 1).any():
        raise InputError(
            "a language model goes on from at least one token", got="a prompt of none", fix="begin it with the start token"
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout within the block, and as before after it."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
