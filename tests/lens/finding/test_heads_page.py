"""The page of heads that connect labelled pairs, in a real browser: its numbers, its texts, both widths, and nothing from elsewhere."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from overt.cli.main import app
from overt.lens.analysis.finding.pairs import ReadPair
from overt.lens.analysis.finding.ranked import RankedHead, RankedHeads

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \u202e"


@pytest.fixture(scope="module")
def result():
    """Fifteen heads on thirty held-out pairs: head number i is right in the first 30 − 2 i of them."""
    right = np.arange(30)[:, None] < 30 - 2 * np.arange(15)
    heads = tuple(
        RankedHead((index // 4, index % 4), HOSTILE, float(right[:, index].mean()), (0.1, 0.9), 0.5, 0.01 * index, 0.2, 0.7, 1 - index / 20)
        for index in range(15)
    )  # fmt: skip
    pairs = tuple(
        ReadPair(((f"{number} the ", ""), ("cat", "key"), (HOSTILE, ""), ("dog", "distractor"), (" saw ", ""), ("it", "query")), tuple(row.astype(float)), (0.25,) * 15)
        for number, row in enumerate(right)
    )  # fmt: skip
    return RankedHeads(heads, {"chance": 0.5, "distance": 0.4}, (30, 30), (30, 30), HOSTILE, (HOSTILE,), pairs)


@pytest.mark.parametrize(
    ("width", "dark"), [(400, False), pytest.param(1400, False, marks=pytest.mark.slow), pytest.param(1400, True, marks=pytest.mark.slow)]
)  # fmt: skip
def test_a_reader_sees_all_heads_and_the_texts_of_the_chosen_one(chromium, result, tmp_path, width, dark):
    path = tmp_path / "heads.html"
    assert result.page(path) == str(path)
    shown = chromium.page().open(path, width=width, height=900, dark=dark)
    shown.until("document.documentElement.className === 'live'")
    assert "</script><script>alert(1)" in shown.ask("document.querySelector('h1').textContent")
    rows = (
        "[...document.querySelectorAll('.heads tbody:first-of-type tr')].map((row) => row.querySelector('button').textContent)"
    )
    assert shown.ask(rows) == [head.name for head in result.heads[:12]]
    shown.ask("[...document.querySelectorAll('.saves button')].find((node) => node.textContent === 'all 15 heads').click()")
    assert len(shown.ask(rows)) == 15
    assert shown.ask("[...document.querySelectorAll('.heads tbody:last-of-type th')].map((node) => node.textContent)")[1:] == [
        "chance",
        "distance",
    ]
    shown.ask("document.querySelectorAll('.heads button')[2].click()")
    assert "L0H2 is right in 26 of 30" in shown.ask("document.querySelector('.texts').textContent")
    assert shown.ask("[...document.querySelectorAll('.texts li .wrong')].length") == 4
    assert shown.ask("document.querySelectorAll('.texts li').length") == 20
    shown.ask("document.querySelector('.texts .saves button').click()")
    assert shown.ask("document.querySelectorAll('.texts li').length") == 30
    assert shown.ask("[...document.querySelectorAll('.texts li .query')].every((node) => node.textContent === 'it')")
    choose = "(label, value) => { const one = document.querySelector(`[aria-label=${label}]`); one.value = value; one.dispatchEvent(new Event('change')); }"
    shown.ask(f"({choose})('texts', 'wrong')")
    assert shown.ask("document.querySelectorAll('.texts li').length") == 4
    shown.ask(f"({choose})('order', 'accuracy')")
    assert shown.ask(rows)[0] == "L0H0"
    assert shown.ask("document.documentElement.scrollWidth") <= width
    assert shown.complaints == []
    assert [url for url in shown.requests if not url.startswith(("file:", "data:"))] == []
    assert shown.broken_rules() == []


def test_without_scripts_heads_and_baselines_are_tables(chromium, result, tmp_path):
    result.page(tmp_path / "heads.html", title="mine")
    shown = chromium.page().open(tmp_path / "heads.html", script=False)
    shown.call("Emulation.setScriptExecutionDisabled", value=False)
    assert shown.ask("[...document.querySelectorAll('#still tbody')].map((node) => node.rows.length)") == [15, 2]
    assert shown.ask("document.querySelector('#still h1').textContent") == "mine"


def test_long_texts_are_shortened_and_the_number_of_texts_is_bounded(result):
    long = ReadPair((("a" * 1000, ""), ("cat", "key")), (1.0,) * 15, (0.5,) * 15)
    html = RankedHeads(result.heads, result.baselines, (400, 400), (400, 400), "Model", (), (long,) * 400).page()
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert len(data["texts"]) == 300
    assert len(data["texts"][0]["pieces"][0][0]) == 243
    assert data["notes"] == ["300 of 400 held-out texts are on this page."]


@pytest.mark.slow
def test_the_command_writes_the_page_with_the_texts_as_the_model_read_them(tmp_path):
    nouns = ("dog", "cat", "horse", "cow")
    lines = [json.dumps({"text": f"The {noun} saw the {other} and slept.", "query": "saw", "key": noun, "distractors": [other]})
             for noun in nouns for other in nouns if noun != other]  # fmt: skip
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    run = CliRunner().invoke(app, ["heads", "minilm", str(tmp_path / "pairs.jsonl"), "--html", str(tmp_path / "heads.html")])
    assert run.exit_code == 0, run.output
    html = (tmp_path / "heads.html").read_text(encoding="utf-8")
    texts = json.loads(html.split('id="data">')[1].split("</script>")[0])["texts"]
    assert len(texts) == 6
    for text in texts:
        assert "".join(piece for piece, _ in text["pieces"]).startswith("the ")
        assert [part for _, part in text["pieces"] if part] == ["key", "query", "distractor"]
        assert len(text["right"]) == 72
