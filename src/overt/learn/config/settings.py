"""The settings of a training run: one frozen dataclass for each table of a recipe, with every default."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from overt.attention import check
from overt.errors import InputError

SCHEDULES = ("inverse_sqrt", "cosine", "linear", "constant", "trapezoid")
PRECISIONS = ("float32", "bfloat16", "float16")
MAX_MERGES = 1_000_000  # the trainer allocates memory for all merges at the start
FORMATS = ("lines", "pairs", "conllu", "labels", "text")


def _not_negative(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise InputError(f"{name} to be a number of at least 0", got=repr(value), fix="pass 0 for none")


@dataclass(frozen=True)
class Training:
    """The `[training]` table: how long, how fast, how often.

    One update reads `accumulate` batches of at most `tokens_per_batch` tokens each. The defaults are those of a small Transformer.

    >>> Training(updates=100, warmup=10).schedule
    'inverse_sqrt'
    """

    updates: int = 10_000  # steps of the optimizer
    tokens_per_batch: int = 4096  # tokens of the larger side, padding included
    accumulate: int = 1  # batches whose gradients make one update
    learning_rate: float = 1e-3  # the highest, reached after warmup
    schedule: str = "inverse_sqrt"  # or "cosine", "linear", "constant", "trapezoid"
    warmup: int = 1000  # updates over which the learning rate rises from 0
    betas: tuple[float, float] = (0.9, 0.98)  # AdamW's averages of the gradient and of its square
    weight_decay: float = 0.0
    clip: float | None = 1.0  # the gradient's maximum norm; None: no limit
    label_smoothing: float = 0.1  # the probability distributed over all words
    r_drop: float = 0.0  # weight of the disagreement of two passes with different dropout; translators only, at twice the cost
    precision: str = "float32"  # or "bfloat16", "float16": the dtype of matrix products
    evaluate_every: int = 500  # updates
    checkpoint_every: int = 500  # updates
    keep: int = 10  # number of latest checkpoints to keep, in addition to the best
    average: int = 0  # number of latest checkpoints averaged at the end; 0 takes the best by validation
    patience: int | None = None  # evaluations without improvement before training stops; None: never
    seed: int = 0
    start: str | None = (
        None  # a finished model's folder, or "bundled", for its tokens and weights to start from; None: at random
    )
    start_share: float = 0.0  # share of the starting weights in the finished model, which then forgets less

    def __post_init__(self) -> None:
        for name in ("updates", "tokens_per_batch", "accumulate", "evaluate_every", "checkpoint_every", "keep"):
            check.whole_number(name, getattr(self, name))
        for name in ("warmup", "average", "seed"):
            check.whole_number(name, getattr(self, name), minimum=0)
        check.positive("learning_rate", self.learning_rate)
        check.choice("schedule", self.schedule, SCHEDULES)
        check.choice("precision", self.precision, PRECISIONS)
        for name in ("label_smoothing", "start_share"):
            check.probability(name, getattr(self, name))
        if self.start_share and self.start is None:
            raise InputError(
                "start_share only where start names a model", got=repr(self.start_share), fix="leave start_share out"
            )
        for name in ("r_drop", "weight_decay"):
            _not_negative(name, getattr(self, name))
        for value in self.betas:
            check.probability("each of betas", value)
        if self.clip is not None:
            check.positive("clip", self.clip)
        if self.patience is not None:
            check.whole_number("patience", self.patience)
        if self.average > self.keep:
            got = f"average = {self.average} and keep = {self.keep}"
            raise InputError("average to be at most keep, since the averaged checkpoints are kept", got=got, fix="raise keep")


@dataclass(frozen=True)
class Data:
    """The `[data]` table: which files are read, and how.

    `format` is "lines" (two files, whose lines with the same number translate each other), "pairs" (source TAB target), "conllu" (words
    and their universal tags), "labels" (a label and its words on each line) or "text" (one text a line). Files may end in .gz or .zip.

    >>> Data(format="pairs", train=("fra-eng.zip",), held_out=(1000, 2000)).join
    1
    """

    format: str = "lines"  # or "pairs", "conllu", "labels", "text"
    folder: str = "."  # the files' folder, below the folder in OVERT_DATA, if that is set
    train: tuple[str, ...] = ()  # one file, or for "lines" two: source and target
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    held_out: tuple[int, int] = (0, 0)  # sources moved from training to validation and test, if these name no files
    # added: files of more training pairs, source TAB target, such as translations or altered copies; from the working directory.
    added: tuple[str, ...] = ()
    reversed: bool = False  # translate from the target to the source, with the same sentences held out
    languages: tuple[str, ...] = ()  # of source and target, such as "en", "de"
    encoding: str = "utf-8"
    limit: int | None = None  # training examples, spread over the file; None: all
    join: int = 1  # each line is used alone, joined with the next one, and so on up to this many lines
    origin: str = ""  # where the files can be downloaded

    def __post_init__(self) -> None:
        check.choice("format", self.format, FORMATS)
        for count in self.held_out:
            check.whole_number("each of held_out", count, minimum=0)
        if self.limit is not None:
            check.whole_number("limit", self.limit)
        check.whole_number("join", self.join)
        for name, used in (("join", self.join > 1), ("added", self.added), ("reversed", self.reversed)):
            if used and self.format not in ("lines", "pairs"):
                raise InputError(f"{name} only for translated lines", got=f"format {self.format!r}", fix=f"leave {name} out")


@dataclass(frozen=True)
class Tokenization:
    """The `[tokens]` table: how text is split into tokens.

    Translation and language models read pieces of words (BPE, one vocabulary for both languages); taggers and classifiers read words.

    >>> Tokenization(merges=6000).minimum_count
    1
    """

    merges: int = 8000  # number of byte-pair merges; 0: single characters
    merges_file: str | None = None  # merges learned elsewhere, in the format of subword-nmt
    lower: bool = False  # lower-case everything
    moses: bool = False  # split into Moses's words first, as published scores often do
    minimum_count: int = 1  # words seen less often in training are unknown
    parts: bool = False  # a word is also represented by its endings and its shape
    byte_fallback: bool = False  # rare and unseen characters are written as their UTF-8 bytes
    dropout: float = 0.0  # the probability that a merge is skipped in training, BPE-dropout

    def __post_init__(self) -> None:
        check.whole_number("merges", self.merges, minimum=0)
        check.probability("dropout", self.dropout)
        if (self.byte_fallback or self.dropout) and (self.moses or self.merges_file is not None):
            fix = "leave out byte_fallback and dropout, or moses and merges_file"
            raise InputError("byte_fallback and dropout only for plain text and merges learned here", got="both", fix=fix)
        if self.merges > MAX_MERGES:
            raise InputError(f"at most {MAX_MERGES:,} merges", got=str(self.merges), fix="write a smaller number")
        check.whole_number("minimum_count", self.minimum_count)


@dataclass(frozen=True)
class Decoding:
    """The `[decoding]` table: how the finished model generates text.

    >>> Decoding().beam
    5
    """

    beam: int = 5  # hypotheses kept at each step; 1: greedy
    length_penalty: float = 1.0  # the exponent of the length that divides a hypothesis's score
    longest: int | None = None  # tokens; None: twice the source's and ten more

    def __post_init__(self) -> None:
        check.whole_number("beam", self.beam)
        _not_negative("length_penalty", self.length_penalty)
        if self.longest is not None:
            check.whole_number("longest", self.longest)


@dataclass(frozen=True)
class Recipe:
    """A whole recipe: the task and its tables; `model` is `{"kind": …}` and the arguments of that model's constructor.

    >>> Recipe(model={"kind": "Transformer", "width": 128}).training.schedule
    'inverse_sqrt'
    """

    task: str = "translate"  # or "tag", "classify", "language"
    data: Data = field(default_factory=Data)
    tokens: Tokenization = field(default_factory=Tokenization)
    model: dict[str, Any] = field(default_factory=dict)
    training: Training = field(default_factory=Training)
    decoding: Decoding = field(default_factory=Decoding)

    def __post_init__(self) -> None:
        if self.training.r_drop and self.task != "translate":
            raise InputError("r_drop only for translation", got=f"task {self.task!r}", fix="leave r_drop out")
        changed = [option.name for option in fields(Tokenization) if getattr(self.tokens, option.name) != option.default]
        ignored = [name for name in changed if name not in {"byte_fallback", "dropout"}]
        if self.training.start is not None and ignored:
            fix = f"leave {' and '.join(ignored)} out of [tokens]; byte_fallback and dropout may stand there"
            raise InputError(
                "no tokens to learn where start names a model, which has its own", got=" and ".join(ignored), fix=fix
            )
