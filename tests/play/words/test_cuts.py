"""A cut arc: what the page computes without a weight is what `lens.edit` computes, it is said before and after, and it can be undone."""

import os

import numpy as np
import pytest
import torch
from live_page import TIRED
from test_translator_page import written
from translator_models import model_alone

import browser
from contrast import faint_texts
from overt import lens
from overt.learn.translator import Translator, bundled_folder

CUTS = int(os.environ.get("OVERT_CUTS", "6"))  # of each kind; with 200, all agreed
HEAD = "viewer.recording.heads[viewer.store.get().head]"
WEIGHTS = "viewer.recording.heads.map((head) => head.queries.map((_, i) => Array.from(head.weightsRow(i))))"
CROSS = [(f"decoder.layers.{layer}.cross_attention", head) for layer in range(3) for head in range(5)]
STRONGEST = "document.querySelector('.texts .hit:last-of-type')"


def reload(live, change):
    """Change the state and wait until the model has read the sentence again."""
    read = live.page.ask("Number(viewer.dataset.read)")
    live.page.ask(f"void ({change})")
    live.page.until(f"Number(viewer.dataset.read) > {read}", 60)


def turned(before, after):
    return 1 - (before * after).sum(-1) / (np.linalg.norm(before, axis=-1) * np.linalg.norm(after, axis=-1))


def without(weights, row, keys):
    """Weights (N, K) whose row runs over the other keys: a recording has the model's own weights in the head that is edited."""
    result = weights.astype(np.float64)
    result[row, list(keys)] = 0
    result[row] /= result[row].sum()
    return result


def edited(little, model, cuts, everywhere):
    """All weights (heads, N, N) and the last layer's vectors (N, width), without the pairs that are cut."""
    encoded = little.encode(TIRED)
    with torch.no_grad(), lens.record(model) as recording, lens.edit(model) as edit:
        for layer, head, row, key in cuts:
            edit.block(head=None if everywhere else (layer, head), query=row, key=key)
        states = model(torch.tensor([encoded.ids]))
    heads = [(layer, head) for layer in range(3) for head in range(4)]
    weights = {position: recording[position].weights().reshape(16, 16).numpy() for position in heads}
    for position in heads:
        for row in {cut[2] for cut in cuts}:
            keys = {cut[3] for cut in cuts if cut[2] == row and (everywhere or cut[:2] == position)}
            weights[position] = without(weights[position], row, keys) if keys else weights[position]
    return np.stack([weights[position] for position in heads]), states[0].double().numpy()


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.few_cases(1)
def test_the_encoder_without_a_weight_is_pythons(written_little, opened, little, as_stored, everywhere):
    live = opened(written_little, calm=True).ready()
    drawn = np.random.default_rng(3)
    plain = edited(little, as_stored, [], False)
    assert np.abs(np.array(live.page.ask(WEIGHTS)) - plain[0]).max() < 1e-4
    for _ in range(CUTS):
        pairs = [tuple(int(drawn.integers(most)) for most in (3, 4, 16, 16)) for _ in range(drawn.integers(1, 4))]
        written = ",".join(".".join(map(str, pair)) for pair in dict.fromkeys(pairs))
        reload(live, f"viewer.store.set({{ cut: '{written}', everywhere: {str(everywhere).lower()} }})")
        weights, states = edited(little, as_stored, pairs, everywhere)
        assert np.abs(np.array(live.page.ask(WEIGHTS)) - weights).max() < 1e-4
        cut = live.page.ask("viewer.recording.cut")
        assert cut["turned"] == pytest.approx(turned(plain[1], states).tolist(), abs=1e-4)
        assert cut["sentence"] == pytest.approx(float(turned(plain[1].mean(0), states.mean(0))), abs=1e-4)
        assert cut["before"] == pytest.approx(
            [float(plain[0][4 * layer + head, row, key]) for layer, head, row, key in dict.fromkeys(pairs)], abs=1e-4
        )
        assert live.page.ask("viewer.recording.verified.holds")
    assert live.page.complaints == []


def test_an_arc_is_cut_and_healed_by_mouse_and_by_keyboard(written_little, opened):
    live = opened(written_little, calm=True).ready()
    before = live.page.ask(WEIGHTS)
    token = live.page.ask("viewer.store.get().token")
    key = int(live.page.ask(f"{STRONGEST}.dataset.arc"))
    reload(live, f"{STRONGEST}.dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))")
    assert live.page.ask(f"{HEAD}.weight({token}, {key})") == 0
    assert sum(live.page.ask(f"Array.from({HEAD}.weightsRow({token}))")) == pytest.approx(1, abs=1e-5)
    said = live.page.ask("document.querySelector('.cutting').textContent")
    assert f"was {before[live.page.ask('viewer.store.get().head')][token][key]:.3f}" in said
    assert "now attends most to" in said
    assert "it does not show that the weight is the reason" in said
    assert faint_texts(live.page) == []
    reload(live, "document.querySelector('[data-does=undo]').click()")
    assert live.page.ask(WEIGHTS) == before
    assert live.page.ask("document.querySelector('.cutting').textContent").startswith("Click an arc")
    read = live.page.ask("Number(viewer.dataset.read)")
    live.page.ask(f"{STRONGEST}.focus()")
    live.page.press("Delete")
    live.page.until(f"Number(viewer.dataset.read) > {read}", 30)
    assert live.page.ask(f"{HEAD}.weight({token}, {key})") == 0
    assert live.page.ask("document.activeElement.getAttribute('aria-label')").startswith("undo the cut ")
    reload(live, "viewer.store.set({ everywhere: true })")
    live.type("Cats sleep.")
    assert live.page.ask("viewer.store.get().everywhere") is False
    assert live.page.ask("viewer.store.get().cut") == ""


# Where a pointer may land on each arc that is drawn, the ends last.
POINTS = """[...document.querySelectorAll('.texts .hit')].map((hit) => {
  const [length, { left, top }] = [hit.getTotalLength(), hit.ownerSVGElement.getBoundingClientRect()];
  return [Number(hit.dataset.arc), [0.5, 0.7, 0.9, 1].map((share) => hit.getPointAtLength(share * length)).map(({ x, y }) => [x + left, y + top])];
})"""


@pytest.mark.parametrize(
    "text",
    [
        "The ferry left the old pier before the tourists had paid for it.",
        pytest.param("Milk, eggs, bread: is that all?", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_pointer_can_choose_every_arc_at_400_pixels(written_little, opened, text):
    live = opened(written_little, calm=True, width=400).ready()
    live.type(text)
    chosen, drawn = set(), set()
    for token in (2, 5, 8):
        live.page.ask(f"void viewer.store.set({{ token: {token} }})")
        live.page.ask("void document.querySelector('.texts').scrollIntoView({ block: 'center' })")
        for arc, points in live.page.ask(POINTS):
            drawn.add((token, arc))
            for x, y in points:
                for kind in ("mousePressed", "mouseReleased"):
                    live.page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
                cut = live.page.ask("viewer.store.get().cut")
                live.page.ask(f"void viewer.store.set({{ cut: '', token: {token} }})")
                if cut.endswith(f".{token}.{arc}"):
                    chosen.add((token, arc))
                    break
    assert len(drawn) > 15
    assert chosen == drawn


def test_the_only_key_of_a_query_is_not_cut(written_little, opened):
    live = opened(written_little, calm=True).ready()
    live.type("Cats.")
    count = live.page.ask("viewer.recording.heads[0].keyCount")
    most = ",".join(f"0.1.2.{key}" for key in range(count - 1))
    reload(live, f"viewer.store.set({{ cut: '{most}' }})")
    weights = live.page.ask("Array.from(viewer.recording.heads[1].weightsRow(2))")
    assert weights == pytest.approx([0.0] * (count - 1) + [1.0])
    live.page.ask(f"void viewer.store.set({{ cut: '{most},0.1.2.{count - 1}' }})")
    live.until_said("Expected a cut that leaves ")
    assert "its softmax would have nothing to divide. Fix: undo another cut first." in live.said
    assert live.page.ask("viewer.store.get().cut") == most


def test_a_special_token_can_be_cut_and_is_named(written_little, opened):
    live = opened(written_little, calm=True).ready()
    reload(live, "viewer.store.set({ head: 1, token: 3, cut: '0.1.3.0' })")
    assert live.page.ask(f"{HEAD}.weight(3, 0)") == 0
    assert live.page.ask("document.querySelector('.cuts b').textContent").startswith("didn → [CLS] (L0H1, was ")


@pytest.fixture(scope="module")
def translated_page(tmp_path_factory):
    path = tmp_path_factory.mktemp("cuts") / "page.html"
    return written(bundled_folder(), path, "I think that the black cat is sleeping on my bed.")


def translated(translator, text, positions, row, key):
    """The translation without the weights of these heads, and all weights that the decoder gives to the source when it is scored."""
    with torch.no_grad(), lens.edit(translator.model) as edit:
        for position in positions:
            edit.block(head=position, query=row, key=key)
        [translation] = translator.translate([text], beam=1)
    with torch.no_grad(), lens.record(translator.model) as recording, lens.edit(translator.model) as edit:
        for position in positions:
            edit.block(head=position, query=row, key=key)
        translator.model(*translator.teacher_forced(text, translation))
    weights = {position: recording[position].weights()[0].numpy() for position in CROSS}
    return translation.text, np.stack(
        [without(weights[position], row, {key}) if position in positions else weights[position] for position in CROSS]
    )


@pytest.mark.slow
def test_the_translation_without_a_weight_is_pythons(translated_page, opened):
    live, translator = opened(translated_page, calm=True).ready(), model_alone(Translator.bundled())
    text = live.page.ask("viewer.store.get().text")
    drawn = np.random.default_rng(5)
    rows, keys = live.page.ask("[viewer.recording.heads[0].queryCount, viewer.recording.heads[0].keyCount]")
    changed = 0
    for number in range(CUTS):
        everywhere = number % 2 == 0
        layer, head, row, key = (int(drawn.integers(most)) for most in (3, 5, rows, keys)) if number else (1, 0, 0, 0)
        reload(live, f"viewer.store.set({{ cut: '{layer}.{head}.{row}.{key}', everywhere: {str(everywhere).lower()} }})")
        output, expected = translated(translator, text, CROSS if everywhere else [CROSS[5 * layer + head]], row, key)
        before, after = live.page.ask("viewer.recording.cut.texts")
        assert after == output == live.page.ask("document.querySelector('.typing .translation').textContent")
        assert np.abs(np.array(live.page.ask(WEIGHTS)) - expected).max() < 1e-4
        changed += before != after
    assert changed
    assert live.page.complaints == []


@pytest.mark.slow
def test_the_translators_first_example_loses_its_gender_with_an_arc(translated_page, opened):
    live, translator = opened(translated_page, calm=True).ready(), model_alone(Translator.bundled())
    reload(live, "document.querySelector('.examples button').click()")
    assert live.page.ask(f"{HEAD}.name") == "L2H3"
    text = live.page.ask("viewer.store.get().text")
    reload(live, f"{STRONGEST}.dispatchEvent(new MouseEvent('click'))")
    reload(live, "document.querySelector('[data-does=all]').click()")
    before, after = live.page.ask("viewer.recording.cut.texts")
    assert after == translated(translator, text, CROSS, 0, 1)[0]
    assert (before, after) == ("La table est neuve et elle est belle.", "Le table est nouveau et il est beau.")


@pytest.mark.skipif(browser.find() is None, reason=browser.MISSING)
def test_without_a_model_no_arc_is_cut(written_little, monkeypatch):
    monkeypatch.setattr(browser, "QUIET", (*browser.QUIET, "--js-flags=--jitless"))
    running = browser.Browser()
    try:
        page = running.page().open(written_little, calm=True)
        page.until("document.querySelector('.typing.off') !== null && document.querySelector('.texts .hit') !== null", 30)
        page.ask(f"{STRONGEST}.dispatchEvent(new MouseEvent('click'))")
        assert page.ask("viewer.store.get().cut") == ""
        assert page.ask("document.querySelectorAll('.texts .cut').length") == 0
        assert page.complaints == []
    finally:
        running.close()
