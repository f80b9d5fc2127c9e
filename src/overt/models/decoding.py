"""Generate text with a model, word by word: the most probable next word (greedy), a sampled one, or the best texts (beam).

A model gives the probability of a text as a product, p(y | x) = Π_t p(y_t | x, y_1 … y_(t−1)). Every text ends with the end token,
whose probability is included; after `longest` tokens only the end may follow. So the probabilities of all texts sum to 1.

A translator starts from its source and the start token. A language model has no source: it continues a prompt.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.attention import check
from overt.errors import InputError
from overt.models.language_model import LanguageModel

# _ACTIVE_SHARE: finished rows are removed if at most this share of the rows is active, since removal copies the others' memory.
_ACTIVE_SHARE = 0.75


class Hypothesis(NamedTuple):
    """A generated text: its tokens, without start and end, and its score.

    The score is Σ_t log p(y_t | …), including the end token, in nats; `beam_search` divides it by a power of the text's length.

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
    """Take the most probable next word until the end token: one hypothesis for each row of the source (B, S).

    `longest` is the maximum number of tokens, by default 2 · S + 10 for a source of S tokens. Meanwhile the model is in eval mode.

    >>> from overt.models import Transformer
    >>> model = Transformer(9, 9, width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16)
    >>> [text] = greedy_search(model, torch.tensor([[5, 7, 2]]), longest=4)
    >>> len(text.tokens) <= 4, text.score < 0
    (True, True)
    """
    with _started(model, source, source_lengths, start, longest) as started:
        return _decode(model, *started, end, lambda scores: scores.max(-1).indices)  # faster than argmax, with the same result


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
    """Sample each word from softmax(scores / temperature): one hypothesis for each row of the source (B, S).

    `top_k` keeps only the k most probable words (Fan et al. 2018, section 5.1), `top_p` only the fewest most probable words with at least
    this total probability (Holtzman et al. 2020, section 3.1). The score is the model's, without temperature, `top_k` and `top_p`.
    The other arguments are `greedy_search`'s.

    >>> from overt.models import Transformer
    >>> model = Transformer(9, 9, width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16)
    >>> source = torch.tensor([[5, 7, 2]])
    >>> samples = [sample(model, source, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    >>> samples[0] == samples[1], sample(model, source, top_k=1)[0].tokens == greedy_search(model, source)[0].tokens
    (True, True)
    """
    check.positive("temperature", temperature)
    if top_k is not None:
        check.whole_number("top_k", top_k)
    if top_p is not None:
        check.positive("top_p", top_p)

    def choose(scores: Tensor) -> Tensor:
        probabilities = filter_probabilities(torch.softmax(scores / temperature, dim=-1), top_k, top_p)
        return torch.multinomial(probabilities, 1, generator=generator)[:, 0]

    with _started(model, source, source_lengths, start, longest) as started:
        return _decode(model, *started, end, choose)


def filter_probabilities(probabilities: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """The probabilities (R, V) with zeros except for the k largest, and except for the fewest largest that sum to p.

    >>> filter_probabilities(torch.tensor([[0.5, 0.1, 0.25, 0.15]]), top_p=0.7)
    tensor([[0.5000, 0.0000, 0.2500, 0.0000]])
    """
    ranked, words = probabilities.sort(dim=-1, descending=True, stable=True)  # (R, V)
    before = ranked.cumsum(-1) - ranked  # (R, V), the sum of all larger probabilities
    excluded = torch.zeros_like(ranked, dtype=torch.bool) if top_p is None else before >= top_p * ranked.sum(-1, keepdim=True)
    excluded[:, top_k:] |= top_k is not None
    return torch.zeros_like(probabilities).scatter(-1, words, ranked.masked_fill(excluded, 0))


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
    """Extend the `size` most probable texts in each step: the `best` of them for each row of the source (B, S), best first.

        score(y) = Σ_t log p(y_t | …) / |y|^length_penalty        |y| counts the tokens of y and its end

    Each step extends every text of the beam by every word, and keeps the most probable results. A finished text stays in the
    beam, so the search ends when `size` texts are finished. With length_penalty 0 the score is the log probability, which
    favours short texts; with 1 it is the mean over the tokens. There may be fewer texts than `best` if few exist.
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
        raise InputError("best of at most size", got=f"best={best}, size={size}", fix="increase size")
    with _started(model, source, source_lengths, start, longest) as (memory, tokens, limits):
        if len(tokens) == 0:
            return []
        memory.reorder(torch.arange(len(tokens)).repeat_interleave(size))
        beams = _Beams(len(tokens), size, end, length_penalty, limits)
        tokens = tokens.repeat_interleave(size)
        while len(beams.sentences):
            rows = beams.advance(model.step(tokens, memory).float())
            if len(beams.sentences):
                memory.reorder(rows)
                tokens = beams.tokens[:, :, -1].flatten()
    return [sorted(texts, key=lambda text: -text.score)[:best] for texts in beams.finished]


class _Beams:
    """The beams of all sentences with active texts, B · size rows; a text that is finished or invalid has log probability −∞."""

    def __init__(self, sentences: int, size: int, end: int, length_penalty: float, limits: Tensor):
        self.size, self.end, self.length_penalty, self.limits = size, end, length_penalty, limits
        self.finished: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        device = limits.device
        self.sentences = torch.arange(sentences, device=device)  # (B,)
        self.active = torch.full((sentences,), size, device=device)  # (B,) the number of texts that are not finished
        self.tokens = torch.empty(sentences, size, 0, dtype=torch.long, device=device)  # (B, size, t)
        # All texts of a beam start equal, so only the first one counts.
        self.totals = torch.full((sentences, size), -torch.inf, device=device)  # (B, size)
        self.totals[:, 0] = 0

    def advance(self, scores: Tensor) -> Tensor:
        """Extend the texts by a word with the scores (B · size, V), and return the row that each new row continues."""
        length, words = self.tokens.shape[-1], scores.shape[-1]
        log_probabilities = torch.log_softmax(scores, dim=-1).unflatten(0, (-1, self.size))  # (B, size, V)
        too_long = (length >= self.limits)[:, None, None] & (torch.arange(words, device=scores.device) != self.end)
        totals = (self.totals[..., None] + log_probabilities.masked_fill(too_long, -torch.inf)).flatten(1)  # (B, size · V)
        totals, indices = totals.topk(self.size)  # (B, size), best first; topk takes NaN for the largest
        _refuse_nan(totals)
        parents, tokens = indices // words, indices % words
        valid = (torch.arange(self.size, device=scores.device) < self.active[:, None]) & totals.isfinite()
        ended = valid & (tokens == self.end)
        rows, ranks = ended.nonzero(as_tuple=True)
        texts = self.tokens[rows, parents[rows, ranks]].tolist()
        penalized = (totals[rows, ranks] / (length + 1) ** self.length_penalty).tolist()
        for sentence, text, score in zip(self.sentences[rows].tolist(), texts, penalized, strict=True):
            self.finished[sentence].append(Hypothesis(text, score))
        self.active = self.active - ended.sum(-1)
        self.totals = totals.masked_fill(ended | ~valid, -torch.inf)
        before = self.tokens.gather(1, parents[..., None].expand(-1, -1, length))  # (B, size, t)
        self.tokens = torch.cat((before, tokens[..., None]), dim=-1)  # (B, size, t + 1)
        return self._active_rows(parents)

    def _active_rows(self, parents: Tensor) -> Tensor:
        """Remove sentences without active texts, and return the row that each row of the others continues."""
        active = self.totals.isfinite().any(-1)
        active |= active.sum() > _ACTIVE_SHARE * len(active)
        rows = torch.arange(len(parents), device=parents.device)[:, None] * self.size + parents  # (B, size)
        self.sentences, self.active, self.limits = self.sentences[active], self.active[active], self.limits[active]
        self.totals, self.tokens = self.totals[active], self.tokens[active]
        return rows[active].flatten()


def _decode(
    model: Any, memory: Any, tokens: Tensor, limits: Tensor, end: int, choose: Callable[[Tensor], Tensor]
) -> list[Hypothesis]:
    """Decode one text for each row; `choose` selects the next words from their scores (R, V)."""
    texts: list[list[int]] = [[] for _ in tokens]
    totals = [0.0] * len(texts)
    rows, active, length = list(range(len(texts))), set(range(len(texts))), 0  # the text of each row; unfinished texts
    while active:
        scores = model.step(tokens, memory).float()  # (R, V)
        tokens, length = torch.where(length >= limits, end, choose(scores)), length + 1  # (R,)
        log_probabilities = -nn.functional.cross_entropy(scores, tokens, reduction="none")  # (R,)
        _refuse_nan(log_probabilities)
        for row, token, log_probability in zip(rows, tokens.tolist(), log_probabilities.tolist(), strict=True):
            if row in active:
                totals[row] += log_probability
                texts[row] += [token] if token != end else []
                active -= {row} if token == end else set()
        if active and len(active) <= _ACTIVE_SHARE * len(rows):
            indices = [index for index, row in enumerate(rows) if row in active]
            memory.reorder(indices)
            tokens, limits, rows = tokens[indices], limits[indices], [rows[index] for index in indices]
    return [Hypothesis(text, total) for text, total in zip(texts, totals, strict=True)]


def _refuse_nan(totals: Tensor) -> None:
    if totals.isnan().any():
        raise InputError(
            "a number as the model's score of each word",
            got="NaN",
            fix="look for NaN in its parameters: training may have failed",
        )


@contextmanager
def _started(
    model: Any, source: Tensor, lengths: Tensor | None, start: int, longest: int | None
) -> Iterator[tuple[Any, Tensor, Tensor]]:
    """The memory, the tokens to continue, and the maximum number of tokens of each text; inside, the model is in eval mode."""
    if longest is not None:
        check.whole_number("longest", longest, minimum=0)
    known = torch.full((len(source),), source.shape[1]) if lengths is None else torch.as_tensor(lengths)
    known = known.to(source.device)
    limits = 2 * known + 10 if longest is None else torch.full_like(known, longest)
    with evaluating(model):
        if isinstance(model, LanguageModel):
            if (known < 1).any():
                raise InputError("a prompt of at least one token", got="an empty prompt", fix="begin it with the start token")
            last = source.gather(1, (known - 1)[:, None])[:, 0]
            yield model.start(source[:, :-1], lengths=known - 1), last, limits
        else:
            yield model.start(source, source_lengths=lengths), torch.full_like(known, start), limits


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within the block the model is in eval mode, so without dropout."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
