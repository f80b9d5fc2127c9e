"""An explanation: how one word attends, with all numbers for drawing. Plain Python, no torch.

The recipes (`recipes/`) create it; the terminal, the picture and the page draw it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from overt.drawing.numbers import duration, scientific, visible


@dataclass(frozen=True)
class Link:
    """The strongest link from the word to another word in one layer (special tokens and the word itself are excluded)."""

    layer: int
    head: int
    index: int
    token: str
    weight: float
    pattern: str = ""


@dataclass(frozen=True)
class StepRow:
    """One token that the word may attend to, with its numbers in each step.

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
    """The numbers of heads whose largest weight is on special tokens, on the word itself, on another word."""

    heads: int
    special: int
    itself: int
    names: str = ""


@dataclass(frozen=True)
class Timing:
    """The loop form and the matrix form: seconds of each and the largest difference between their outputs."""

    loop: float
    matrices: float
    difference: float


@dataclass(frozen=True)
class Shown:
    """The content of an explanation's page: the recording, and (layer, head) in it of `rows[layer][head]`.

    `states` are the vectors (Q, D) from which the recorded queries were computed, if any;
    `model` computes what values contribute after W_O.
    """

    recording: Any
    heads: list[list[tuple[int, int]]]
    states: Any = None
    model: Any = None


@dataclass(frozen=True)
class Explanation:
    """How `query_tokens[word]` attends to `tokens`.

    `rows[layer][head]` is the word's whole row of weights; `matrix` holds the shown head's weights of every query (Q, K);
    `steps` has one entry a token, in the order of the sentence. `text` contains the query, `other` is the sentence
    that is attended to, if it is another one.
    """

    recipe: str  # "qkv", "hidden", "plain"
    text: str
    other: str | None
    tokens: list[str]
    query_tokens: list[str]
    word: int
    special: list[int]  # indices into tokens
    source: str  # the origin of the vectors: a model's name, "GRU, untrained, seed 0", a file
    rows: list[list[list[float]]]
    shown: tuple[int, int]
    why: str  # the reason why this head is shown
    score_name: str  # "q·k", "f(h_i, h_j)", "x_i·x_j"
    scale_name: str  # "√32", or "" without a division
    normalizer: str  # "softmax", "sum"
    query: list[float]  # q, h_i or x_i
    steps: list[StepRow]
    output: list[float]  # Σ α·v; c_i in the hidden recipe, y_i in the plain one
    matrix: list[list[float]]
    joined: list[float] | None = None  # hidden: [h_i, c_i]
    links: list[Link] = field(default_factory=list)
    looks: Looks | None = None
    residual: float | None = None  # largest difference between the recomputed output and the model's own
    bound: float | None = None  # the rounding bound of the residual
    loop: Timing | None = None
    notes: list[str] = field(default_factory=list)  # notes on this picture, a sentence each
    recorded: Callable[[], Shown] | None = field(default=None, repr=False, compare=False)  # the page's content; needs torch

    @property
    def name(self) -> str:
        """The shown head, such as L5H11; empty for recipes with a single head."""
        layer, head = self.shown
        return f"L{layer}H{head}" if self.recipe == "qkv" else ""

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON data."""
        return {name: value for name, value in asdict(self).items() if name != "recorded"}


def step_rows(tokens: Sequence[str], scores: Any, scaled: Any, weights: Any, keys: Any, values: Any) -> list[StepRow]:
    """The numbers of each token in each step: scores, scaled and weights (K,), keys (K, D), values (K, E), arrays or CPU tensors.

    >>> step_rows(["sky"], [2.0], [1.0], [0.5], [[1.0, 0.0]], [[4.0]])[0].weighted
    [2.0]
    """
    scores, scaled, weights, keys, values = (np.asarray(array) for array in (scores, scaled, weights, keys, values))
    weighted = weights[:, None] * values  # (K, E)
    columns = (array.tolist() for array in (scores, scaled, weights, keys, values, weighted))
    return [StepRow(index, token, *cells) for index, (token, *cells) in enumerate(zip(tokens, *columns, strict=True))]


@dataclass(frozen=True)
class Choice:
    """The rows of the step table: those shown, strongest first, and those summed in one line."""

    rows: list[StepRow]
    others: list[StepRow]

    @property
    def weight(self) -> float:
        """The total weight of the other rows."""
        return math.fsum(row.weight for row in self.others)

    @property
    def weighted(self) -> list[float]:
        """Σ α·v over the other rows."""
        return [math.fsum(entries) for entries in zip(*(row.weighted for row in self.others), strict=True)]

    @property
    def label(self) -> str:
        """The label of the line of other rows."""
        return f"the other {len(self.others)} tokens"


def choose_rows(explanation: Explanation, rows: int | None = 8) -> Choice:
    """Choose the strongest rows and the word's own, by absolute weight; `None` chooses all.

    If only one row would remain, it is shown too.
    """
    ranked = sorted(explanation.steps, key=lambda row: (-_size(row.weight), row.index))
    if rows is None or len(ranked) <= rows + 2:
        return Choice(ranked, [])
    word_row = word_index(explanation)
    chosen = {row.index for row in ranked[:rows]} | ({word_row} if word_row is not None else set())
    return Choice([row for row in ranked if row.index in chosen], [row for row in ranked if row.index not in chosen])


def _size(weight: float) -> float:
    return -1.0 if math.isnan(weight) else abs(weight)


def word_index(explanation: Explanation) -> int | None:
    """The word's index among the tokens that it attends to; None if these are another sentence's."""
    return explanation.word if explanation.other is None else None


def query_word(explanation: Explanation) -> str:
    """The word whose attention is shown, with control characters made visible."""
    return visible(explanation.query_tokens[explanation.word])


@dataclass(frozen=True)
class Stage:
    """One step of a recipe: its key, number, name, formula, and a sentence about it."""

    key: str
    number: int
    title: str
    formula: str
    sentence: str


def stages(explanation: Explanation) -> list[Stage]:
    """The steps of this explanation's recipe, numbered from 1: six in a trained model.

    A division is included only if there is one.
    """
    texts = {"qkv": _trained, "hidden": _hidden, "plain": _plain}[explanation.recipe](explanation)
    if not explanation.scale_name and all(row.score == row.scaled for row in explanation.steps):
        texts = [step for step in texts if step[0] != "scale"]
    return [Stage(key, number, *words) for number, (key, *words) in enumerate(texts, start=1)]


def count_word(count: int) -> str:
    """A number of steps as a word, for the beginning of a heading."""
    return {5: "Five", 6: "Six", 7: "Seven"}.get(count, str(count))


def stage(explanation: Explanation, key: str) -> Stage | None:
    """The step with this key; None if the recipe has no such step."""
    return next((candidate for candidate in stages(explanation) if candidate.key == key), None)


StepTexts = list[tuple[str, str, str, str]]


def _trained(explanation: Explanation) -> StepTexts:
    name, width = f"“{query_word(explanation)}”", len(explanation.query)
    return [
        ("vectors", "query, key, value", "q, k, v",
         f"Three learned matrices make a query, a key and a value of each token, {width} numbers each."),
        ("score", "score", explanation.score_name,
         f"The query of {name} is compared with the key of every token: the better they match, the higher the score."),
        ("scale", "scale", _division(explanation), _scaling(explanation)),
        ("normalize", normalizer_name(explanation), "α", _normalizing(explanation)),
        ("weigh", "weight", "α·v", "Each token's value is multiplied by its weight."),
        ("sum", "sum", "Σ α·v", f"The weighted values add up to this head's output for {name}."),
    ]  # fmt: skip


def _hidden(explanation: Explanation) -> StepTexts:
    i, count = explanation.word + 1, len(explanation.steps)
    return [
        ("vectors", "hidden states", f"h_1 … h_{count}",
         f"The layer reads the sequence and gives a hidden state at each position, {len(explanation.query)} numbers each."),
        ("score", "score", score_name(explanation),
         f"The state h_{i}, of “{query_word(explanation)}”, is scored against every state of the sequence."),
        ("scale", "scale", _division(explanation), _scaling(explanation)),
        ("normalize", normalizer_name(explanation), f"a_{i}j", _normalizing(explanation)),
        ("weigh", "weight", f"a_{i}j h_j", "Each hidden state is multiplied by its weight."),
        ("sum", "context", f"c_{i} = Σ a_{i}j h_j", "The weighted states add up to the context."),
        ("join", "join", f"[h_{i}, c_{i}]",
         f"The next layer reads the state and its context, {len(explanation.joined or [])} numbers."),
    ]  # fmt: skip


def _plain(explanation: Explanation) -> StepTexts:
    i = explanation.word + 1
    return [
        ("vectors", "the vectors", "x", "No trained weights: each vector is its own query, key and value."),
        ("score", "score", score_name(explanation), f"W_{i}j before it is normalised: x_{i} against every vector."),
        ("scale", "scale", _division(explanation), _scaling(explanation)),
        ("normalize", normalizer_name(explanation), f"W_{i}j", f"W_{i}j after. {_normalizing(explanation)}"),
        ("weigh", "weight", f"W_{i}j x_j", "Each vector is multiplied by its weight."),
        ("sum", "new vector", f"y_{i} = Σ W_{i}j x_j", f"The weighted vectors add up to y_{i}, in place of x_{i}."),
    ]  # fmt: skip


def score_name(explanation: Explanation) -> str:
    """The score's name with the word's own index: f(h_1, h_j) for f(h_i, h_j)."""
    return explanation.score_name.replace("_i", f"_{explanation.word + 1}")


def normalizer_name(explanation: Explanation) -> str:
    """The normaliser's name as a step: a division by the plain sum differs from the sum at the end of the recipe."""
    return "plain sum" if explanation.normalizer == "sum" else explanation.normalizer


def _division(explanation: Explanation) -> str:
    return f"÷ {explanation.scale_name}" if explanation.scale_name else "+ bias"


def _scaling(explanation: Explanation) -> str:
    if explanation.scale_name:
        return f"Dividing by {explanation.scale_name} keeps wide vectors from making every score large."
    return "A bias is added to the scores."


def _normalizing(explanation: Explanation) -> str:
    if explanation.normalizer == "softmax":
        return "Softmax turns the scores into positive weights that sum to 1."
    if explanation.normalizer == "sum":
        return "Dividing by the plain sum gives weights that sum to 1; some may be negative."
    return f"{explanation.normalizer.capitalize()} turns the scores into weights."


def sum_formula(explanation: Explanation) -> str:
    """The last line of the step table: the sum that gives the output."""
    last_step = stage(explanation, "sum")
    formula = last_step.formula if last_step else "Σ α·v"
    return formula if "=" in formula else f"output = {formula}"


def heading(explanation: Explanation) -> str:
    """The subject of the explanation, in one line."""
    titles = {
        "qkv": "Query, key, value",
        "hidden": "Hidden states [h, c]",
        "plain": "No trained weights",
    }
    return titles[explanation.recipe]


def looks_line(explanation: Explanation) -> str:
    """The number of heads for each target of their largest weight."""
    looks = explanation.looks
    if looks is None:
        return ""
    others = looks.heads - looks.special - looks.itself
    names = visible(looks.names) if looks.names else "special tokens"
    parts = [f"{looks.special} of {looks.heads} heads put their largest weight on {names}"]
    if explanation.other is not None:
        return ", ".join([*parts, f"{others} on a word"])
    return ", ".join([*parts, f"{looks.itself} on “{query_word(explanation)}” itself", f"{others} on another word"])


def residual_line(explanation: Explanation) -> str:
    """The difference between the recomputed output and the model's own, and the rounding bound; empty if unknown."""
    residual, bound = explanation.residual, explanation.bound
    if residual is None:
        return ""
    line = f"recomputed vs. model: {scientific(residual)}"
    if bound is None:
        return line
    if residual <= bound:
        return f"{line} ✓ within the rounding bound {scientific(bound)}"
    return f"{line} ✗ beyond the rounding bound {scientific(bound)}"


def loop_line(explanation: Explanation) -> str:
    """The loop form and the matrix form, timed; empty if not requested."""
    timing = explanation.loop
    if timing is None:
        return ""
    return (
        f"as plain loops {duration(timing.loop)}, as matrices {duration(timing.matrices)}; "
        f"largest difference {scientific(timing.difference)}"
    )


def query_name(explanation: Explanation) -> str:
    """The name of the word's own vector: q, h_1 or x_1."""
    return "q" if explanation.recipe == "qkv" else state_name(explanation, explanation.word)


def state_name(explanation: Explanation, index: int) -> str:
    """The name of the vector at an index of the sequence: v_1, h_1 or x_1."""
    return f"{ {'qkv': 'v', 'hidden': 'h', 'plain': 'x'}[explanation.recipe] }_{index + 1}"
