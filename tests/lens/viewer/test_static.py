import base64
import re
from html.parser import HTMLParser

import numpy as np
import torch

import overt
from overt.lens.viewer import page
from overt.lens.viewer.static import _coloured
from reading_pages import NASTY, multi_head, recorded, words


class Still(HTMLParser):
    """The page as one reads it whose scripts are gone."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.inside = [], [], []
        self.feed(re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in {"tr", "th", "td"}:
            self.inside.append(tag)
            if tag == "tr":
                self.rows.append([])
            else:
                self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag in {"tr", "th", "td"}:
            self.inside.pop()

    def handle_data(self, data):
        if self.inside and self.inside[-1] != "tr":
            self.rows[-1][-1] += data


def test_without_scripts_the_strongest_links_are_a_table():
    _, recording = multi_head(causal=True)
    _, *rows = Still(page(recording)).rows
    fits = []  # of either head: which one the page opens with is its own choice
    for values in (head.weights()[0] for head in recording.heads()):
        positions = [(index // 12, index % 12) for index in values.flatten().topk(20).indices.tolist()]
        fits.append([[f"w{i} {i}", f"w{j} {j}", f"{float(values[i, j]):.4f}"] for i, j in positions])
    assert rows in fits


def test_each_heads_map_is_a_picture_with_a_name():
    _, recording = multi_head(heads=3)
    images = [message for tag, message in Still(page(recording)).tags if tag == "img"]
    assert len(images) == 3
    assert {each["alt"] for each in images} == {f"L0H{head}: map of weights" for head in range(3)}
    for each in images:
        assert base64.b64decode(each["src"].partition(",")[2]).startswith(b"\x89PNG\r\n\x1a\n")


def test_a_thousand_heads_leave_the_still_page_small():
    torch.manual_seed(0)
    layer = overt.layers.MultiHeadAttention(64, heads=32)
    still = Still(page(recorded(layer, torch.randn(1, 6, 64), tokens=words(6))))
    assert len([tag for tag, _ in still.tags if tag == "img"]) == 24


def test_nasty_tokens_make_no_tags():
    _, recording = multi_head(len(NASTY), tokens=NASTY)
    still = Still(page(recording, title=NASTY[0]))
    assert not [message for _, message in still.tags if any(name.startswith("on") for name in message)]
    assert all(message["src"].startswith("data:image/png") for tag, message in still.tags if tag == "img")


def test_in_a_browser_with_scripts_disabled_picture_and_table_are_in_sight(opened):
    _, recording = multi_head()
    result = opened(recording, script=False)
    assert result.ask(
        "[...document.images].every((each) => each.complete && each.naturalWidth > 0 && each.offsetParent !== null)"
    )
    assert result.ask("document.images.length") == 2
    assert result.ask("document.querySelector('.still table').offsetHeight") > 100
    assert result.complaints == []


def test_in_a_browser_with_scripts_the_still_page_is_gone(opened):
    _, recording = multi_head()
    assert opened(recording).ask("document.querySelector('.still') === null")


def test_the_colours_of_a_picture_grow_darker_with_the_weight():
    pixels = _coloured(np.array([[0, 170, 210, 254, 255]], dtype=np.uint8))[0]
    assert pixels[0, 3] == 0
    light = pixels[1:4, :3].astype(int) @ [299, 587, 114]
    assert (np.diff(light) < 0).all()
    assert pixels[4].tolist() == [232, 32, 84, 255]
