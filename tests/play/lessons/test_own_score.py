"""The score that a reader types in lesson 3: the core's numbers are torch's, what is wrong gets a sentence, and the address keeps it."""

import json
import math
import re

import numpy as np
import pytest
import torch
from live_page import TIRED, opened_at, shown, table
from test_core import CORE
from test_lessons import states_of

from overt.attention.expressions.instructions import OPERATIONS, assemble
from overt.attention.expressions.tracing import traced
from overt.drawing.html import bundle, read

SCORE = "play/web/lessons/score"


def product(q, k):
    return (q * k).sum(-1)


# Each as it is typed, and in torch for rows of q and k; the first ones are the page's buttons.
SCORES = {
    "q·k / √d": lambda q, k: product(q, k) / math.sqrt(q.shape[-1]),
    "−Σ |q − k|": lambda q, k: -(q - k).abs().sum(-1),
    "−Σ (q − k)² / 2": lambda q, k: -(q - k).square().sum(-1) / 2,
    "sum(tanh(q + k))": lambda q, k: (q + k).tanh().sum(-1),
    "(1 + q·k/8)²": lambda q, k: (1 + product(q, k) / 8) ** 2,
    "q·k / (√(q·q) · √(k·k))": lambda q, k: torch.cosine_similarity(q, k, -1),
    "max(q * k)": lambda q, k: (q * k).amax(-1),
    "dot(q, k) / sqrt(d)": lambda q, k: product(q, k) / math.sqrt(q.shape[-1]),
    "exp(-sum((q-k)^2)/9)": lambda q, k: (-(q - k).square().sum(-1) / 9).exp(),
    "-Σ|q - k|^1.5 + 2 * mean(relu(k))": lambda q, k: -(q - k).abs().pow(1.5).sum(-1) + 2 * k.relu().mean(-1),
    "min(q·k, 3) - max(sum(cos(q) * sin(2*k)), 0.5)": lambda q, k: product(q, k).clamp(max=3) - (
        (q.cos() * (2 * k).sin()).sum(-1).clamp(min=0.5)
    ),
    "sum(sigmoid(q) * k * sum(q*k)) / log(2 + min(abs(q + k)))": lambda q, k: (q.sigmoid() * k).sum(-1) * product(q, k) / (
        2 + (q + k).abs().amin(-1)
    ).log(),
    "-2^-q·k²": lambda q, k: (-(2.0**-q) * k.square()).sum(-1),
    "1 - 2 - 3 / 4 * 2": lambda q, k: torch.full(k.shape[:1], -2.5, dtype=k.dtype),
}  # fmt: skip
WRONG = {
    "": "Expected q, k, d, a number, a function or “(”, got the end. Fix: end with a term.",
    "q − k": "Expected one number for each pair of q and k, got one for each feature. Fix: put sum(…) around it.",
    "sum(q·k)": "Expected a number for each feature inside of sum, mean, max or min, got one number for the pair.",
    "dot(q·k, k)": "Expected two vectors in dot(…), got one number for the pair. Fix: dot(q, k).",
    "sum(tanhh(q))": "Expected a name that is known, got “tanhh” at character 5. Fix: write tanh.",
    "constructor(q)": "Expected a name that is known, got “constructor” at character 1. Fix: use q, k, d, abs,",
    "((q·k) + (1": "Expected “)”, got the end. Fix: close the “(” at character 10.",
    "q·k)": "Expected the end, got “)” at character 4. Fix: remove it, or open it before.",
    "sum(|q)": "Expected “|”, got “)” at character 7. Fix: close the “|” at character 5.",
    "sum(2q)": "Expected +, −, *, /, · or ^, got “q” at character 6. Fix: write * for the product of each feature, · for",
    "sum q": "Expected “(”, got “q” at character 5. Fix: write sum(…).",
    "q·k &": "Expected the end, got “&” at character 5. Fix: remove it.",
    "max(q, k, d)": "Expected 1 or 2 arguments of max, got 3. Fix: max(…).",
    "<img src=x>": "Expected q, k, d, a number, a function or “(”, got “<” at character 1.",
    "log(0 − 1 − (q·k)²)": "Expected a number for every key, got none for 16 of 16",
    "exp(99 + (q·k)²)": "Expected scores that float32 can hold, got more for 16 of 16 keys.",
}


def number(text):
    return float(text.replace("−", "-"))


def query_and_keys(model, text, layer, head, token):
    """The model's own, in float64."""
    captured = []
    attention = list(model.network.encoder["layer"].children())[layer].attention.self
    hooks = [each.register_forward_hook(lambda *call: captured.append(call[-1])) for each in (attention.query, attention.key)]
    states_of(model, text)
    for hook in hooks:
        hook.remove()
    query, key = (each[0].unflatten(-1, (attention.heads, -1))[:, head].double() for each in captured)
    return query[token], key


def test_every_score_and_its_weights_are_torchs(written_little, opened, little):
    live = opened_at(opened, written_little, "joining")
    query, key = query_and_keys(little, TIRED, 2, 3, 10)
    for typed, score in SCORES.items():
        page = shown(live, score=typed, head=2 * 4 + 3, token=10)
        assert page.ask("document.getElementById('own-wrong').textContent") == "", typed
        rows = table(page, ".panel.joining .card:has(#own-score)")
        expected = score(query, key)
        assert [number(row[1]) for row in rows] == pytest.approx(expected.tolist(), abs=6e-3, rel=6e-3), typed
        assert [number(row[2]) for row in rows] == pytest.approx(expected.softmax(-1).tolist(), abs=2e-3), typed
        assert [number(row[3]) for row in rows] == pytest.approx((key @ query / math.sqrt(12)).softmax(-1).tolist(), abs=2e-3)
        apart = float(page.ask("document.querySelector('[data-apart]').dataset.apart"))
        assert apart <= 3e-6 * max(1, float(expected.abs().max())), typed
    assert list(SCORES)[:7] == page.ask(
        "Array.from(document.querySelectorAll('[data-set=score]'), (each) => each.dataset.value)"
    )
    assert page.complaints == []


@pytest.mark.slow
def test_what_is_typed_wrong_gets_a_sentence_and_keeps_the_last_table(written_little, opened):
    live = opened_at(opened, written_little, "joining")
    before = table(shown(live, score="max(q * k)"), ".panel.joining .card:has(#own-score)")
    for typed, start in WRONG.items():
        page = shown(live, score=typed)
        assert page.ask("document.getElementById('own-wrong').textContent").startswith(start), typed
        assert page.ask("document.getElementById('own-score').getAttribute('aria-invalid')") == "true"
        if not start.endswith("16 of 16") and "float32" not in start:
            assert table(page, ".panel.joining .card:has(#own-score)") == before
        assert page.broken_rules() == [] if typed == "q − k" else True
    shown(live, score="max(q * k)")
    assert live.page.ask("document.getElementById('own-score').getAttribute('aria-invalid')") == "false"
    assert live.page.complaints == []


@pytest.mark.slow
def test_the_address_keeps_what_was_typed(written_little, opened):
    live = opened_at(opened, written_little, "joining")
    assert "score=" not in live.page.ask("viewer.store.link()")
    typed = "−Σ |q − k|^1.5 & <b>"
    field = "document.getElementById('own-score')"
    live.page.ask(f"void ({field}.focus(), {field}.value = {json.dumps(typed)}, {field}.dispatchEvent(new Event('input')))")
    second = opened_at(opened, live.page.ask("viewer.store.link()"), "joining")
    assert second.page.ask("document.getElementById('own-score').value") == typed
    assert "“&” at character 16" in second.page.ask("document.getElementById('own-wrong').textContent")
    second.page.ask("document.querySelector('[data-set=score][data-value=\"−Σ |q − k|\"]').click()")
    shown(second, token=3)
    assert second.page.ask("document.getElementById('own-score').value") == "−Σ |q − k|"


def test_operations_have_the_numbers_of_pythons_programs():
    listed = re.search(r"OPERATIONS = \[([^\]]*)\]", read(f"{SCORE}/functions.js"))[1]
    names = re.findall(r'"(\w+)"', listed)
    assert names == OPERATIONS[: len(names)]


@pytest.fixture(scope="module")
def core(chromium, tmp_path_factory):
    """A page that has the core and the lesson's programs; `run` gives a program's scores, or the rule that it breaks."""
    path = tmp_path_factory.mktemp("core") / "page.html"
    ask = """
    const core = $play_worker_core.createCore(new WebAssembly.Instance(new WebAssembly.Module(Uint8Array.from(BYTES))).exports);
    globalThis.run = (code, numbers, query, keys, dim) => {
      const before = core.allocate(0), [rows, count] = [query.length / dim, keys.length / dim], to = core.room(rows * count);
      const put = (type, values) => core.put(type.from(values));
      const wrong = core.program_scores(put(Float32Array, query), rows, put(Float32Array, keys), count, dim, put(Int32Array, code), code.length, put(Float64Array, numbers), numbers.length, to);
      const answer = wrong ? core.text(wrong) : Array.from(core.floats(to, rows * count));
      core.release(before);
      return answer;
    };
    globalThis.program = (text, dim) => { const { code, numbers } = $SCORE_program.programOf($SCORE_parser.parsed(text), dim); return [Array.from(code), Array.from(numbers, String)]; };"""
    ask = ask.replace("BYTES", str(list(CORE.read_bytes()))).replace("$SCORE", "$play_lessons_score")
    scripts = "".join(f"<script>{bundle(root)}</script>" for root in ("play/web/worker/core.js", f"{SCORE}/own_score.js"))
    path.write_text(f"<!doctype html><meta charset=utf-8>{scripts}<script>{ask}</script>", encoding="utf-8")
    return chromium.page().open(path)


def ran(page, code, numbers, query, key):
    numbers = "[" + ",".join(str(each).replace("inf", "Infinity") for each in numbers) + "]"
    rows = [json.dumps(each.flatten().tolist()) for each in (query, key)]
    return page.ask(f"run({json.dumps(list(code))}, {numbers}, {', '.join(rows)}, {query.shape[-1]})")


def test_the_core_runs_the_programs_that_attend_runs(core):
    def distance(q, k):
        return -(q.unsqueeze(-2) - k.unsqueeze(-3)).abs().sum(-1)

    for queries, keys, dim in ((3, 5, 8), (70, 131, 5)):
        query, key = torch.randn(queries, dim), torch.randn(keys, dim)
        score = traced(distance, query, key)
        program = assemble(score.terms, score.numbers)
        of_python = ran(core, program.code, [*score.numbers, *program.numbers], score.query, score.key)
        code, numbers = core.ask(f"program('-sum(abs(q - k))', {dim})")
        of_page = ran(core, code, map(float, numbers), query, key)
        expected = distance(query.double(), key.double()).flatten().tolist()
        assert of_python == pytest.approx(expected, abs=3e-6 * dim)
        assert of_page == pytest.approx(expected, abs=3e-6 * dim)


def test_the_core_refuses_programs_that_leave_their_inputs(core):
    query = key = torch.ones(1, 4)
    code, numbers = core.ask("program('exp(sum(q * q * k) - q·k) / d', 4)")
    numbers = list(map(float, numbers))
    assert ran(core, code, numbers, query, key) == pytest.approx([0.25])
    assert ran(core, code[:-1], numbers, query, key) == "a whole program"
    assert ran(core, [*code, 0], numbers, query, key) == "a program that ends with its last stage"
    generator, refused = np.random.default_rng(0), 0
    for _ in range(300):
        changed = list(code)
        changed[generator.integers(len(code))] = int(generator.integers(-2, 40))
        answer = ran(core, changed, numbers, query, key)  # a trap would be an exception
        refused += isinstance(answer, str)
    assert refused > 150
