"""Live pages in Firefox: the main path of both kinds, from a typed sentence to the lessons."""

import json

import pytest
from translator_models import model_alone, saved

from overt.cli.shared.translator_as_text_model import explained
from overt.learn.translator import Translator
from overt.play.page import write
from overt.play.translators import PageTranslator

pytestmark = pytest.mark.slow
TYPE = "(text) => { const field = document.getElementById('sentence'); field.value = text; field.dispatchEvent(new Event('input')); }"
CUT = "document.querySelector('.texts .hit:last-of-type').dispatchEvent(new MouseEvent('click'))"
UNDO = "document.querySelector('[data-does=undo]').click()"
WEIGHTS = "viewer.recording.heads.map((head) => head.queries.map((_, i) => Array.from(head.weightsRow(i)).reduce((sum, each) => sum + each, 0)))"


def read(page, text):
    page.ask(f"void ({TYPE})({json.dumps(text)})")
    page.until(f"viewer.recording?.title === {json.dumps(text)}", 60)


def test_a_sentence_is_read_as_it_is_typed(running_firefox, written_little):
    page = running_firefox.page().open(written_little)
    page.until("Number(document.getElementById('viewer')?.dataset.read ?? 0) > 0", 60)
    read(page, "Cats sleep, and dogs.")
    assert page.ask("viewer.recording.verified.holds")
    for change, cut in ((CUT, True), (UNDO, False)):
        page.ask(f"void {change}")
        page.until(f"Boolean(viewer.recording.cut) === {str(cut).lower()}", 60)
        assert ("(L" in page.ask("document.querySelector('.cutting').textContent")) == cut
    for panel in ("states", "joining", "switches", "reweight"):
        page.ask(f"void viewer.store.set({{ panel: '{panel}' }})")
        page.until("viewer.querySelector('[aria-busy]') === null", 60)
        assert page.ask(f"document.querySelectorAll('.panel.{panel} table').length") > 0
    assert page.complaints == []


def test_a_sentence_is_translated_as_in_python(running_firefox, tmp_path):
    folder = saved(tmp_path / "model", "Transformer", heads=2, encoder_layers=1, decoder_layers=2, feed_forward=16)
    translator = Translator.load(folder)
    [first] = translator.translate(["the cat"], beam=1)
    write(explained(translator, "the cat", first), PageTranslator.with_lesson(folder), tmp_path / "page.html")
    page = running_firefox.page().open(tmp_path / "page.html")
    page.until("Number(document.getElementById('viewer')?.dataset.read ?? 0) > 0", 60)
    read(page, "où as-tu acheté ces chaussures")
    expected = model_alone(translator).translate(["où as-tu acheté ces chaussures"], beam=1)[0].text
    assert page.ask("document.querySelector('.typing .translation').textContent") == expected
    for panel in ("written", "bottleneck", "switched"):
        page.ask(f"void viewer.store.set({{ panel: '{panel}' }})")
        page.until("viewer.querySelector('[aria-busy]') === null", 60)
    assert page.ask("document.querySelector('[data-translation=after]').textContent.trim()") == " ".join(expected.split())
    sums = [total for head in page.ask(WEIGHTS) for total in head]
    assert sums == pytest.approx([1] * len(sums), abs=1e-4)
    assert page.complaints == []
