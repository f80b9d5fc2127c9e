"""The score of one query and key, split by the parts of the model that wrote their streams."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.errors import InputError, KindError
from overt.lens.analysis.contributions.arguments import Recorded, checked_calls, checked_model
from overt.lens.analysis.contributions.parts import encoder_predicate, frozen_in, obstacle
from overt.lens.analysis.contributions.traced import Traced
from overt.lens.analysis.scores.form import ProductForm, product_form
from overt.lens.analysis.scores.result import Position, ScoreContributions, ScorePart
from overt.lens.analysis.scores.runs import LATEST
from overt.lens.analysis.scores.sides import Followed, followed
from overt.lens.capture.recordable import recordable
from overt.lens.captured import MASKED_GAP, CapturedCall
from overt.lens.head import Head
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.text.named import position_named
from overt.lens.tokens import Words

_PAIRED = 5  # strongest parts of each side whose pairs are computed one by one


def score_contributions(
    recording: RecordedCalls,
    model: nn.Module,
    *,
    head: tuple[int | str, int],
    query: int | str,
    key: int | str,
    against: int | str | None = None,
    relative: bool = False,
    inputs: Mapping[str, Any] | Tensor | None = None,
) -> ScoreContributions:
    """Split a head's score of one query and key by the parts that wrote the query's stream and those that wrote the key's.

        score = scale · q · k = Σ_a Σ_b scale · q_a · k_b        q = Σ_a q_a,  k = Σ_b k_b

    Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section on QK circuits. a and b are embeddings, earlier heads
    (by source token in `why.key.by_token`), feed-forward layers and biases. A picture, sound or vectors passed to the model are an
    embedding too, by the argument's name; a result of parameters only, such as a learned query, is a constant. The paths are those
    of `contributions`, followed backwards from query and key. Rotations are linear; the scales of norms on the way (also of query and
    key) are frozen at their values in this run, and `why.frozen` names them. A softcap is not linear: the parts sum to the score before
    it, and `why.slope` is the share of a small change that passes it. A position bias is a part of its own. Only the direct effect
    counts, not that a part changes later parts.

    `head` is (layer, head) as in `recording[layer, head]`; `query` and `key` are words, "the:2" for a second one, or numbers. `against`
    names another key, whose score is subtracted. With `relative`, the mean score of all other keys of the row is subtracted. `inputs` are
    the arguments of the recorded pass, as for `contributions`.

    The model runs once more; its graph stays in memory for the next score of the same recording. Raises InputError if the words, the
    head, the model or the inputs do not belong to the recording, for masked keys, and if the score is no product of query and key.

    >>> import torch, overt
    >>> model = overt.models.LanguageModel(50, width=16, heads=2, layers=2, feed_forward=32).eval()
    >>> with overt.lens.record(model) as recording:
    ...     scores = model(torch.tensor([[3, 7, 9, 7]]))
    >>> why = overt.lens.score_contributions(recording, model, head=(1, 0), query=3, key=1)
    >>> why.holds, sorted({part.kind for part in why.key.parts})
    (True, ['bias', 'constant', 'embedding', 'feed-forward', 'head'])
    """
    model = recordable(checked_model(model))
    calls = checked_calls(recording, model, "the parts of a score")
    question = _question(recording, head, query, key, against, relative)
    form, (masked, bias) = product_form(question.head, question.row.position), _masked(question.head, question.row.position)
    coefficients = _coefficients(masked, question)
    with LATEST.lock:
        run = LATEST.traced_run(recording, model, calls, inputs)
        index = next(number for number, captured in enumerate(calls) if captured.number == question.head.captured.number)
        sides, frozen, stopped = _sides(run, index, calls, recording, question, form, coefficients)
        pairs = _pairs(*sides, form, coefficients)
    number = _product_score(question, form, bias, coefficients)
    position = 0.0 if form.softcap is not None else number.position
    encodes = encoder_predicate(model) if stopped else str
    return ScoreContributions(
        layer=question.head.layer,
        head=(recording.number_of(question.head.captured), question.head.head),
        row=question.row,
        column=question.column,
        against=question.against,
        relative=relative,
        score=number.product + position,
        parts=(*pairs, *([ScorePart(None, None, position, "position")] if position else [])),
        query=sides[0].side,
        key=sides[1].side,
        position=position,
        weight=float(question.head.weights(question.row.position)[0, 0, question.column.position]),
        softcapped=number.softcapped,
        slope=number.slope(question.column.position),
        frozen=(*frozen, *form.frozen),
        notes=(*number.notes(form), *(note for layer, note in stopped.items() if not encodes(layer))),
        tokens=_words_of_calls(recording, calls[:index]),
        model=type(model).__name__,
    )


class _Question(NamedTuple):
    """The head, query and key of the question, and the key to compare with."""

    head: Head
    row: Position
    column: Position
    against: Position | None
    relative: bool


def _question(recording: RecordedCalls, head: Any, query: Any, key: Any, against: Any, relative: bool) -> _Question:
    chosen = _head(recording, head)
    words = chosen.query_tokens, chosen.key_tokens
    row, column = _position("query", query, words[0], chosen.queries), _position("key", key, words[1], chosen.keys)
    other = None if against is None else _position("key", against, words[1], chosen.keys)
    if other is not None and (relative or other.position == column.position):
        got = "relative=True as well" if relative else f"key {column.position} for both"
        raise InputError("a key to compare with that is another one", got=got, fix="leave one of them out")
    return _Question(chosen, row, column, other, relative)


def _head(recording: RecordedCalls, head: Any) -> Head:
    if not isinstance(head, tuple) or len(head) != 2:
        raise KindError("a head as a pair (layer, head)", got=f"head={head!r}", fix="write head=(5, 11)")
    chosen = recording[head]
    if not isinstance(chosen.captured, CapturedCall):
        raise InputError(
            "a head of attention, whose score is a product of query and key",
            got=f"{chosen.layer}, a linear token mixer, whose weights are no function of scores",
            fix="choose a layer of attention; recording.layers lists them",
        )
    return chosen


def _position(what: str, name: Any, words: Words | None, length: int) -> Position:
    position = position_named(what, name, words, length)
    return Position(position, None if words is None else str(words[0][position]))


@torch.no_grad()
def _masked(head: Head, row: int) -> tuple[Tensor, Tensor]:
    """The model's scores of one row before the softmax, −inf if masked (also by a number far below the others), and their bias."""
    steps = head.stages(row, row + 1)
    scores, masked = steps.scores[0, 0].double(), steps.masked[0, 0].double()
    hidden = masked < masked.max() - MASKED_GAP
    return torch.where(hidden, -torch.inf, masked), torch.where(hidden, 0, masked - scores)


def _coefficients(masked: Tensor, question: _Question) -> Tensor:
    """The factor of each key's score in the number that is split, (K,)."""
    visible = masked > -torch.inf
    if not bool(visible.any()):
        got = f"query {question.row.position}, which may attend to none"
        raise InputError("a query that may attend to a key", got=got, fix="choose another query")
    for token in (question.column, *([] if question.against is None else [question.against])):
        if not bool(visible[token.position]):
            choice = f"choose one of {int(visible.sum())} keys, the last of them {int(visible.nonzero().max())}"
            raise InputError(
                f"a key that query {question.row.position} may attend to",
                got=f"key {token.position}, which is masked for it",
                fix=choice,
            )
    coefficients, others = torch.zeros_like(masked), visible.clone()
    others[question.column.position] = False
    if question.relative:
        coefficients[others] = -1.0 / max(int(others.sum()), 1)
    coefficients[question.column.position] = 1.0
    if question.against is not None:
        coefficients[question.against.position] = -1.0
    return coefficients


class _Score:
    """The model's own score, and the terms of it that are not in the parts."""

    def __init__(self, product: Tensor, bias: Tensor, coefficients: Tensor, softcap: float | None):
        self.product: float = float(product[coefficients != 0] @ coefficients[coefficients != 0])
        capped = product if softcap is None else softcap * torch.tanh(product / softcap)
        used = coefficients != 0
        self.position: float = float(bias[used] @ coefficients[used])
        self.softcapped: float | None = None if softcap is None else float(capped[used] @ coefficients[used]) + self.position
        self._slopes = torch.ones_like(product) if softcap is None else 1 - torch.tanh(product / softcap).square()

    def slope(self, key: int) -> float:
        """The share of a small change of this key's product that reaches its score."""
        return float(self._slopes[key])

    def notes(self, form: ProductForm) -> list[str]:
        """The notes that a reader of the parts needs."""
        if form.softcap is None:
            return []
        return [
            f"a softcap of {form.softcap:g} bounds the scores: these are the scores before it, without what is added after it"
        ]


@torch.no_grad()
def _product_score(question: _Question, form: ProductForm, bias: Tensor, coefficients: Tensor) -> _Score:
    product = form.toward_query(question.head.key[0]) @ question.head.query[0, question.row.position].double()
    return _Score(product, bias, coefficients, form.softcap)


def _sides(
    run: Traced,
    index: int,
    calls: list[Recorded],
    recording: RecordedCalls,
    question: _Question,
    form: ProductForm,
    coefficients: Tensor,
) -> tuple[tuple[Followed, Followed], tuple[str, ...], dict[str, str]]:
    """Both sides, the frozen factors on their paths, and the earlier layers that neither reaches, with the function that stops them."""
    row, keys = _on_the_paths(run, index, question.head, question.row.position)
    query_factor = (coefficients @ form.toward_query(keys.detach()))[None]
    key_factor = coefficients[:, None] * form.toward_keys(row[0].detach())
    frozen, unreached, sides = [], {point.layer: "" for point in run.points[:index]}, []
    for name, vectors, factor in (("query", row, query_factor), ("key", keys, key_factor)):
        run.forget()
        sides.append(followed(name, run, index, calls, recording, vectors, factor))
        frozen += frozen_in(run)
        for point in run.points[:index]:
            if point.gradient is not None:
                unreached.pop(point.layer, None)
            elif point.layer in unreached:
                unreached[point.layer] = f"{point.layer} reaches it only through {obstacle(run, point)}, a part of its own"
    run.forget()
    return (sides[0], sides[1]), tuple(dict.fromkeys(frozen)), unreached


def _on_the_paths(run: Traced, index: int, head: Head, row: int) -> tuple[Tensor, Tensor]:
    """The query (1, D) and the keys (K, D) of a head in this run, on the linear paths."""
    query, key = run.points[index].query, run.points[index].key
    shapes = head.call.query.shape, head.call.key.shape
    if query is None or key is None or (query.shape, key.shape) != shapes:
        raise InputError(
            "a head whose query and key can be followed back through functions of torch",
            got=f"{head.layer}, which copies them to another layout",
            fix='load the model with attn_implementation="sdpa" or "eager"',
        )
    with torch.enable_grad():
        return head.part_of(query)[0, row : row + 1], head.part_of(key)[0]


def _pairs(query: Followed, key: Followed, form: ProductForm, coefficients: Tensor) -> list[ScorePart]:
    """The products of the strongest parts of both sides, and the remaining terms, which all sum to the query's side."""
    rows, columns = query.side.strongest(_PAIRED), key.side.strongest(_PAIRED)
    # The gradient with respect to the other factor is the part's term of query or key; the key's factor includes the coefficients.
    parts_of_keys = [key.vectors(part) for part in columns]
    pairs = []
    for part in rows:
        toward = coefficients[:, None] * form.toward_keys(query.vectors(part)[0])
        values = [float((toward * vectors).sum()) for vectors in parts_of_keys]
        pairs += [ScorePart(part, other, value) for other, value in zip(columns, values, strict=True)]
        pairs.append(ScorePart(part, None, part.value - sum(values)))
    for other in columns:
        pairs.append(ScorePart(None, other, other.value - sum(pair.value for pair in pairs if pair.key is other)))
    pairs.append(ScorePart(None, None, query.side.sum - sum(pair.value for pair in pairs)))
    return pairs


def _words_of_calls(recording: RecordedCalls, calls: list[Recorded]) -> dict[int, list[str]]:
    """The words of the keys of each call, by its number, if they are known."""
    fitting = [captured for captured in calls if recording.strings.known and recording.strings.fit(captured)]
    words = {recording.number_of(captured): recording.strings.key_words(captured) for captured in fitting}
    return {number: [str(word) for word in sentences[0]] for number, sentences in words.items() if sentences}
