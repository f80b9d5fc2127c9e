"""Why a head looks there, in the page: the parts of a score are those of `lens.score_contributions`."""

import json

import pytest
import torch
from live_page import TIRED

from overt import lens


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
    question = json.dumps({"layer": layer, "head": head, "row": row, "key": key})
    live.page.ask(f"void (window.answer = null, viewer.recording.why({question}).then((answer) => (window.answer = answer)))")
    live.page.until("window.answer !== null", 30)
    answer = live.page.ask("window.answer")
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
