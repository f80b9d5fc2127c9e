"""The page's content without scripts: the sentence, the table of steps, the links, and the notes."""

import math
from collections.abc import Iterable, Sequence

from overt.drawing.html import escape_text, formula
from overt.drawing.numbers import decimals_for, labels, number, vector, visible
from overt.explain.explanation import (
    Explanation,
    Stage,
    StepRow,
    choose_rows,
    count_word,
    heading,
    looks_line,
    loop_line,
    normalizer_name,
    query_name,
    query_word,
    residual_line,
    stages,
    sum_formula,
    word_index,
)


def article(explanation: Explanation) -> str:
    """One explanation as static HTML of text and tables."""
    return f"""<article class="{explanation.recipe}">
<p><b>{escape_text(heading(explanation))}</b> {escape_text(explanation.source)}</p>
{_sentence(explanation)}
<section class="steps"><h3>{escape_text(_steps_title(explanation))}</h3>
<p class="check">{formula(query_name(explanation))} = {_vector(explanation.query)}</p>
<div class="scroll">{_table(explanation)}</div></section>
{_links(explanation)}
{_true(explanation)}
</article>"""


def _sentence(explanation: Explanation) -> str:
    among_keys = word_index(explanation)
    keys = _tokens(explanation.tokens, among_keys)
    if among_keys is not None:
        return keys
    return f"{_tokens(explanation.query_tokens, explanation.word)}<p>attends to</p>{keys}"


def _tokens(tokens: Sequence[str], word: int | None) -> str:
    marked = (f"<bdi{' class=word' if index == word else ''}>{escape_text(token)}</bdi>" for index, token in enumerate(tokens))
    return f'<p class="sentence">{" ".join(marked)}</p>'


def _steps_title(explanation: Explanation) -> str:
    count = f"{count_word(len(stages(explanation)))} steps for “{query_word(explanation)}”"
    return f"{count} in {explanation.name} ({visible(explanation.why)})" if explanation.name else count


def _table(explanation: Explanation) -> str:
    known = {stage.key: stage for stage in stages(explanation)}
    choice, names = choose_rows(explanation, None), labels(explanation.tokens)
    columns = [(known[key], name) for key, name in _columns(explanation, known) if key in known]
    heads = "".join(f'<th scope="col"><i>{stage.number}</i> {formula(name)}</th>' for stage, name in columns)
    rows = "".join(_row(names[row.index], _cells(row, "scale" in known)) for row in choice.rows)
    caption = f"How “{query_word(explanation)}” attends to each token, strongest first: every step with its numbers."
    return f"""<table><caption>{escape_text(caption)}</caption>
<thead><tr><th scope="col">token</th>{heads}</tr></thead><tbody>{rows}</tbody>
<tfoot>{_foot(explanation, known, len(columns) - 1)}</tfoot></table>"""


def _columns(explanation: Explanation, known: dict[str, Stage]) -> list[tuple[str, str]]:
    """The columns with their headings, by step."""
    first = {"qkv": ["key", "value"], "hidden": ["h_j"], "plain": ["x_j"]}[explanation.recipe]
    formulas = [(key, known[key].formula) for key in ("score", "scale", "normalize", "weigh") if key in known]
    named = [(key, f"{normalizer_name(explanation)} {name}" if key == "normalize" else name) for key, name in formulas]
    return [*(("vectors", name) for name in first), *named]


def _cells(row: StepRow, scaled: bool) -> Iterable[str]:
    yield from map(_vector, [row.value] if row.key == row.value else [row.key, row.value])
    yield number(row.score, 2)
    if scaled:
        yield number(row.scaled, 2)
    yield number(row.weight, 3)
    yield _vector(row.weighted)


def _row(name: str, cells: Iterable[str]) -> str:
    numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    return f'<tr><th scope="row"><bdi>{escape_text(name)}</bdi></th>{numbers}</tr>'


def _vector(entries: Sequence[float]) -> str:
    return vector(entries, decimals=decimals_for(entries))


def _foot(explanation: Explanation, known: dict[str, Stage], span: int) -> str:
    total = number(math.fsum(row.weight for row in explanation.steps), 3)
    lines = [(known["sum"].number, sum_formula(explanation), total, explanation.output)]
    if "join" in known:
        joined = explanation.joined or []
        lines.append((known["join"].number, known["join"].formula, "", joined))
    return "".join(
        f'<tr class="output"><th scope="row" colspan="{span}"><i>{stage}</i> {formula(name)}</th>'
        f'<td class="number">{weight}</td><td class="number">{_vector(entries)}</td></tr>'
        for stage, name, weight, entries in lines
    )


def _links(explanation: Explanation) -> str:
    if not explanation.links and not explanation.looks:
        return ""
    rows = "".join(
        _row(
            f"L{link.layer}H{link.head}",
            (escape_text(link.token), number(link.weight), escape_text(link.pattern) if link.pattern else ""),
        )
        for link in explanation.links
    )
    title = escape_text(f"Strongest link from “{query_word(explanation)}” to another word, by layer")
    heads = "".join(f"<th scope=col>{name}</th>" for name in ("head", "token", "weight", "pattern"))
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    return f'<section><h3>{title}</h3>{table}<p class="quiet">{escape_text(looks_line(explanation))}</p></section>'


def _true(explanation: Explanation) -> str:
    lines = [line for line in (residual_line(explanation), loop_line(explanation)) if line]
    if not explanation.notes and not lines:
        return ""
    notes = "".join(f"<li>{formula(note)}</li>" for note in explanation.notes)
    checks = "".join(f'<p class="check">{escape_text(line)}</p>' for line in lines)
    return f"<section><h3>About this picture</h3><ul>{notes}</ul>{checks}</section>"
