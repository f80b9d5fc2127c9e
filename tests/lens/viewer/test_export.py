import base64
import csv
import io
import struct
import xml.etree.ElementTree as tree

import pytest
import torch

import overt
from reading_pages import NASTY, multi_head, recorded, words

# What is saved is kept on the page instead of in a folder.
KEEP = """void (window.kept = {}, window.makeAddress = URL.createObjectURL, URL.createObjectURL = (blob) => { window.blob = blob; return "blob:kept"; },
  HTMLAnchorElement.prototype.click = function () { const { download } = this; const reader = new FileReader();
    reader.onload = () => { window.kept[download] = reader.result; }; reader.readAsDataURL(window.blob); })"""


def saved(page, what, name):
    """The bytes that a button saves under a name."""
    page.ask(KEEP)
    page.ask(f"void document.querySelector('[data-save={what}]').click()")
    page.until(f"window.kept[{name!r}] !== undefined")
    return base64.b64decode(page.ask(f"window.kept[{name!r}]").partition(",")[2])


def rows(data):
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"), newline="")))


SAVE = "head=0.1&batch=0&token=5&panel=save"


def test_the_map_as_csv_is_pythons_weights(opened):
    _, recording = multi_head(causal=True)
    result = rows(saved(opened(recording, SAVE), "csv", "L0H1.csv"))
    weights = recording[0, 1].weights()[0]
    assert len(result) == 144
    for line in result:
        query, key = int(line["query"]), int(line["key"])
        assert float(line["weight"]) == pytest.approx(float(weights[query, key]), abs=1e-5)
        assert (line["query_token"], line["key_token"]) == (f"w{query}", f"w{key}")


def test_only_the_part_in_sight_is_saved(opened):
    _, recording = multi_head()
    result = rows(saved(opened(recording, f"{SAVE}&view=2,5,3,10"), "csv", "L0H1.csv"))
    assert {int(line["query"]) for line in result} == {2, 3, 4}
    assert {int(line["key"]) for line in result} == set(range(3, 10))


@pytest.mark.slow
def test_of_too_many_weights_the_cells_are_saved(opened):
    _, recording = multi_head(1200, heads=2, causal=True)
    result = rows(saved(opened(recording, SAVE), "csv", "L0H1.csv"))
    weights = recording[0, 1].weights()[0]
    assert 10_000 < len(result) <= 2**20
    for line in result[:: len(result) // 50]:
        r0, r1, k0, k1 = (int(line[name]) for name in ("query_from", "query_to", "key_from", "key_to"))
        cell = weights[r0 : r1 + 1, k0 : k1 + 1]
        assert float(line["largest"]) == pytest.approx(float(cell.max()), abs=1e-3)
        assert float(line["mean"]) == pytest.approx(float(cell.mean()), abs=1e-3)


def test_the_chosen_tokens_weights_as_csv(opened):
    _, recording = multi_head()
    result = rows(saved(opened(recording, SAVE), "row", "L0H1-query-5.csv"))
    assert [float(line["weight"]) for line in result] == pytest.approx(recording[0, 1].weights(rows=5)[0, 0].tolist(), abs=1e-5)


def test_tokens_in_csv_are_neither_fields_nor_formulas(opened):
    _, recording = multi_head(len(NASTY), tokens=NASTY)
    result = rows(saved(opened(recording, SAVE), "row", "L0H1-query-5.csv"))
    assert len(result) == len(NASTY)
    assert result[6]["token"] == '\'=HYPERLINK("a")'
    assert result[7]["token"] == 'a,"b"␊c'
    assert result[1]["token"] == "␀nul"


def test_the_map_as_svg_has_a_rectangle_a_weight_and_its_names(opened):
    _, recording = multi_head(causal=True)
    data = saved(opened(recording, SAVE), "svg", "L0H1.svg")
    root = tree.fromstring(data)
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text in words(12)] == words(12) * 2
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) == 1 + 12 * 13 // 2 + 48
    assert any("recomputed vs. model" in text for text in texts)


def test_nasty_tokens_make_a_well_formed_svg_without_scripts(opened):
    _, recording = multi_head(len(NASTY), tokens=NASTY)
    root = tree.fromstring(saved(opened(recording, SAVE), "svg", "L0H1.svg"))
    assert {each.tag.rpartition("}")[2] for each in root.iter()} <= {"svg", "g", "rect", "text", "image"}


@pytest.mark.slow
def test_a_large_map_as_svg_holds_an_image(opened):
    _, recording = multi_head(200)
    root = tree.fromstring(saved(opened(recording, SAVE), "svg", "L0H1.svg"))
    (image,) = root.iter("{http://www.w3.org/2000/svg}image")
    assert image.get("href").startswith("data:image/png;base64,")


@pytest.mark.slow
def test_the_map_as_png_is_twice_as_large_as_its_svg(opened):
    _, recording = multi_head()
    page = opened(recording, SAVE)
    root = tree.fromstring(saved(page, "svg", "L0H1.svg"))
    data = saved(page, "png", "L0H1.png")
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (2 * int(root.get("width")), 2 * int(root.get("height")))
    assert page.complaints == []


@pytest.mark.slow
def test_a_link_restores_the_view(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.0&batch=0&token=7&side=key&colour=log&view=2,5,3,10&key=4")
    page.ask(
        "void Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.link = text; } } })"
    )
    page.ask("void document.querySelector('[data-save=link]').click()")
    page.until("window.link !== undefined")
    link = page.ask("window.link")
    second = opened(recording, link.partition("#")[2])
    assert second.ask("document.querySelector('.part [aria-current]').textContent") == "w7"
    assert second.ask("document.querySelector('.reading .sides [aria-pressed=true]').dataset.side") == "key"
    assert "queries 2 to 4, keys 3 to 9" in second.ask("document.querySelector('.saving').textContent")


@pytest.mark.slow
def test_where_the_clipboard_is_refused_the_link_is_there_to_copy(opened):
    _, recording = multi_head()
    page = opened(recording, SAVE)
    page.ask(
        "void Object.defineProperty(navigator, 'clipboard', { value: { writeText: () => Promise.reject(new Error('refused')) } })"
    )
    page.ask("void document.querySelector('[data-save=link]').click()")
    page.until("document.querySelector('input.link') !== null")
    assert "token=5" in page.ask("document.querySelector('input.link').value")


@pytest.mark.slow
def test_of_a_summary_the_cells_that_were_kept_are_saved(opened):
    torch.manual_seed(0)
    layer = overt.layers.MultiHeadAttention(16, heads=2)
    recording = recorded(layer, 3 * torch.randn(1, 100, 16), tokens=words(100), keep="summary")
    result = rows(saved(opened(recording, SAVE), "csv", "L0H1.csv"))
    size = int(len(result) ** 0.5)
    assert [float(line["mean"]) for line in result] == pytest.approx(
        recording[0, 1].map(size)[0].flatten().tolist(), rel=0.04, abs=6e-8
    )
