"""The lesson of re-weighting: curves, weights and what has influence, as overt.attend gives them for the test's own numbers."""

import json

import numpy as np
import pytest
import torch
from live_page import TIRED, opened_at, shown, table

import overt

X = np.random.default_rng(11).normal(size=37).cumsum().round(3) + 1.5


def curve(by, x, width=3.0, alike=0.5):
    time, value = torch.arange(len(x), dtype=torch.float64)[:, None], torch.tensor(x, dtype=torch.float64)[:, None]
    spread = alike * float(value.std(correction=0))
    if by == "both":
        scaled = torch.cat([time / width, value / spread], 1)
        return overt.attend(scaled, scaled, value, score=overt.Gaussian(1.0))[:, 0].numpy()
    if by == "patch":
        padded = torch.tensor(np.pad(x, 3, mode="reflect"))
        patches = padded.unfold(0, 7, 1) / np.sqrt(7)
        return overt.attend(patches, patches, value, score=overt.Gaussian(spread))[:, 0].numpy()
    key, score, normalizer = {
        "time": (time, overt.Gaussian(width), None),
        "value": (value, overt.Gaussian(spread), None),
        "dot": (value, overt.Dot(1.0), None),
        "sum": (value, overt.Dot(1.0), overt.normalizers.Sum()),
    }[by]
    return overt.attend(key, key, value, score=score, normalizer=normalizer)[:, 0].numpy()


def paste(live, text):
    live.page.ask(
        "void (() => { const field = document.getElementById('numbers'); field.focus();"
        f"field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input')); }})()"
    )


def said(page):
    return page.ask("document.querySelector('canvas.series').getAttribute('aria-valuetext')")


def influence(page):
    return [float(row[1].replace("−", "-")) for row in table(page, ".panel.reweight section:has(h2):not(.second)")]


@pytest.mark.parametrize("settings", [
    {"by": "time", "width": 1.7}, {"by": "value", "alike": 0.25}, {"by": "both", "width": 5, "alike": 0.8}, {"by": "patch", "alike": 0.6},
    {"by": "dot"}, {"by": "sum"},
])  # fmt: skip
@pytest.mark.few_cases(1)
def test_the_curve_is_what_attend_gives(written_little, opened, settings):
    live = opened_at(opened, written_little, "reweight")
    paste(live, " ".join(map(str, X)))
    expected = curve(x=X, **settings)
    shown(live, **settings, point=36)
    for point in (0, 9, 23, 35):
        page = shown(live, point=point)
        x, y = said(page).replace("−", "-").split(": ")[1].split(" becomes ")
        assert float(x) == pytest.approx(X[point], abs=6e-4)
        assert float(y) == pytest.approx(expected[point], abs=6e-4)
    order, zero = influence(page)
    moved = np.abs(curve(x=X + 10, **settings) - 10 - expected).max()
    assert zero == pytest.approx(moved, abs=6e-4, rel=1e-3)
    assert (order < 1e-10) == (settings["by"] in {"value", "dot", "sum"})
    assert page.complaints == []


@pytest.mark.slow
def test_a_series_is_drawn_with_the_mouse_and_stands_in_the_address(written_little, opened):
    live = opened_at(opened, written_little, "reweight")
    page = live.page
    page.ask("document.querySelector('canvas.series').scrollIntoView()")
    left, top, width, height = page.ask(
        "(({ left, top, width, height }) => [left, top, width, height])(document.querySelector('canvas.series').getBoundingClientRect())"
    )
    before = page.ask("document.getElementById('numbers').value").split()
    mouse = {"button": "left", "buttons": 1, "clickCount": 1}
    page.call("Input.dispatchMouseEvent", type="mousePressed", x=left + 0.3 * width, y=top + 0.2 * height, **mouse)
    for share in (0.4, 0.5, 0.6):
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + share * width, y=top + 0.2 * height, **mouse)
    page.call("Input.dispatchMouseEvent", type="mouseReleased", x=left + 0.6 * width, y=top + 0.2 * height, **mouse)
    after = page.ask("document.getElementById('numbers').value").split()
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert changed == list(range(changed[0], changed[-1] + 1))
    assert 10 < len(changed) < 25
    assert len({after[i] for i in changed}) == 1  # one height
    second = opened_at(opened, page.ask("viewer.store.link()"), "reweight")
    assert second.page.ask("document.getElementById('numbers').value").split() == after


@pytest.mark.slow
@pytest.mark.parametrize(("text", "sentence"), [
    ("1 2 <b>", "Expected numbers, got “<b>”."), ("4", "Expected 3 numbers or more, got 1."), ("1,2,inf", "Expected numbers, got “inf”."),
])  # fmt: skip
def test_what_is_no_series_gets_a_sentence_and_changes_nothing(written_little, opened, text, sentence):
    live = opened_at(opened, written_little, "reweight")
    before = said(live.page)
    paste(live, text)
    assert live.page.ask("document.querySelector('.panel.reweight .wrong').textContent").startswith(sentence)
    assert said(live.page) == before
    assert live.page.complaints == []


@pytest.mark.slow
def test_word_vectors_are_weighted_as_in_python(written, opened, minilm):
    live = opened_at(opened, written, "reweight")
    for text, token in ((TIRED, 2), ("Sky is clear today", 3)):
        if text != TIRED:
            live.type(text)
        page = shown(live, token=token)
        ids = minilm.encode(text).ids[1:-1]
        vectors = minilm.network.embeddings.word_embeddings.weight[ids].detach()
        weights = (vectors @ vectors[token - 1]).softmax(-1)
        rows = table(page, ".panel.reweight .second")
        assert [float(row[2]) for row in rows] == pytest.approx(sorted(weights.tolist(), reverse=True)[: len(rows)], abs=2e-3)
        best = weights.argmax().item()
        assert rows[0][0] == minilm.encode(text).tokens[1 + best]
        assert float(rows[0][1]) == pytest.approx(float(vectors[best] @ vectors[token - 1]), abs=2e-3)
