"""The part of the page that stands without its script: the sentence, the table of the steps, the links, what is true."""

import math

from overt.drawing.html import escape_text, formula
from overt.drawing.numbers import decimals_for, labels, number, vector, visible
from overt.explain.explanation import (
    Explanation,
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


def article(explanation: Explanation, order: int) -> str:
    """One explanation as HTML; `place` distinguishes it from others on the page."""
    return f"""<article class="explanation {explanation.recipe}" data-explanation="{order}" aria-labelledby="sentence-{order}">
<div class="head">
<p class="recipe"><b>{escape_text(heading(explanation))}</b> <span>{escape_text(explanation.source)}</span></p>
{_sentence(explanation, order)}
</div>
<section class="steps" aria-label="The steps{escape_text(f" of {explanation.name}") if explanation.name else ""}">
<h3>{escape_text(_steps_title(explanation))}</h3>
{_query(explanation)}
<div class="scroll">{_table(explanation)}</div>
</section>
{_links(explanation)}
{_true(explanation)}
</article>"""


def _true(explanation: Explanation) -> str:
    lines = [line for line in (residual_line(explanation), loop_line(explanation)) if line]
    if not explanation.notes and not lines:
        return ""
    title = "About this picture"
    notes = "".join(f"<li>{formula(note)}</li>" for note in explanation.notes)
    checks = "".join(f'<p class="check">{escape_text(line)}</p>' for line in lines)
    return f'<section class="true" aria-label="{title}"><h3>{title}</h3><ul>{notes}</ul>{checks}</section>'


def _steps_title(explanation: Explanation) -> str:
    count = count_word(len(stages(explanation)))
    if not explanation.name:
        return f"{count} steps for “{query_word(explanation)}”"
    return f"{count} steps for “{query_word(explanation)}” in {explanation.name} ({visible(explanation.why)})"


def _sentence(explanation: Explanation, order: int) -> str:
    word_among_keys = word_index(explanation)
    query_line = ""
    if word_among_keys is None:
        tokens = [_token(token, i, i == explanation.word, "asks") for i, token in enumerate(explanation.query_tokens)]
        query_line = f'<p class="sentence asking">{" ".join(tokens)}</p><p class="attends">attends to</p>'
    tokens = [_token(token, j, j == word_among_keys, "token") for j, token in enumerate(explanation.tokens)]
    many = " many" if len(tokens) > 120 else ""
    return f'{query_line}<h2 class="sentence{many}" id="sentence-{order}">{" ".join(tokens)}</h2>'


def _token(token: str, index: int, is_word: bool, kind: str) -> str:
    return f'<bdi class="{kind}{" word" if is_word else ""}" data-token="{index}">{escape_text(token)}</bdi>'


def _query(explanation: Explanation) -> str:
    name, query = query_name(explanation), explanation.query
    numbers = vector(query, decimals=decimals_for(query))
    return f'<p class="query" data-column="vectors"><span class="name">{formula(name)} =</span> <span class="vector">{numbers}</span></p>'


def _table(explanation: Explanation) -> str:
    known = {stage.key: stage for stage in stages(explanation)}
    choice = choose_rows(explanation)
    shown = {row.index for row in choice.rows}
    names = labels(explanation.tokens)
    rows = "".join(
        _row(row, names[row.index], row.index not in shown, "scale" in known) for row in [*choice.rows, *choice.others]
    )
    heads = "".join(
        f'<th scope="col" data-column="{key}"><i>{known[key].number}</i> {formula(name)}</th>'
        for key, name in _columns(explanation)
        if key in known
    )
    caption = f"How “{query_word(explanation)}” attends to each token, strongest first: every step with its numbers."
    return f"""<table>
<caption>{escape_text(caption)}</caption>
<thead><tr><th scope="col">token</th>{heads}</tr></thead>
<tbody>{rows}</tbody>
{_foot(explanation, known)}
</table>"""


def _columns(explanation: Explanation) -> list[tuple[str, str]]:
    """The columns by the step that makes them, and how they are headed."""
    formulas = {stage.key: stage.formula for stage in stages(explanation)}
    first = {"qkv": [("vectors", "key"), ("vectors", "value")], "hidden": [("vectors", "h_j")], "plain": [("vectors", "x_j")]}
    names = [(key, formulas.get(key, "")) for key in ("score", "scale", "normalize", "weigh")]
    names = [(key, f"{normalizer_name(explanation)} {name}" if key == "normalize" else name) for key, name in names]
    return [*first[explanation.recipe], *names]


def _row(row: StepRow, name: str, rest: bool, scaled: bool) -> str:
    vectors = [row.value] if row.key == row.value else [row.key, row.value]
    cells = "".join(_vector_cell("vectors", entries) for entries in vectors)
    cells += _number_cell("score", row.score, 2)
    cells += _number_cell("scale", row.scaled, 2) if scaled else ""
    cells += _number_cell("normalize", row.weight, 3) + _vector_cell("weigh", row.weighted)
    return f'<tr data-row="{row.index}"{" class=rest" if rest else ""}><th scope="row"><bdi>{escape_text(name)}</bdi></th>{cells}</tr>'


def _vector_cell(key: str, entries: list[float]) -> str:
    return f'<td data-column="{key}" class="vector"><span>{vector(entries, decimals=decimals_for(entries))}</span></td>'


def _number_cell(key: str, value: float, decimals: int) -> str:
    return f'<td data-column="{key}" class="number"><span>{number(value, decimals)}</span></td>'


def _foot(explanation: Explanation, known: dict) -> str:
    choice = choose_rows(explanation)
    span = 1 + sum(key in known for key, _ in _columns(explanation)[:-2])
    total = number(math.fsum(row.weight for row in explanation.steps), 3)
    others = ""
    if choice.others:
        others = (
            f'<tr class="others" hidden><th scope="row" colspan="{span}"><span>{choice.label}</span></th>'
            f"{_number_cell('normalize', choice.weight, 3)}{_vector_cell('weigh', choice.weighted)}</tr>"
        )
    name = f"<i>{known['sum'].number}</i> {formula(sum_formula(explanation))}"
    output = (
        f'<tr class="output" data-column="sum"><th scope="row" colspan="{span}">{name}</th>'
        f'<td class="number">{total}</td>{_vector_cell("sum", explanation.output)}</tr>'
    )
    return f"<tfoot>{others}{output}{_join(explanation, known, span)}</tfoot>"


def _join(explanation: Explanation, known: dict, span: int) -> str:
    if "join" not in known:
        return ""
    joined = explanation.joined or [*explanation.query, *explanation.output]
    name = f"<i>{known['join'].number}</i> {formula(known['join'].formula)}"
    return (
        f'<tr class="output" data-column="join"><th scope="row" colspan="{span}">{name}</th>'
        f'<td class="number"></td>{_vector_cell("join", joined)}</tr>'
    )


def _links(explanation: Explanation) -> str:
    if not explanation.links and not explanation.looks:
        return ""
    rows = "".join(
        f'<tr data-layer="{link.layer}" data-head="{link.head}"'
        f"{' class=shown' if (link.layer, link.head) == tuple(explanation.shown) else ''}>"
        f'<th scope="row">L{link.layer}H{link.head}</th><td><bdi>{escape_text(link.token)}</bdi></td>'
        f'<td class="number" data-weight="{link.weight:.6g}"><span>{number(link.weight)}</span></td>'
        f"<td>{escape_text(link.pattern) if link.pattern else ''}</td></tr>"
        for link in explanation.links
    )
    title = f"Strongest link from “{query_word(explanation)}” to another word, by layer"
    table = (
        f"<table><caption>{escape_text(title)}</caption><thead><tr><th scope=col>head</th><th scope=col>token</th>"
        f"<th scope=col>weight</th><th scope=col>pattern</th></tr></thead><tbody>{rows}</tbody></table>"
    )
    return (
        f'<section class="links" aria-label="{escape_text(title)}"><h3>{escape_text(title)}</h3>'
        f'{table if explanation.links else ""}<p class="quiet">{escape_text(looks_line(explanation))}</p></section>'
    )
