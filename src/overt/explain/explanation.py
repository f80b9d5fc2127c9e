"""An explanation: how one word attends, with every number, ready to be drawn. Plain Python, no torch.

The recipes (`lens/recipes/`) make it; the terminal, the picture and the page draw it.
"""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Link:
    """The strongest link from the word to another word in one layer (special tokens and the word itself left out)."""

    layer: int
    head: int
    index: int
    token: str
    weight: float
    pattern: str = ""


@dataclass(frozen=True)
class StepRow:
    """One token that the word may attend to, and what each step makes of it.

    `score` is f(query, key) before the division, `scaled` after it (with bias, if any), `weight` after the normaliser,
    `weighted` the vector weight · value.
    """

    index: int
    token: str
    score: float
    scaled: float
    weight: float
    key: list[float]
    value: list[float]
    weighted: list[float]


@dataclass(frozen=True)
class Looks:
    """How many heads look hardest at the special tokens, at the word itself, at another word."""

    heads: int
    special: int
    itself: int
    names: str = ""


@dataclass(frozen=True)
class Timing:
    """The loop form beside the matrix form: seconds of each and the largest difference between their outputs."""

    loop: float
    matrices: float
    difference: float


@dataclass(frozen=True)
class Explanation:
    """How `query_tokens[word]` attends to `tokens`.

    `rows[layer][head]` is the word's whole row of weights; `matrix` holds the shown head's weights of every query (Q, K);
    `steps` has one entry a token, in the order of the sentence. `text` is where the query comes from, `other` the sentence
    that is attended to, where it is another one.
    """

    recipe: str  # "qkv", "hidden", "plain"
    text: str
    other: str | None
    tokens: list[str]
    query_tokens: list[str]
    word: int
    special: list[int]  # indices into tokens
    source: str  # what gave the vectors: a model's name, "GRU, untrained, seed 0", a file
    rows: list[list[list[float]]]
    shown: tuple[int, int]
    why: str  # why this head is shown
    score_name: str  # "q·k", "f(h_i, h_j)", "x_i·x_j"
    scale_name: str  # "√32", or "" where nothing is divided
    normalizer: str  # "softmax", "sum"
    query: list[float]  # q, h_i or x_i
    steps: list[StepRow]
    output: list[float]  # Σ α·v; c_i in the hidden recipe, y_i in the plain one
    matrix: list[list[float]]
    joined: list[float] | None = None  # hidden: [h_i, c_i]
    links: list[Link] = field(default_factory=list)
    looks: Looks | None = None
    residual: float | None = None  # largest difference between the recomputed output and the model's own
    bound: float | None = None  # the rounding bound the residual stands beside
    loop: Timing | None = None
    notes: list[str] = field(default_factory=list)  # what is true of this picture, a sentence each

    @property
    def name(self) -> str:
        """The shown head, as in L5H11; empty where there are no layers to tell apart."""
        layer, head = self.shown
        return f"L{layer}H{head}" if self.recipe == "qkv" else ""

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON takes it."""
        return asdict(self)
