"""The words and numbers of every drawing: terminal, picture and page say the same thing in the same letters."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from overt.explain.explanation import Explanation, StepRow

MINUS = "−"
INDEX = r"(?<=(?<!\w)[A-Za-z])_(\d+[ij]?|[ij])(?!\w)"  # the index of h_1, a_1j, x_j, and of nothing else
STRONG = 0.5  # below a weight of a half colours stay pale, so that a row that looks everywhere does not look sure
_EXPONENTS = str.maketrans("-", MINUS)


def number(value: float, places: int = 2) -> str:
    """Write a number with fixed decimals and a real minus sign.

    Beyond a million the fixed decimals give way to a power of ten, and a negative number that rounds to zero loses its sign.

    >>> number(-0.196), number(-0.001), number(float("-inf")), number(12345678.0)
    ('−0.20', '0.00', '−∞', '1.23e7')
    """
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if abs(value) >= 1e6:
        return scientific(value, 2)
    text = f"{value:.{places}f}"
    return text.replace("-", "" if float(text) == 0 else MINUS)


def scientific(value: float, places: int = 1) -> str:
    """Write a number as a power of ten, without the zeros that pad the exponent.

    >>> scientific(4.1e-7), scientific(0.0)
    ('4.1e−7', '0')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else number(value)
    digits, power = f"{value:.{places}e}".split("e")
    return f"{digits}e{int(power)}".translate(_EXPONENTS)


def places(values: Sequence[float], least: int = 2, most: int = 4) -> int:
    """How many decimals show the largest of the values with two digits that count, within limits.

    >>> places([1.5, -20.0]), places([0.004, 0.01])
    (2, 3)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0:
        return least
    return min(most, max(least, 1 - math.floor(math.log10(largest))))


def vector(values: Sequence[float], shown: int = 3, width: int = 0, decimals: int = 2) -> str:
    """Abbreviate a vector: its first entries, then how many there are.

    >>> vector([-0.2, 0.34, 0.13, 1.0, 2.0])
    '[−0.20  0.34  0.13 … 5]'
    >>> vector([1.0, 2.0], width=5)
    '[ 1.00   2.00]'
    """
    whole = len(values) <= shown + 1
    entries = [number(value, decimals).rjust(width) for value in (values if whole else values[:shown])]
    return f"[{'  '.join(entries)}]" if whole else f"[{'  '.join(entries)} … {len(values)}]"


def entry_width(vectors: Sequence[Sequence[float]], shown: int = 3, decimals: int = 2) -> int:
    """The width that lines up the shown entries of several vectors, one under another."""
    return max((len(number(value, decimals)) for entries in vectors for value in entries[: shown + 1]), default=0)


def visible(text: str) -> str:
    r"""Show what does not show: control characters get their pictures, lone surrogates and bidi controls a mark.

    So a token can neither colour a terminal nor turn the rest of a line around.

    >>> visible("a\x00b\x1b[31m\u202e"), visible(" "), visible("")
    ('a␀b␛[31m�', '␣', '∅')
    """
    if not text or text.isspace():
        return "".join("␣" if letter == " " else _visible_letter(letter) for letter in text) or "∅"
    return "".join(map(_visible_letter, text))


def _visible_letter(letter: str) -> str:
    if ord(letter) < 0x20:
        return chr(0x2400 + ord(letter))
    if letter == "\x7f":
        return "␡"
    # Joiners hold emoji and Indic letters together; every other format character, surrogate or unassigned letter is marked.
    if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"} and letter not in "\u200c\u200d":
        return "\ufffd"
    return letter


def shorten(text: str, most: int) -> str:
    """Crop to at most so many letters, with an ellipsis in place of what is gone.

    >>> shorten("electroencephalography", 8), shorten("tired", 8)
    ('electro…', 'tired')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True)
class Choice:
    """The rows of the step table that are shown, strongest first, and those that are summed in one line."""

    rows: list[StepRow]
    others: list[StepRow]

    @property
    def weight(self) -> float:
        """The weight of all the others together."""
        return math.fsum(row.weight for row in self.others)

    @property
    def weighted(self) -> list[float]:
        """Σ α·v over the others."""
        return [math.fsum(entries) for entries in zip(*(row.weighted for row in self.others), strict=True)]

    @property
    def label(self) -> str:
        """What the line of the others is called."""
        return f"the other {len(self.others)} tokens"


def choose(explanation: Explanation, rows: int | None = 8) -> Choice:
    """Take the strongest rows and the word's own, by the size of the weight; `None` takes them all.

    Nothing is left out to save a single line: one more row than asked for is shown instead.
    """
    ranked = sorted(explanation.steps, key=lambda row: (-_size(row.weight), row.index))
    if rows is None or len(ranked) <= rows + 2:
        return Choice(ranked, [])
    own = own_index(explanation)
    kept = {row.index for row in ranked[:rows]} | ({own} if own is not None else set())
    return Choice([row for row in ranked if row.index in kept], [row for row in ranked if row.index not in kept])


def _size(weight: float) -> float:
    return -1.0 if math.isnan(weight) else abs(weight)


def own_index(explanation: Explanation) -> int | None:
    """Where the word stands among the tokens that it attends to; None where those are another sentence's."""
    return explanation.word if explanation.other is None else None


def word(explanation: Explanation) -> str:
    """The word whose attention is shown, fit to be seen."""
    return visible(explanation.query_tokens[explanation.word])


def labels(tokens: Sequence[str], most: int = 80) -> list[str]:
    """The tokens fit to be seen and cropped, those that occur more than once told apart by which of them they are.

    >>> labels(["the", "animal", "the"], most=5)
    ['the:1', 'anim…', 'the:2']
    """
    seen: dict[str, int] = {}
    told = []
    for token in tokens:
        seen[token] = seen.get(token, 0) + 1
        name = shorten(visible(token), most)
        told.append(f"{name}:{seen[token]}" if tokens.count(token) > 1 else name)
    return told


@dataclass(frozen=True)
class Stage:
    """One step of a recipe: its key, its number, its name, its formula, and what it does in a sentence."""

    key: str
    number: int
    title: str
    formula: str
    sentence: str


def stages(explanation: Explanation) -> list[Stage]:
    """The steps of this explanation's recipe, numbered from 1: six in a trained model.

    A division appears where there is one.
    """
    told = {"qkv": _trained, "hidden": _hidden, "plain": _plain}[explanation.recipe](explanation)
    if not explanation.scale_name and all(row.score == row.scaled for row in explanation.steps):
        told = [step for step in told if step[0] != "scale"]
    return [Stage(key, place, *rest) for place, (key, *rest) in enumerate(told, start=1)]


def count_word(count: int) -> str:
    """How many steps, in a word, to begin a heading."""
    return {5: "Five", 6: "Six", 7: "Seven"}.get(count, str(count))


def stage(explanation: Explanation, key: str) -> Stage | None:
    """The step of that key, or None where the recipe has no such step."""
    return next((found for found in stages(explanation) if found.key == key), None)


Told = list[tuple[str, str, str, str]]


def _trained(explanation: Explanation) -> Told:
    asker, width = f"“{word(explanation)}”", len(explanation.query)
    return [
        ("vectors", "query, key, value", "q, k, v",
         f"Three learned matrices make a query, a key and a value of each token, {width} numbers each."),
        ("score", "score", explanation.score_name,
         f"The query of {asker} meets the key of every token: the better they match, the higher the score."),
        ("scale", "scale", _division(explanation), _scaling(explanation)),
        ("normalize", normalizer_name(explanation), "α", _normalizing(explanation)),
        ("weigh", "weight", "α·v", "Each token's value is multiplied by its weight."),
        ("sum", "sum", "Σ α·v", f"The weighted values add up to what this head says about {asker}."),
    ]  # fmt: skip


def _hidden(explanation: Explanation) -> Told:
    i, count = explanation.word + 1, len(explanation.steps)
    return [
        ("vectors", "hidden states", f"h_1 … h_{count}",
         f"The layer reads the sequence and leaves a hidden state at each place, {len(explanation.query)} numbers each."),
        ("score", "score", score_name(explanation),
         f"The state h_{i}, of “{word(explanation)}”, is scored against every state of the sequence."),
        ("scale", "scale", _division(explanation), _scaling(explanation)),
        ("normalize", normalizer_name(explanation), f"a_{i}j", _normalizing(explanation)),
        ("weigh", "weight", f"a_{i}j h_j", "Each hidden state is multiplied by its weight."),
        ("sum", "context", f"c_{i} = Σ a_{i}j h_j", "The weighted states add up to the context."),
        ("join", "join", f"[h_{i}, c_{i}]",
         f"The next layer reads the state and its context, {_joined_width(explanation)} numbers."),
    ]  # fmt: skip


def _plain(explanation: Explanation) -> Told:
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
    """The score's name with the word's own place in it: f(h_1, h_j) for f(h_i, h_j)."""
    return explanation.score_name.replace("_i", f"_{explanation.word + 1}")


def normalizer_name(explanation: Explanation) -> str:
    """The normaliser's name as a step: a division by the plain sum is not the sum that ends the recipe."""
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


def _joined_width(explanation: Explanation) -> int:
    return len(explanation.joined) if explanation.joined is not None else len(explanation.query) + len(explanation.output)


def sum_formula(explanation: Explanation) -> str:
    """The last line of the step table: what the output is the sum of."""
    found = stage(explanation, "sum")
    formula = found.formula if found else "Σ α·v"
    return formula if "=" in formula else f"output = {formula}"


def heading(explanation: Explanation) -> str:
    """What the reader is looking at, in one line."""
    titles = {
        "qkv": "Query, key, value",
        "hidden": "Hidden states [h, c]",
        "plain": "No trained weights",
    }
    return titles[explanation.recipe]


def looks_line(explanation: Explanation) -> str:
    """Where the heads look hardest, counted."""
    looks = explanation.looks
    if looks is None:
        return ""
    others = looks.heads - looks.special - looks.itself
    names = visible(looks.names) if looks.names else "special tokens"
    parts = [f"{looks.special} of {looks.heads} heads look hardest at {names}"]
    if explanation.other is not None:
        return ", ".join([*parts, f"{others} at a word"])
    return ", ".join([*parts, f"{looks.itself} at “{word(explanation)}” itself", f"{others} at another word"])


def residual_line(explanation: Explanation) -> str:
    """The difference between the recomputed output and the model's own, beside the rounding bound; empty where unknown."""
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
    """The loop form beside the matrix form, timed; empty where it was not asked for."""
    timing = explanation.loop
    if timing is None:
        return ""
    return (
        f"as plain loops {duration(timing.loop)}, as matrices {duration(timing.matrices)}; "
        f"largest difference {scientific(timing.difference)}"
    )


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it.

    >>> duration(0.00231), duration(0.000041), duration(2.5)
    ('2.31 ms', '41 µs', '2.50 s')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def query_name(explanation: Explanation) -> str:
    """What the word's own vector is called: q, h_1 or x_1."""
    return "q" if explanation.recipe == "qkv" else state_name(explanation, explanation.word)


def state_name(explanation: Explanation, index: int) -> str:
    """What the vector at a place of the sequence is called: v_1, h_1 or x_1."""
    return f"{ {'qkv': 'v', 'hidden': 'h', 'plain': 'x'}[explanation.recipe] }_{index + 1}"
