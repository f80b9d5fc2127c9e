"""One text of a padded batch: its maps, arcs and means are those of the text read alone."""

import json
import re

import pytest
import torch

from families import FAMILIES
from overt.errors import InputError
from overt.lens import record

NAMED = {family.name: family for family in FAMILIES}
LENGTHS = (4, 9, 6)
WORDS = 9


def recorded(family, path, side, **options):
    """A recording of three padded texts, and one of each alone."""
    model, draw = NAMED[family].build(path), torch.Generator().manual_seed(2)
    texts = [torch.randint(3, 60, (1, length), generator=draw) for length in LENGTHS]
    batch, visible = torch.zeros(3, WORDS, dtype=torch.long), torch.zeros(3, WORDS, dtype=torch.long)
    for entry, text in enumerate(texts):
        span = slice(0, text.shape[1]) if side == "right" else slice(WORDS - text.shape[1], None)
        batch[entry, span], visible[entry, span] = text[0], 1
    positions = (visible.cumsum(-1) - 1).clamp(min=0)  # so that a text's positions are its own
    alone = []
    with torch.no_grad():
        with record(model, **options) as together:
            model(input_ids=batch, attention_mask=visible, position_ids=positions)
        for text in texts:
            with record(model, **options) as recording:
                model(input_ids=text, position_ids=torch.arange(text.shape[1])[None])
            alone.append(recording)
    return together, alone


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("path", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["Bert", "Llama", "GPT2"])
@pytest.mark.few_cases(5)
def test_a_text_of_a_batch_is_what_it_is_alone(family, path, side):
    together, alone = recorded(family, path, side)
    for entry, recording in enumerate(alone):
        for layer in range(2):
            head, single = together[layer, 1].of_text(entry), recording[layer, 1]
            assert (head.queries, head.keys) == (LENGTHS[entry], LENGTHS[entry])
            torch.testing.assert_close(head.weights(), single.weights(), atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(head.map(3), single.map(3), atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(head.output, single.output, atol=1e-5, rtol=1e-5)


def test_means_leave_padding_out_unless_it_is_wanted():
    together, alone = recorded("Bert", "sdpa", "right")
    received = together[1, 0].received()
    for entry, recording in enumerate(alone):
        expected = torch.nn.functional.pad(recording[1, 0].received()[0], (0, WORDS - LENGTHS[entry]))
        torch.testing.assert_close(received[entry], expected, atol=1e-6, rtol=1e-5)
    padded = together[1, 0].received(padding=True)
    torch.testing.assert_close(padded, together[1, 0].weights().mean(1), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(padded, received, atol=1e-4)


def test_a_key_that_is_attended_to_is_no_padding():
    """Without a mask the model reads the padding: nothing is taken away."""
    model = NAMED["Bert"].build("sdpa")
    with torch.no_grad(), record(model) as recording:
        model(input_ids=torch.zeros(2, WORDS, dtype=torch.long))
    assert recording[0, 0].of_text(1).keys == WORDS


def header(page):
    return json.loads(re.search(r'id="header">(.*?)</script>', page, re.DOTALL)[1])


def test_a_page_shows_each_text_without_padding():
    together, _ = recorded("Bert", "sdpa", "right")
    packed = header(together.page())
    sizes = {head["batch"]: packed["calls"][head["call"]]["keys"] for head in packed["heads"]}
    assert sizes == dict(enumerate(LENGTHS))
    assert len(packed["texts"]) == 3
    whole = header(together.page(padding=True))
    assert {call["keys"] for call in whole["calls"]} == {WORDS}
    assert len(whole["calls"]) == 2


def test_figures_show_a_text_without_padding():
    pytest.importorskip("matplotlib")
    together, _ = recorded("Bert", "sdpa", "right")
    short, padded = (together.plot(figure="map", layer=0, head=1, padding=padding) for padding in (False, True))
    cells = [figure.axes[0].images[0].get_array().shape for figure in (short, padded)]
    assert cells == [(LENGTHS[0], LENGTHS[0]), (WORDS, WORDS)]
    assert together.plot(figure="heads", sequence=2).axes[0].images[0].get_array().shape == (LENGTHS[2], LENGTHS[2])


def test_a_text_that_is_not_there_is_refused():
    together, _ = recorded("Bert", "sdpa", "right")
    with pytest.raises(InputError, match="a recorded sequence, 0 to 2, got sequence=3"):
        together[0, 0].of_text(3)


def test_a_summary_has_no_text_of_its_own():
    together, _ = recorded("Bert", "sdpa", "right", keep="summary")
    with pytest.raises(InputError, match="whose texts can be separated.*record one text"):
        together[0, 0].of_text(1)
