"""The page of a survey in a real browser: its numbers, its texts, both widths, and nothing that runs or loads from elsewhere."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from overt.drawing import html
from overt.errors import InputError
from overt.lens import Survey, survey
from overt.lens.analysis.surveys.examples import examples, shown
from small_surveys import small_model, texts

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> the cat \u202e sat"


@pytest.fixture(scope="module")
def surveyed():
    model, tokenizer = small_model()
    return survey(model, [HOSTILE, *texts(90)], tokenizer=tokenizer), model, tokenizer


@pytest.fixture(scope="module")
def beside(surveyed):
    return survey(surveyed[1], texts(90, seed=4), tokenizer=surveyed[2])


def test_examples_are_deciles_of_the_drawn_texts_and_the_strongest(surveyed):
    result, *_ = surveyed
    of_head = [each for each in examples(result) if each.head == 1]
    deciles = [each.weight for each in of_head if each.decile is not None]
    ranked = sorted(float(links.weights[1]) for links in result.samples.drawn.values() if links.weights[1] >= 0)
    assert deciles == [ranked[round(share / 10 * (len(ranked) - 1))] for share in range(11)]
    assert [each.rank for each in of_head if each.rank] == [*range(1, 9)]
    assert max(deciles) == of_head[-8].weight


def test_rows_are_the_models_own_weights(surveyed):
    result, model, tokenizer = surveyed
    wanted = examples(result)
    parts = shown(result, wanted, model, tokenizer)
    for each, part in list(zip(wanted, parts, strict=True))[::7]:
        head, ids = result.heads[each.head], tokenizer.encode(result.samples.texts[each.text])
        weights = model.weights(torch.tensor([ids]))["decoder"][head.number][0, head.head]
        row = weights[each.query, part.first : part.first + len(part.words)]
        assert np.allclose(part.weights, row, atol=1e-5)
        assert each.weight == pytest.approx(float(weights[each.query, each.key]), abs=1e-5)


def test_the_strongest_text_of_a_head_has_its_map(surveyed):
    result, model, tokenizer = surveyed
    data = data_of(result.page(model=model, tokenizer=tokenizer))
    mapped = [example for example in data["examples"] if example[-1] is not None]
    assert [(example[0], *example[1:3]) for example in mapped] == [(head, "rank", 1) for head in range(4)]
    for head, _, _, text, _, query, key, first, words, _, codes in mapped:
        surveyed_head, ids = result.heads[head], tokenizer.encode(result.samples.texts[text])
        weights = model.weights(torch.tensor([ids]))["decoder"][surveyed_head.number][0, surveyed_head.head]
        window = slice(first, first + len(words))
        drawn = np.frombuffer(base64.b64decode(codes), np.uint8).reshape(len(words), len(words)) / 255
        assert np.allclose(drawn, weights[window, window], atol=0.5 / 255 + 1e-5)
        assert abs(drawn[query - first, key - first] - float(weights[query, key])) < 1 / 255


def data_of(html):
    return json.loads(html.split('id="data">')[1].split("</script>")[0])


def test_the_page_has_each_heads_numbers(surveyed):
    result, model, tokenizer = surveyed
    data = data_of(result.page(model=model, tokenizer=tokenizer))
    entropy = result.measure("entropy")
    assert data["survey"]["entropy"][0] == [float(f"{value:.4g}") for value in entropy.values]
    assert data["survey"]["entropy"][1] == [float(f"{value:.4g}") for value in entropy.low]
    assert [head["role"] for head in data["heads"]] == [role.role for role in result.roles()]


def test_the_page_opens_with_the_strongest_head_of_a_named_role(surveyed, monkeypatch):
    result, *_ = surveyed
    roles = result.roles()
    values, chance = result.measure("previous token").values, result.chance("previous token")

    def opens_with(names):
        named = [replace(role, role=name) for role, name in zip(roles, names, strict=True)]
        monkeypatch.setattr(type(result), "roles", lambda _: named)
        return data_of(result.page())["start"]

    assert opens_with(["first token", "content", "induction", "previous token"]) == 2
    assert opens_with(["first token", "perhaps induction", "content", "previous token"]) == 3
    assert opens_with(["previous token", "content", "content", "previous token"]) == max(
        0, 3, key=lambda i: (values - chance)[i]
    )
    assert opens_with(["content", "uniform", "content", "NaN"]) == np.nanargmin(result.measure("entropy").values)


def test_two_models_of_one_class_are_told_apart_by_their_weights(surveyed, beside):
    model, tokenizer = small_model(seed=7)
    other = survey(model, texts(90, seed=4), tokenizer=tokenizer)
    data = data_of(surveyed[0].page(beside=other))
    names = [data[each]["name"] for each in ("survey", "beside")]
    for each, name in zip((surveyed[0], other), names, strict=True):
        assert f"(weights {each.facts.weights[:6]}…): " in name
    assert names[0].split(":")[0] != names[1].split(":")[0]
    data = data_of(surveyed[0].page(beside=beside))
    assert not [each for each in ("survey", "beside") if "weights" in data[each]["name"]]


def test_without_a_tokenizer_texts_stand_as_they_are(surveyed):
    data = data_of(surveyed[0].page())
    assert all(len(each) == 7 for each in data["examples"])
    assert {str(each[3]) for each in data["examples"]} <= data["texts"].keys()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(400, False), pytest.param(1400, False, marks=pytest.mark.slow), (1400, True)])
def test_a_reader_chooses_heads_and_measures(chromium, surveyed, beside, tmp_path, width, dark):
    result, model, tokenizer = surveyed
    path = tmp_path / "atlas.html"
    result.page(path, beside=beside, model=model, tokenizer=tokenizer, title=HOSTILE)
    page = chromium.page().open(path, width=width, height=900, dark=dark)
    page.until("document.documentElement.className === 'live'")
    assert page.ask("document.querySelectorAll('circle').length") == 4
    assert page.ask("document.querySelector('h1').textContent").startswith("</script><script>alert(1)")
    page.ask("document.querySelectorAll('.cells button')[3].click()")
    assert page.ask("document.querySelector('.head h2').textContent").startswith("L1H1, body.layers.1")
    assert page.ask("document.querySelectorAll('.examples li').length") == 19
    assert page.ask("document.querySelectorAll('.examples .query').length") == 19
    page.ask(
        "(() => { const one = document.querySelector('[aria-label=across]'); one.value = 'entropy'; one.dispatchEvent(new Event('change')); })()"
    )
    assert page.ask("[...document.querySelectorAll('svg text')].some((each) => each.textContent === 'entropy')")
    choose = "(label, value) => { const one = document.querySelector(`[aria-label=${label}]`); one.value = value; one.dispatchEvent(new Event('change')); }"
    page.ask(f"({choose})('measure', 'entropy')")
    entropy = result.measure("entropy").values
    names = [f"L{head.number}H{head.head}" for head in result.heads]
    ranked = "[...document.querySelectorAll('.ranking b:first-child')].map((each) => each.textContent)"
    descending = [names[index] for index in np.argsort(-entropy)]
    assert [name for name in page.ask(ranked) if name] == descending
    page.ask(f"({choose})('order', 'smallest')")
    assert [name for name in page.ask(ranked) if name] == descending[::-1]
    page.ask("document.querySelector('.ranking button').click()")
    assert page.ask("document.querySelector('.head h2').textContent").startswith(descending[-1])
    assert page.ask("document.querySelectorAll('.head th small').length") == 15  # each measure is explained where it is shown
    page.ask("document.querySelector('.examples details').open = true")
    page.until("document.querySelectorAll('.weight-map').length === 1")
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
    assert page.broken_rules() == []


def test_without_scripts_the_numbers_stand_as_a_table(chromium, surveyed, tmp_path):
    surveyed[0].page(tmp_path / "atlas.html")
    page = chromium.page().open(tmp_path / "atlas.html", script=False)
    page.call("Emulation.setScriptExecutionDisabled", value=False)
    assert page.ask("document.querySelectorAll('.still tbody tr').length") == 4


def test_a_survey_of_nothing_has_no_page(surveyed):
    with pytest.raises(InputError, match="Expected a survey with heads, for a page"):
        Survey(surveyed[0].facts).page()


def test_a_page_that_is_too_large_says_what_to_leave_out(surveyed, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "DATA_PAGE_LIMIT", 20_000)
    with pytest.raises(InputError, match=r"a page of at most 20.0 kB, got \d+.\d kB. Fix: survey fewer texts"):
        surveyed[0].page(tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()


@pytest.mark.slow
def test_an_apostrophe_takes_the_space_after_it_away(minilm):
    from overt.lens import survey

    made = survey(minilm.network, ["the model's own words"] * 2, tokenizer=minilm.tokenizer)
    words = {"".join(each.words) for each in shown(made, examples(made), minilm.network, minilm.tokenizer)}
    assert words == {"[CLS] the model's own words[SEP]"}
