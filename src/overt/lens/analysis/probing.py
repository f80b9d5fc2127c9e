"""A probe for induction: random words whose blocks repeat at varying distances, and the attention of each head to the copies."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from overt.attention import check
from overt.drawing.progress import progress
from overt.errors import InputError, OvertError
from overt.lens.analysis.observing import evaluated, observing
from overt.lens.analysis.surveys.reading.text_module import ENCODER_ONLY, text_module
from overt.lens.capture.recordable import recordable
from overt.lens.captured import Captured, CapturedCall
from overt.lens.head import head_name
from overt.lens.linear.captured import CapturedMixer
from overt.lens.statistics.repetition import PatternTotals, pattern_scores, weight_rows
from overt.lens.statistics.roles import DECISIVE_SHARE, PatternScore
from overt.lens.text.vocabulary import inner_tokenizer, read_vocabulary
from overt.lens.tokens import is_cross_attention

PATTERNS = ("induction", "duplicate token", "previous token")
# _SHORTEST: fewest words of a text in which blocks repeat; _LENGTH: words of a text by default; _TEXTS: texts by default.
_SHORTEST, _LENGTH, _TEXTS = 32, 256, 16
_SCORES_TOGETHER = 2**26  # most logits of a language model for one batch
# _SMALLEST_SHARE: least vocabulary of a tokenizer, as a share of the embeddings; padding to round sizes takes less than the other 0.1.
_SMALLEST_SHARE = 0.9


@dataclass(frozen=True)
class ProbedHead:
    """The scores of one head in a probe: the `PatternScore` of "induction", "duplicate token" and "previous token".

    >>> import overt
    >>> scores = {"induction": overt.lens.PatternScore(share=0.9, low=0.8, high=0.96, chance=0.1, queries=60)}
    >>> ProbedHead("layers.1", number=1, head=0, scores=scores).role
    'induction'
    """

    layer: str
    number: int
    head: int
    scores: dict[str, PatternScore] = field(repr=False)

    @property
    def role(self) -> str:
        """The pattern with at least half of the weight, above chance; "" if there is none."""
        shares = {name: score.share for name, score in self.scores.items() if score.above_chance}
        best = max(shares, key=lambda name: shares[name], default="")
        return best if shares.get(best, 0.0) >= DECISIVE_SHARE else ""


@dataclass(frozen=True, eq=False, repr=False)
class Probe:
    """The result of `probe`: `heads`, call by call, printed as a table; `missing` names the calls that were not measured, and why.

    `probe[layer, head]` is one head, with the layer as the number of its call or as its name.

    >>> import overt
    >>> model = overt.models.LanguageModel(50, width=16, heads=2, layers=1, feed_forward=32)
    >>> print(overt.lens.probe(model, sequences=4, length=64).missing)
    ()
    """

    model: str
    heads: tuple[ProbedHead, ...]
    sequences: int
    length: int
    distances: tuple[int, int]
    seed: int
    missing: tuple[tuple[str, str], ...]

    def __getitem__(self, layer_and_head: tuple[int | str, int]) -> ProbedHead:
        layer, head = layer_and_head
        for entry in self.heads:
            if layer in (entry.number, entry.layer) and head == entry.head:
                return entry
        numbers = [head.number for head in self.heads]
        got, fix = f"{layer!r}, head {head}", "see print(probe)"
        raise InputError(f"a head of the calls {min(numbers)} to {max(numbers)} of {self.model}", got=got, fix=fix)

    def __str__(self) -> str:
        low, high = self.distances
        lines = [
            f"{self.model}: {self.sequences} texts of {self.length} random words; blocks of {low} to {high} words occur twice, "
            f"seed {self.seed}",
            "mean weight [95 % interval] chance; * above chance",
            "",
            "head    " + "  ".join(name.ljust(24) for name in PATTERNS) + "  role",
        ]
        for head in self.heads:
            cells = "  ".join(_cell(head.scores.get(name)) for name in PATTERNS)
            lines.append(f"{head_name(head.number, head.head):6}  {cells}  {head.role}".rstrip())
        layers = dict.fromkeys((head.number, head.layer) for head in self.heads)
        lines += ["", "layers: " + ", ".join(f"L{number} {layer}" for number, layer in layers)]
        return "\n".join([*lines, *(f"not measured: {name}: {reason}" for name, reason in self.missing)])

    __repr__ = __str__


def _cell(score: PatternScore | None) -> str:
    if score is None:
        return "–".ljust(24)
    mark = "*" if score.above_chance else " "
    return f"{score.share:.2f}{mark}[{score.low:.2f}, {score.high:.2f}] {score.chance:.2f}".ljust(24)


def probe(
    model: nn.Module,
    tokenizer: Any = None,
    *,
    vocabulary: int | None = None,
    sequences: int = _TEXTS,
    length: int | None = None,
    seed: int = 0,
    run: Callable[[Tensor], Any] | None = None,
) -> Probe:
    """Measure the induction, duplicate-token and previous-token heads of a model on random words that repeat at varying distances.

    Each text is a row of blocks of different random words, and each block occurs twice, one copy after the other. Blocks differ in
    length, so the distance to the earlier copy varies: at a fixed distance, a head that always attends that far back would pass for an
    induction head (Olsson et al. 2022, "Definition of an induction head", repeat 25 tokens; here they are 8 to 32 by default).

    The words are the `tokenizer`'s without its special tokens; a text begins, and for masked models ends, with the special tokens that
    the tokenizer has for this. A model of plain ids needs no tokenizer: its embedding gives the number of words, or `vocabulary` does
    (words 0 to `vocabulary` − 1). `length` is the number of words of a text (256, or as many as the model has positions). `run` runs the
    model on ids (B, n) if `model(ids)` does not. The model runs in evaluation mode, without gradients, a few texts at a time, and no
    weights are kept, so memory is the model's own. Afterwards the mode of each module is restored.

    Intervals are as in `PatternScore`, with all queries of a block as one. Raises InputError if the model takes no ids, the tokenizer
    has another vocabulary, or texts are too short or longer than the model's positions.

    >>> import torch, overt
    >>> model = overt.models.LanguageModel(50, width=16, heads=2, layers=1, feed_forward=32)
    >>> result = overt.lens.probe(model, sequences=4, length=64)
    >>> [head.role for head in result.heads], result[0, 1].scores["induction"].above_chance
    (['', ''], False)
    """
    model = recordable(model)
    check.whole_number("sequences", sequences)
    words, before, behind = _vocabulary(model, tokenizer, vocabulary)
    length = _checked_length(model, length, len(before) + len(behind))
    distances = _distances(length)
    if len(words) < distances[1]:
        got, fix = f"{len(words)} words", "pass shorter texts: length="
        raise InputError(f"a vocabulary of at least {distances[1]} words, for blocks of different words", got=got, fix=fix)
    generator = torch.Generator().manual_seed(seed)
    texts = [_text(words, length, distances, generator) for _ in range(sequences)]
    # The special tokens at both ends are a block of their own.
    ids = torch.stack([torch.cat([before, text, behind]) for text, _ in texts])
    ends = [torch.zeros(len(part), dtype=torch.long) for part in (before, behind)]
    groups = torch.stack([torch.cat([ends[0], blocks + 1, ends[1]]) for _, blocks in texts])
    measure = _Measure(model, text_module(model) if run is None else model)
    together = max(1, min(8, _SCORES_TOGETHER // (ids.shape[1] * max(int(words.max()), 1))))
    with evaluated(model), torch.no_grad():
        parts = list(zip(ids.split(together), groups.split(together), strict=True))
        for part, group in progress(parts, "running the probe"):
            measure.run(part, group, run)
    return Probe(type(model).__name__, measure.heads(), sequences, length, distances, seed, tuple(measure.missing))


class _Measure:
    """Runs the `module` of a model that reads the text, and adds up the scores of each head during the call."""

    def __init__(self, model: nn.Module, module: nn.Module):
        self.model, self.module, self.device = model, module, _device(model)
        self.totals: dict[int, dict[str, Tensor]] = {}
        self.calls: dict[int, Captured] = {}
        self.missing: list[tuple[str, str]] = [] if module is model else [("decoder", ENCODER_ONLY)]

    def run(self, ids: Tensor, groups: Tensor, run: Callable[[Tensor], Any] | None) -> None:
        """Run the model once on ids (B, n), whose tokens belong to `groups`."""
        with observing(self.model, lambda captured: self._add(captured, ids, groups)) as recorder:
            _called(self.module, ids.to(self.device), run)
        self.missing += [absence for absence in recorder.missing if absence not in self.missing]

    def _add(self, captured: CapturedCall | CapturedMixer, ids: Tensor, groups: Tensor) -> None:
        shape = (captured.batch, captured.queries, captured.keys)
        if shape != (*ids.shape, ids.shape[1]) or is_cross_attention(captured):
            note = (captured.layer, "its queries and keys are not the tokens of the text")
            self.missing += [note] if note not in self.missing else []
            return
        totals = PatternTotals(ids, groups, captured.queries, patterns=PATTERNS)
        for first, weights, allowed in weight_rows(captured, [(0, captured.queries)]):
            totals.add(first, weights, allowed)
        number, one = captured.call_index, totals.totals()
        self.calls[number] = replace(Captured(**captured.facts), heads=captured.copies)
        known = self.totals.get(number)
        self.totals[number] = one if known is None else {name: known[name] + one[name] for name in one}

    def heads(self) -> tuple[ProbedHead, ...]:
        """The scores of all heads. Raises InputError if no head was measured."""
        if not self.totals:
            reasons = "; ".join(dict.fromkeys(f"{name}: {reason}" for name, reason in self.missing)) or "no attention ran"
            got = f"{type(self.model).__name__} ({reasons})"
            raise InputError("a model with self-attention over its tokens", got=got, fix="see overt.lens.record")
        return tuple(
            ProbedHead(self.calls[number].layer, number, head, scores)
            for number in sorted(self.totals)
            for head, scores in zip(self.calls[number].heads, pattern_scores(self.totals[number]), strict=True)
        )


def _distances(length: int) -> tuple[int, int]:
    """The lengths of the shortest and the longest block of a text."""
    return max(4, length // 32), max(8, length // 8)


def _text(words: Tensor, length: int, distances: tuple[int, int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The ids of a text, and the block number of each id."""
    ids, blocks, order = [], [], words[:0]
    while sum(map(len, ids)) < length:
        size = int(torch.randint(distances[0], distances[1] + 1, (1,), generator=generator))
        if len(order) < size:
            order = words[torch.randperm(len(words), generator=generator)]
        block, order = order[:size], order[size:]
        ids.append(block.repeat(2))
        blocks.append(torch.full((2 * size,), len(blocks)))
    return torch.cat(ids)[:length], torch.cat(blocks)[:length]


def _vocabulary(model: nn.Module, tokenizer: Any, vocabulary: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """The ids of the words that are not special tokens, and the special tokens before and after a text."""
    rows, none = _embedded(model), torch.zeros(0, dtype=torch.long)
    if tokenizer is None:
        if vocabulary is not None:
            check.whole_number("vocabulary", vocabulary)
        count = vocabulary or rows
        if count is None:
            got, fix = f"{type(model).__name__}, whose embedding is not known", "pass vocabulary=, the number of its words"
            raise InputError("the size of the model's vocabulary", got=got, fix=fix)
        if rows is not None and count > rows:
            got = f"vocabulary={count}"
            raise InputError(f"at most the {rows:,} words of the model", got=got, fix="leave vocabulary= out")
        return torch.arange(count), none, none
    entries = read_vocabulary(tokenizer)
    if rows is not None and not _SMALLEST_SHARE * rows <= entries.size <= rows:
        got, fix = f"a tokenizer of {entries.size:,}", "pass the tokenizer with which the model was trained"
        raise InputError(f"a tokenizer of the model's vocabulary, {rows:,} words", got=got, fix=fix)
    tokenizer = inner_tokenizer(tokenizer)
    begin = _first_id(tokenizer, "bos_token_id", "cls_token_id")
    end = _first_id(tokenizer, "sep_token_id") if getattr(tokenizer, "cls_token_id", None) is not None else []
    return torch.tensor(entries.words()), torch.tensor(begin).long(), torch.tensor(end).long()


def _first_id(tokenizer: Any, *names: str) -> list[int]:
    numbers = [number for name in names if (number := getattr(tokenizer, name, None)) is not None]
    return numbers[:1]


def _embedding(model: nn.Module) -> nn.Embedding | None:
    """The embedding of the words: of a Hugging Face model, of a model of overt, or the only embedding of the model."""
    if callable(getattr(model, "get_input_embeddings", None)):
        with torch.no_grad():
            embedding = model.get_input_embeddings()  # type: ignore[operator]
        return embedding if isinstance(embedding, nn.Embedding) else None
    embeddings = {name: module for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    tables = [embedding for name, embedding in embeddings.items() if name.endswith("embedding.table")] or [*embeddings.values()]
    return tables[0] if len(tables) == 1 else None


def _embedded(model: nn.Module) -> int | None:
    embedding = _embedding(model)
    return None if embedding is None else embedding.num_embeddings


def _device(model: nn.Module) -> torch.device:
    embedding = _embedding(model)
    tensors = [*(embedding or model).parameters()]
    return tensors[0].device if tensors else torch.device("cpu")


def _checked_length(model: nn.Module, length: int | None, special: int) -> int:
    """The number of words of a text."""
    config = getattr(model, "config", None)
    if isinstance(config, dict):
        longest = config.get("longest") if config.get("positions") == "learned" else None
    else:
        names = ("max_position_embeddings", "n_positions")
        longest = next((size for name in names if isinstance(size := getattr(config, name, None), int)), None)
    longest = None if longest is None else longest - special
    if longest is not None and longest < _SHORTEST:
        got, fix = f"{type(model).__name__}, which has {longest}", "probe a model that reads longer texts"
        raise InputError(f"positions for at least {_SHORTEST} words, in which blocks repeat", got=got, fix=fix)
    if length is None:
        length = _LENGTH if longest is None else min(_LENGTH, longest)
    check.whole_number("length", length)
    if length < _SHORTEST:
        fix = f"pass length={_SHORTEST} or more"
        raise InputError(f"texts of at least {_SHORTEST} words, in which blocks repeat", got=f"length={length}", fix=fix)
    if longest is not None and length > longest:
        got, fix = f"length={length}", f"pass length={longest} or less"
        raise InputError(f"texts of at most {longest} words, for which the model has positions", got=got, fix=fix)
    return length


def _called(model: nn.Module, ids: Tensor, run: Callable[[Tensor], Any] | None) -> None:
    try:
        if run is not None:
            run(ids)
            return
        accepted = inspect.signature(model.forward).parameters
        options = {"use_cache": False, "logits_to_keep": 1}
        options = {name: value for name, value in options.items() if name in accepted}
        model(input_ids=ids, **options) if "input_ids" in accepted else model(ids)
    except OvertError:
        raise
    except Exception as error:
        raise InputError(
            f"a model that takes token ids {tuple(ids.shape)}",
            got=f"{type(model).__name__}, which raised {type(error).__name__}: {error}",
            fix="pass run=lambda ids: …, which runs it on ids",
        ) from error
