"""A survey as one offline page: the heads on a scatter and layer by layer, each with its numbers and its texts."""

import math
import os
from base64 import b64encode
from typing import Any

import numpy as np
from torch import nn

from overt.drawing.html import data_page, escape_text, table
from overt.drawing.numbers import number, visible
from overt.errors import InputError
from overt.lens.analysis.surveys.comparing import differences
from overt.lens.analysis.surveys.examples import Example, ShownTokens, examples, shown
from overt.lens.analysis.surveys.measures import MEASURES, NAMES, PATTERNS
from overt.lens.analysis.surveys.totals import SurveyTotals
from overt.lens.head import head_name

_WEB = "lens/analysis/surveys/web"
_STEPS = 255  # levels of a weight's colour on the page
_WORTH_SEEING = (
    {"induction", "duplicate token"},
    {"previous token", "next token"},
    {"same token", "first token", "separator"},
)


def page(
    survey: SurveyTotals,
    path: str | os.PathLike[str] | None,
    *,
    beside: SurveyTotals | None = None,
    model: nn.Module | None = None,
    tokenizer: Any = None,
    title: str | None = None,
) -> str:
    """Make the page; `Survey.page` describes it."""
    if not survey.heads:
        raise InputError(
            "a survey with heads, for a page", got="one of no texts", fix="survey a corpus first, or merge its parts"
        )
    title = f"{survey.facts.model} over {survey.facts.texts:,} texts" if title is None else title
    data = _data(survey, beside, model, tokenizer) | {"title": visible(title)}
    smaller = "survey fewer texts, with longest= of fewer tokens, or pass no tokenizer to leave out the examples"
    return data_page("atlas", _WEB, path, title=title, data=data, still=_still(survey, title), smaller=smaller)


def _data(survey: SurveyTotals, beside: SurveyTotals | None, model: nn.Module | None, tokenizer: Any) -> dict[str, Any]:
    wanted = examples(survey)
    parts = shown(survey, wanted, model, tokenizer)
    roles = survey.roles()
    names = _names(survey, survey if beside is None else beside)
    return {
        "measures": [{"name": measure.name, "meaning": measure.meaning, "pattern": measure.pattern} for measure in MEASURES],
        "heads": [
            {
                "name": name,
                "layer": visible(head.layer),
                "number": head.number,
                "head": head.head,
                "role": role.role,
                "does": role.words,
            }
            for name, head, role in zip(_head_names(survey), survey.heads, roles, strict=True)
        ],
        "start": _start(survey),
        "survey": _numbers(survey) | {"name": names[0]},
        "beside": None if beside is None else _numbers(beside) | _tested(survey, beside) | {"name": names[1]},
        "examples": [_example(name, part) for name, part in zip(wanted, parts, strict=True)],
        "texts": {}
        if tokenizer is not None
        else {str(index): visible(text)[:2000] for index, text in survey.samples.texts.items()},
        "notes": [visible(line) for line in survey.notes()],
    }


def _head_names(survey: SurveyTotals) -> list[str]:
    return [head_name(head.number, head.head) for head in survey.heads]


def _start(survey: SurveyTotals) -> int:
    """The head that the page opens with: the head farthest above chance among those with a pattern as role.

    Patterns that depend on the words come first, then patterns of position, then those that heads of nearly every model have. If no
    head has such a role, it is the head of the lowest entropy.
    """
    for patterns in _WORTH_SEEING:
        above = {
            index: float(survey.measure(role.role).values[index] - survey.chance(role.role)[index])
            for index, role in enumerate(survey.roles())
            if role.role in patterns
        }
        if above:
            return max(above, key=above.__getitem__)
    entropy = survey.measure("entropy").values
    return min(range(len(entropy)), key=lambda index: (math.isnan(entropy[index]), entropy[index]))


def _names(survey: SurveyTotals, beside: SurveyTotals) -> tuple[str, str]:
    """The models and sizes of both surveys; two models of one class are distinguished by their weights."""
    same_class = survey.facts.model == beside.facts.model and survey.facts.weights != beside.facts.weights
    first, second = (
        f"{facts.model}{f' (weights {facts.weights[:6]}…)' if same_class else ''}: "
        f"{facts.texts:,} texts, {facts.tokens:,} tokens"
        for facts in (survey.facts, beside.facts)
    )
    return first, second


def _numbers(survey: SurveyTotals) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in NAMES:
        value, low, high = survey.measure(name)
        chance = survey.chance(name) if name in PATTERNS else np.full(len(value), np.nan)
        result[name] = [_short(part) for part in (value, low, high, chance)]
    return result


def _tested(survey: SurveyTotals, beside: SurveyTotals) -> dict[str, Any]:
    result = differences(survey, beside)
    tests = {name: [_short(part) for part in (*result.differences[name], result.p[name])] for name in NAMES}
    return {"tests": tests, "paired": result.paired}


def _short(values: np.ndarray) -> list[float | None]:
    return [None if math.isnan(value) else float(f"{value:.4g}") for value in values.tolist()]


def _example(example: Example, part: ShownTokens | None) -> list[Any]:
    kind = ["decile", example.decile] if example.decile is not None else ["rank", example.rank]
    link = [example.head, *kind, example.text, float(f"{example.weight:.4g}"), example.query, example.key]
    if part is None:
        return link
    weights = None if part.weights is None else np.rint(part.weights.clip(0, 1) * _STEPS).astype(int).tolist()
    mapped = None if part.map is None else b64encode(np.rint(part.map.clip(0, 1) * _STEPS).astype(np.uint8).tobytes()).decode()
    return [*link, part.first, [visible(word) if word.strip() else word for word in part.words], weights, mapped]


def _still(survey: SurveyTotals, title: str) -> str:
    """The page without scripts: the measures of all heads as a table."""
    names = ("entropy", "largest", "distance", "special", "induction")
    columns = [
        [f"{number(value)} [{number(low)}, {number(high)}]" for value, low, high in zip(*survey.measure(name), strict=True)]
        for name in names
    ]
    roles = [escape_text(role.words) for role in survey.roles()]
    rows = zip(_head_names(survey), roles, *columns, strict=True)
    return f"<div class='still'><h1>{escape_text(title)}</h1>{table(('head', 'role', *names), rows)}</div>"
