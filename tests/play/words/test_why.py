"""Why a head looks there, in the page: the parts of a score are those of `lens.score_contributions`."""

import json

import pytest
import torch
from live_page import TIRED
from test_translator_page import written
from translator_models import model_alone, saved

from overt import lens
from overt.learn.translator import Translator


def answer_of(live, question):
    """What the page answers when it is asked for the parts of a score."""
    question = json.dumps(question)
    live.page.ask(f"void (window.answer = null, viewer.recording.why({question}).then((answer) => (window.answer = answer)))")
    live.page.until("window.answer !== null", 30)
    return live.page.ask("window.answer")


def parts_of(side):
    """A side's parts under the page's names: its tables of positions and of texts are one."""
    result = {}
    for part in side.parts:
        name = {"bias": "biases", "embedding": "word" if "word" in part.layer else "position"}.get(part.kind)
        name = name or (f"head L{part.call}H{part.head}" if part.kind == "head" else f"feed-forward {part.layer.split('.')[2]}")
        result[name] = result.get(name, 0) + part.value
    return result


@pytest.mark.parametrize("position", [(0, 2, 4, 1), (1, 3, 10, 2), (2, 0, 10, 2), (2, 3, 0, 15)])
@pytest.mark.few_cases(2)
def test_the_parts_of_a_score_are_pythons(written_little, opened, little, as_stored, position):
    live = opened(written_little, calm=True).ready()
    layer, head, row, key = position
    answer = answer_of(live, {"layer": layer, "head": head, "row": row, "key": key})
    encoded = little.encode(TIRED)
    with torch.no_grad(), lens.record(as_stored) as recording:
        as_stored(torch.tensor([encoded.ids]))
    why = lens.score_contributions(recording, as_stored, head=(layer, head), query=row, key=key)
    assert answer["score"] == pytest.approx(why.score, abs=1e-4)
    for side in ("query", "key"):
        values = {part["name"]: part["value"] for part in answer[side]}
        assert values == pytest.approx(parts_of(getattr(why, side)), abs=1e-4)
        assert sum(values.values()) == pytest.approx(why.score, abs=1e-4)


def test_a_score_says_why_and_its_lists_add_up(written_little, opened):
    live = opened(written_little, calm=True).ready()
    live.page.ask("document.querySelector('.caption .linklike').click()")
    live.page.until("document.querySelectorAll('.why table').length === 2", 30)
    for side in range(2):
        rows = live.page.ask(
            f"[...document.querySelectorAll('.why table')[{side}].querySelectorAll('td.number')].map((cell) => Number(cell.textContent.replace('−', '-')))"
        )
        assert sum(rows[:-1]) == pytest.approx(rows[-1], abs=0.06)
    live.page.ask("viewer.store.set({ head: 2 })")
    assert live.page.ask("document.querySelectorAll('.why table').length") == 0


def translated_parts_of(side):
    """The same of a translator, whose sides are two streams."""
    result = {}
    for part in side.parts:
        stack, layer = part.layer.split(".")[0], [*part.layer.split("."), "", ""][2]
        word = "before" if stack == "decoder" else "word"
        name = {
            "embedding": word,
            "constant": "position",
            "bias": "biases",
            "feed-forward": f"{stack} feed-forward {layer}",
        }.get(part.kind)
        name = name or f"{'head' if 'cross' in part.layer else f'{stack} head'} L{layer}H{part.head}"
        result[name] = result.get(name, 0) + part.value
    return result


@pytest.mark.parametrize("norm", ["pre", pytest.param("post", marks=pytest.mark.slow)])
def test_the_parts_of_a_translators_score_are_pythons(tmp_path, opened, norm):
    folder = saved(tmp_path, "Transformer", heads=2, encoder_layers=2, decoder_layers=2, feed_forward=16, norm=norm)
    live = opened(written(folder, tmp_path / "page.html", "the black cat was tired"), calm=True).ready()
    translator, text = model_alone(Translator.load(folder)), live.page.ask("viewer.store.get().text")
    [translation] = translator.translate([text], beam=1)
    source, target = translator.teacher_forced(text, translation)
    with torch.no_grad(), lens.record(translator.model) as recording:
        translator.model(source, target)
    for layer, head, row, key in [(0, 1, 0, 2), (1, 0, 3, 1)]:
        answer = answer_of(live, {"layer": layer, "head": head, "row": row, "key": key})
        why = lens.score_contributions(
            recording,
            translator.model,
            head=(f"decoder.layers.{layer}.cross_attention", head),
            query=row,
            key=key,
            inputs={"source": source, "target": target},
        )
        assert answer["score"] == pytest.approx(why.score, abs=1e-4)
        for side in ("query", "key"):
            values = {part["name"]: part["value"] for part in answer[side]}
            assert values == pytest.approx(translated_parts_of(getattr(why, side)), abs=1e-4)
    assert live.page.complaints == []
