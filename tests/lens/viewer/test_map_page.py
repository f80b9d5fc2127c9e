import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import overt
from overt.attention.masks import Causal, Dense, Lengths, Window
from overt.errors import InputError
from packed_models import Attends, attended
from reading_pages import NASTY, between, multi_head, network, recorded, words

OVER = "document.querySelector('.area .over')"
READ = "document.querySelector('.readout').textContent"
VALUE = "document.querySelector('.readout .value')"
STATE = "viewer.store.get()"
NUMBERS = "(values) => Array.from(values, (value) => Number.isFinite(value) ? value : String(value))"


@pytest.fixture
def opened(opened):
    """The page with the map in sight, in a window that a square map fills."""

    def open_map(recording, address="", **how):
        if "opened" in how.get("made", {}):
            return opened(recording, address, **how)
        return opened(recording, f"panel=map&{address}" if address else "panel=map", **({"width": 940, "height": 900} | how))

    return open_map


def weights_of(page, point=0, step=1):
    """All weights of a head, or those of every so many queries, as the page computes them."""
    rows = page.ask(f"""(() => {{ const head = viewer.recording.heads[{point}];
        return Array.from({{ length: Math.ceil(head.queryCount / {step}) }}, (_, i) => ({NUMBERS})(head.weightsRow({step} * i))); }})()""")
    return np.array([[float(value) for value in row] for row in rows])


def settled(page):
    """Wait until what is in sight is drawn, tiles and all."""
    page.until(f"{OVER}.dataset.drawn && {OVER}.dataset.waiting === '0'")
    return page


def message(page):
    """Query, key and weight that the line under the map reads."""
    return tuple(float(page.ask(f"{VALUE}.dataset.{name}")) for name in ("row", "key", "weight"))


def pointed(page, across, down):
    """Move the mouse to a part of the map."""
    box = json.loads(page.ask(f"JSON.stringify({OVER}.getBoundingClientRect())"))
    point = {"x": box["x"] + across * box["width"], "y": box["y"] + down * box["height"]}
    page.call("Input.dispatchMouseEvent", type="mouseMoved", **point)
    return point


def pixels(page, what="[...new Uint32Array(data.buffer)].filter((each) => each >>> 24).length"):
    """Something of the picture that is drawn."""
    return page.ask(f"""(() => {{ const canvas = document.querySelector('.area canvas');
        const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); return {what}; }})()""")


DRAWN = torch.Generator().manual_seed(1)


def drawn(*sizes):
    return torch.randn(*sizes, generator=DRAWN)


KINDS = {
    "plain": {},
    "causal": {"mask": Causal()},
    "more keys than queries": {"mask": Causal(), "keys": 9},
    "window": {"mask": Window(2, 1)},
    "padding": {"mask": Lengths(torch.tensor([3]))},
    "scattered mask": {"mask": Dense(drawn(6, 6) > 0)},
    "a query that may attend to nothing": {"mask": Dense(torch.arange(6)[:, None] != torch.tensor(2))},
    "softcap": {"score": overt.Dot(softcap=2.0)},
    "a scale for each head": {"score": overt.Dot(scale=torch.tensor([0.1, 0.9])[:, None, None])},
    "cosine": {"score": overt.Cosine(5.0)},
    "bilinear": {"score": overt.Bilinear(drawn(4, 4))},
    "gaussian": {"score": overt.Gaussian(2.0)},
    "additive": {"score": overt.Additive(drawn(2, 4))},
    "alibi": {"bias": overt.ALiBi(torch.tensor([0.5, 0.1])), "mask": Causal()},
    "relative position": {"bias": overt.RelativePositionBias(drawn(2, 5))},
    "bias for each key": {"bias": drawn(1, 6)},
    "bias for each query and key": {"bias": drawn(2, 6, 6)},
    "temperature and sink": {"normalizer": overt.Softmax(temperature=0.7, sink=torch.tensor([0.5, 2.0]))},
    "sparsemax": {"normalizer": overt.Sparsemax()},
    "shared keys": {"heads": 4, "shared": 2},
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.few_cases(3)
def test_the_pages_weights_are_the_recordings(opened, name):
    recording = attended(**KINDS[name])
    page = opened(recording)
    for point, head in enumerate(recording.heads()):
        weights = (head.of_text() if name == "padding" else head).weights()[0]  # a page shows a text without its padding
        np.testing.assert_allclose(weights_of(page, point), weights.double().numpy(), atol=1e-5)
    assert page.complaints == []


def test_each_batch_entry_has_its_own_weights_and_padding(opened):
    recording = attended(batch=2, mask=Lengths(torch.tensor([6, 3])))
    page = opened(recording)
    heads = page.ask("viewer.recording.heads.map(({ head, batch }) => [head, batch])")
    assert sorted(heads) == [[0, 0], [0, 1], [1, 0], [1, 1]]
    for point, (head, batch) in enumerate(heads):
        result = recording[0, head].weights()[batch, : (6, 3)[batch], : (6, 3)[batch]]
        np.testing.assert_allclose(weights_of(page, point), result.double().numpy(), atol=2e-6)
    page.ask("void viewer.store.set({ batch: 1 })")
    assert page.ask(f"viewer.recording.heads[{STATE}.head].batch") == 1


@pytest.mark.few_cases(1)
def test_rounded_vectors_give_weights_within_a_thousandth(opened):
    _, recording = multi_head(700, heads=4, width=32)
    page = opened(recording)
    assert page.ask("viewer.recording.heads[2].terms.query.data.constructor.name") == "Int16Array"
    assert np.abs(weights_of(page, 2, step=20) - recording[0, 2].weights()[0, ::20].double().numpy()).max() < 1e-3


def test_it_loads_itself_only_and_complains_of_nothing(opened):
    _, recording = multi_head(300, heads=3)
    page = settled(opened(recording))
    pointed(page, 0.5, 0.6)
    page.ask(f"{OVER}.focus()")
    page.press("+", "+", "ArrowDown", "Enter", "m", "l", "d", "0")
    settled(page)
    assert network(page) == []
    assert page.complaints == []
    assert page.ask("viewer.recording.heads.length") == 3


@pytest.mark.skipif(os.environ.get("OVERT_BROWSER") == "firefox", reason="Firefox does not report what a Worker loads")
def test_a_worker_computes_the_tiles(opened):
    _, recording = multi_head(300)
    assert any(url.startswith("blob:") for url in settled(opened(recording)).requests)


@pytest.mark.slow
def test_where_no_worker_may_start_the_page_computes_its_tiles_itself(chromium, tmp_path):
    _, recording = multi_head(300)
    html = recording.page().replace("worker-src blob:", "worker-src 'none'")
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    page = chromium.page()
    page.open(tmp_path / "page.html")
    page.until("document.documentElement.className === 'live'")
    page.press("2")
    settled(page)
    assert pixels(page) > 50_000
    page.call("Page.close")


def test_the_pointer_reads_the_exact_weight(opened):
    _, recording = multi_head(40)
    page = settled(opened(recording, "head=0.1"))
    weights = recording[0, 1].weights()[0]
    for across, down in ((0.4, 0.4), (0.7, 0.5), (0.55, 0.8)):
        pointed(page, across, down)
        page.until(f"{VALUE} !== null")
        row, key, weight = message(page)
        assert weight == pytest.approx(float(weights[int(row), int(key)]), abs=1e-5)
        assert f"“w{int(row)}”" in page.ask(READ)
        assert f"“w{int(key)}”" in page.ask(READ)


@pytest.mark.slow
def test_far_out_the_pointer_reads_the_strongest_weight_of_the_cell_and_its_tokens(opened):
    _, recording = multi_head(3000, heads=1)
    page = settled(opened(recording))
    pointed(page, 0.6, 0.6)
    page.until(f"{READ}.includes('strongest of')")
    text = page.ask(READ).replace("\u202f", "")
    r0, r1, k0, k1 = map(int, re.search(r"strongest of (\d+)–(\d+) × (\d+)–(\d+)", text).groups())
    cell = recording[0, 0].weights(rows=slice(r0, r1 + 1), keys=slice(k0, k1 + 1))[0]
    assert float(page.ask(f"{VALUE}.textContent").replace("−", "-")) == pytest.approx(float(cell.max()), rel=1e-2, abs=1e-5)


@pytest.mark.slow
def test_the_arrow_keys_walk_from_weight_to_weight(opened):
    _, recording = multi_head(40)
    page = settled(opened(recording, "head=0.0&token=7"))
    page.ask(f"{OVER}.focus()")
    page.press("ArrowRight")
    row, key, _ = message(page)
    weights = recording[0, 0].weights()[0]
    assert (row, key) == (7, int(weights[7].argmax()))
    page.press("ArrowDown", "ArrowLeft")
    assert message(page)[:2] == (8, key - 1)
    assert message(page)[2] == pytest.approx(float(weights[8, int(key) - 1]), abs=1e-5)


def test_enter_chooses_the_token_under_the_cursor(opened):
    _, recording = multi_head(40)
    page = settled(opened(recording, "token=7"))
    page.ask(f"{OVER}.focus()")
    page.press("ArrowRight", "ArrowDown", "Enter")
    assert page.ask(f"{STATE}.token") == 8


def test_a_click_chooses_the_token(opened):
    _, recording = multi_head(40)
    page = settled(opened(recording))
    point = pointed(page, 0.6, 0.75)
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **point)
    assert page.ask(f"{STATE}.token") == int(message(page)[0])


@pytest.mark.slow
def test_keys_and_wheel_zoom_and_the_whole_comes_back(opened):
    _, recording = multi_head(600)
    page = settled(opened(recording))
    page.ask(f"{OVER}.focus()")
    page.press("+", "+")
    page.until(f"{STATE}.view !== null")
    near = page.ask(f"{STATE}.view")
    assert min(near[1] - near[0], near[3] - near[2]) == pytest.approx(600 / 1.5**2, rel=0.01)
    point = pointed(page, 0.6, 0.6)
    page.call("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=-240, **point)
    page.until(f"{STATE}.view[1] - {STATE}.view[0] < 200")
    page.press("0")
    page.until(f"{STATE}.view === null")


@pytest.mark.slow
def test_dragging_moves_the_map_with_the_pointer(opened):
    _, recording = multi_head(600)
    page = settled(opened(recording, "view=200,300,200,300"))
    before = pointed(page, 0.5, 0.5)
    point = message(page)[:2]
    page.call("Input.dispatchMouseEvent", type="mousePressed", button="left", clickCount=1, **before)
    after = {"x": before["x"] + 60, "y": before["y"] - 40}
    for share in (0.3, 0.6, 1.0):
        there = {name: before[name] + share * (after[name] - before[name]) for name in before}
        page.call("Input.dispatchMouseEvent", type="mouseMoved", button="left", **there)
    page.call("Input.dispatchMouseEvent", type="mouseReleased", button="left", clickCount=1, **after)
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=after["x"] + 60, y=after["y"])
    page.call("Input.dispatchMouseEvent", type="mouseMoved", **after)
    assert np.abs(np.subtract(message(page)[:2], point)).max() <= 1


@pytest.mark.slow
def test_two_fingers_zoom(opened):
    _, recording = multi_head(600)
    page = settled(opened(recording))
    point = pointed(page, 0.55, 0.55)
    for kind, apart in (("touchStart", 40), ("touchMove", 80), ("touchMove", 120)):
        fingers = [{"x": point["x"] + side * apart, "y": point["y"], "id": number} for number, side in enumerate((-1, 1))]
        page.call("Input.dispatchTouchEvent", type=kind, touchPoints=fingers)
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    page.until(f"{STATE}.view !== null")
    view = page.ask(f"{STATE}.view")
    assert 600 / min(view[1] - view[0], view[3] - view[2]) == pytest.approx(3, rel=0.15)


@pytest.mark.slow
def test_a_single_strong_link_is_seen_at_every_distance(opened):
    queries, keys = torch.zeros(1, 1, 3000, 4), torch.zeros(1, 1, 3000, 4)
    queries[0, 0, 1234, 0], keys[0, 0, 2100, 0] = 40.0, 40.0
    page = opened(recorded(Attends(), queries, keys, torch.randn(1, 1, 3000, 4)), "pool=max&colour=linear&palette=greys")
    bright = (
        "Array.from({ length: data.length / 4 }, (_, i) => i).filter((i) => data[4 * i] > 220 && data[4 * i + 3] > 0).length"
    )
    for half in (1500, 700, 300, 120, 50, 20):
        view = [max(0, 1234 - half), min(3000, 1234 + half), max(0, 2100 - half), min(3000, 2100 + half)]
        page.ask(f"void viewer.store.set({{ view: {view} }})")
        settled(page)
        page.until(f"{OVER}.dataset.waiting === '0'")
        assert pixels(page, bright) >= 1, half


@pytest.mark.slow
def test_colours_and_palettes_change_the_picture_and_compute_nothing(opened):
    _, recording = multi_head(300)
    page = settled(opened(recording, "colour=log&palette=cividis"))
    observed, tiles = set(), page.ask(f"{OVER}.dataset.drawn")
    assert tiles
    for palette in ("cividis", "viridis", "magma", "greys"):
        for colour in ("log", "linear"):
            page.ask(f"void viewer.store.set({{ palette: '{palette}', colour: '{colour}' }})")
            page.ask(
                "void (window.framed = false, requestAnimationFrame(() => requestAnimationFrame(() => (window.framed = true))))"
            )
            page.until("window.framed")
            assert page.ask(f"{OVER}.dataset.waiting") == "0"
            observed.add(pixels(page, "data.reduce((sum, value, i) => (sum * 31 + value) % 1000003, 7)"))
    assert len(observed) == 8


@pytest.mark.few_cases(1)
def test_what_is_barred_shows_the_paper(opened):
    recording = attended(queries=200, keys=200, mask=Causal())
    page = settled(opened(recording))
    upper = pixels(page, "[data[4 * (Math.round(canvas.height * 0.35) * canvas.width + Math.round(canvas.width * 0.8)) + 3], "
                   "data[4 * (Math.round(canvas.height * 0.75) * canvas.width + Math.round(canvas.width * 0.3)) + 3]]")  # fmt: skip
    assert upper == [0, 255]


@pytest.mark.parametrize("count", [60, 3000])
@pytest.mark.few_cases(1)
def test_a_weight_too_small_for_a_number_is_not_shown_as_barred(opened, count):
    queries, keys = torch.zeros(1, 1, count, 4), torch.zeros(1, 1, count, 4)
    queries[..., 0], keys[0, 0, 0, 0] = 400.0, 400.0
    page = settled(opened(recorded(Attends(mask=Causal()), queries, keys, torch.randn(1, 1, count, 4))))
    assert page.ask(f"viewer.recording.heads[0].weight({count - 1}, 5)") == 0
    point = "4 * (Math.round(canvas.height * {}) * canvas.width + Math.round(canvas.width * {})) + 3"
    assert pixels(page, f"[data[{point.format(0.75, 0.3)}], data[{point.format(0.35, 0.8)}]]") == [255, 0]


@pytest.fixture(scope="module")
def broken():
    """A recording of a query and a key that hold NaN."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, 30, 4) for _ in range(3))
    query[0, 0, 5, 1] = math.nan
    key[0, 0, 20, 1] = math.nan
    return recorded(Attends(mask=Causal()), query, key, value, tokens=words(30))


def test_nan_is_nan_wherever_python_has_it_and_nowhere_else(opened, broken):
    result = weights_of(opened(broken))
    expected = broken[0, 0].weights()[0].double().numpy()
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_allclose(result, expected, atol=2e-6)
    assert np.isnan(expected).any()
    assert not np.isnan(expected).all()


@pytest.mark.few_cases(1)
def test_nan_is_said_and_has_a_colour_of_its_own(opened, broken):
    page = settled(opened(broken, "token=5&palette=cividis"))
    page.ask(f"{OVER}.focus()")
    page.ask("void viewer.store.set({ view: [0, 12, 0, 12] })")
    page.press("ArrowRight", *["ArrowLeft"] * 12, *["ArrowUp"] * 12, *["ArrowDown"] * 5)
    assert page.ask(f"{VALUE}.textContent") == "not a number"
    red = "Array.from({ length: data.length / 4 }, (_, i) => 4 * i).filter((i) => data[i] === 232 && data[i + 1] === 32 && data[i + 2] === 84).length"
    assert pixels(settled(page), red) > 100


def test_a_summary_shows_its_map_and_says_that_it_is_one(opened):
    model, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 90, 8)
    recording = recorded(model, x, x, x, keep="summary", tokens=words(90))
    page = settled(opened(recording))
    assert "single weights cannot be recomputed" in page.ask("document.querySelector('.map-head').textContent")
    pointed(page, 0.5, 0.5)
    page.until(f"{READ}.includes('≈')")
    assert page.ask("viewer.recording.heads[0].weightsRow(0)") is None
    assert pixels(page) > 50_000
    assert page.complaints == []


def test_attention_between_two_texts_names_the_tokens_of_both(opened):
    _, recording = between()
    page = settled(opened(recording))
    pointed(page, 0.5, 0.5)
    page.until(f"{VALUE} !== null")
    row, key, _ = message(page)
    assert f"“q{int(row)}” {int(row)} → “k{int(key)}” {int(key)}" in page.ask(READ)


def test_tokens_are_shown_as_text_and_run_nothing(opened):
    _, recording = multi_head(len(NASTY), tokens=NASTY)
    page = settled(opened(recording, made={"title": "</title><script>window.ran = 1</script>"}))
    page.ask(f"{OVER}.focus()")
    page.press("ArrowRight", *["ArrowUp"] * len(NASTY), *["ArrowDown"] * (len(NASTY) - 1))
    assert page.ask("document.images.length") == 0
    assert page.ask("window.ran === undefined")
    assert page.ask("document.title") == "</title><script>window.ran = 1</script>"
    assert page.ask("viewer.recording.heads[0].keys.join('|')") == "|".join(NASTY)
    assert page.complaints == []


@pytest.mark.slow
def test_the_address_restores_the_view(opened):
    _, recording = multi_head(300, heads=3)
    page = settled(opened(recording))
    page.ask(
        "void viewer.store.set({ head: 2, token: 17, side: 'key', pool: 'mean', colour: 'linear', palette: 'magma', view: [100, 150, 20, 70] })"
    )
    page.until("location.hash.includes('head=0.2') && location.hash.includes('view=')")
    address, state = page.ask("location.hash"), page.ask(STATE)
    second = settled(opened(recording, address.removeprefix("#")))
    assert second.ask(STATE) == state
    shown = second.ask(f"({STATE}).view")
    assert shown == [100, 150, 20, 70]


@pytest.mark.slow
@pytest.mark.parametrize(
    "address", ["head=9.9&token=-4", "head=x&view=1,2", "token=99999&palette=</script>", "view=5,1,9,2&pool=none", "%%%"]
)
def test_an_address_of_nonsense_opens_the_page_as_it_is(opened, address):
    _, recording = multi_head()
    page = settled(opened(recording, address))
    assert page.ask(f"{STATE}.head") in (0, 1)
    assert 0 <= page.ask(f"{STATE}.token") < 12
    assert page.complaints == []


def heads_in_sight(page):
    return page.ask(
        "[...document.querySelectorAll('.heads-box button')].map((each) => viewer.recording.heads[each.dataset.head].name)"
    )


@pytest.mark.slow
def test_the_heads_can_be_sorted_by_how_sharp_they_are(opened):
    _, recording = multi_head(heads=4)
    page = opened(recording, "sort=entropy")
    sharp = sorted(recording.heads(), key=lambda head: float(head.entropy().mean()))
    assert heads_in_sight(page) == [f"L0H{head.head}" for head in sharp]


@pytest.mark.slow
def test_the_heads_can_be_sorted_by_how_hard_they_attend_to_the_token(opened):
    _, recording = multi_head(heads=4)
    page = opened(recording, "sort=token&token=5&side=key")
    hard = sorted(recording.heads(), key=lambda head: -float(head.received()[0, 5]))
    assert heads_in_sight(page) == [f"L0H{head.head}" for head in hard]


@pytest.mark.slow
def test_the_heads_of_one_role_can_be_shown_alone(opened):
    _, recording = multi_head(30, heads=4, causal=True)
    roles = {f"L0H{role.head}": role.role for role in recording.roles()}
    wanted = next(iter(roles.values()))
    assert heads_in_sight(opened(recording, f"filter={wanted}")) == [name for name, role in roles.items() if role == wanted]


@pytest.mark.slow
def test_the_arrow_keys_go_from_head_to_head(opened):
    _, recording = multi_head(heads=4)
    page = opened(recording, "head=0.0")
    page.ask("document.querySelector('.heads-box button').focus()")
    page.press("ArrowRight", "ArrowRight")
    assert page.ask(f"viewer.recording.heads[{STATE}.head].head") == 2
    assert page.ask("document.activeElement.getAttribute('aria-pressed')") == "true"


@pytest.mark.slow
def test_every_control_has_a_name_and_can_be_reached_by_keyboard(opened):
    _, recording = multi_head(heads=4)
    page = opened(recording)
    nameless = """[...document.querySelectorAll('button, select, [tabindex]')].filter((each) => each.offsetParent
        && !(each.getAttribute('aria-label') || each.textContent.trim() || each.getAttribute('aria-labelledby'))).length"""
    assert page.ask(nameless) == 0
    observed = set()
    for _ in range(40):
        page.press("Tab")
        observed.add(
            page.ask(
                "document.activeElement.closest('.bar, .heads-head, .heads-box, .area, .below, .tabs')?.className.split(' ')[0]"
            )
        )
    assert {"bar", "heads-head", "heads-box", "area", "below", "tabs"} <= observed


@pytest.mark.slow
def test_the_keys_are_listed_on_asking(opened):
    _, recording = multi_head()
    page = opened(recording)
    page.press("?")
    assert page.ask("document.querySelector('dialog').open")
    assert "the whole map" in page.ask("document.querySelector('dialog').textContent")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_follows_the_readers_theme_and_can_leave_it(opened, dark):
    _, recording = multi_head()
    page = opened(recording, dark=dark)
    grounds = ["rgb(251, 250, 246)", "rgb(16, 19, 24)"]
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.ask(ground) == grounds[dark]
    page.ask("document.getElementById('theme').click()")
    assert page.ask(ground) == grounds[not dark]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_nothing_is_wider_than_the_window(opened, width):
    _, recording = multi_head(60, heads=12)
    page = settled(opened(recording, width=width, height=800))
    assert page.ask("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_at_a_desks_size_everything_is_in_sight_without_scrolling(opened):
    _, recording = multi_head(60, heads=12)
    page = settled(opened(recording, width=1280, height=800))
    assert page.ask("document.documentElement.scrollHeight") <= 800
    for part in (".heads-box", ".area", ".readout", ".legend", ".tabs"):
        assert page.ask(f"document.querySelector('{part}').getBoundingClientRect().bottom") <= 800


LOOKS = {"light": {}, "dark": {"dark": True}, "narrow": {"width": 390, "height": 1500}}


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS)
def test_a_picture_for_people_to_look_at(opened, tmp_path, look):
    """In the folder that OVERT_PICTURES names, if it names one."""
    _, recording = multi_head(48, heads=8, width=16, causal=True)
    page = settled(opened(recording, **LOOKS[look]))
    path = Path(os.environ.get("OVERT_PICTURES", tmp_path)) / f"recording-{look}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    page.picture(path)
    assert path.stat().st_size > 20_000


def test_a_page_can_open_at_the_steps_of_a_token(opened):
    page = opened(attended(), made={"opened": (0, 1, 3)})
    assert [page.ask(f"{STATE}.{name}") for name in ("token", "panel")] == [3, "steps"]
    assert page.ask(f"viewer.recording.heads[{STATE}.head].head") == 1


def test_a_page_opens_at_a_head_that_it_holds():
    with pytest.raises(
        InputError, match="one of the page's heads as the head that it opens with, got .*head 1. Fix: add it to heads"
    ):
        attended().page(heads=[(0, 0)], opened=(0, 1, 3))


CURSOR = f"[{VALUE}.dataset.row, {VALUE}.dataset.key].map(Number)"


@pytest.mark.slow
def test_zooming_by_keys_keeps_the_cursor_in_sight(opened):
    _, recording = multi_head(326)
    page = settled(opened(recording, "token=20"))
    page.ask(f"{OVER}.focus()")
    page.press("ArrowRight", "ArrowDown", "ArrowRight")
    row, key = page.ask(CURSOR)
    for _ in range(6):
        before = page.ask(f"String({STATE}.view)")
        page.press("+")
        page.until(f"String({STATE}.view) !== '{before}'")
        r0, r1, k0, k1 = page.ask(f"{STATE}.view")
        assert r0 <= row < r1
        assert k0 <= key < k1
    assert r1 - r0 < 40


@pytest.mark.slow
def test_without_a_cursor_the_keys_zoom_to_the_chosen_token(opened):
    _, recording = multi_head(300)
    page = settled(opened(recording, "token=280"))
    page.ask(f"{OVER}.focus()")
    page.press("+", "+", "+", "+")
    page.until(f"{STATE}.view !== null")
    r0, r1, _, _ = page.ask(f"{STATE}.view")
    assert r0 <= 280 < r1


MINI = "document.querySelector('.mini')"
HINT = "document.querySelector('.hint')"


@pytest.mark.slow
def test_a_minimap_shows_where_the_window_is_and_goes_there(opened):
    _, recording = multi_head(300)
    page = settled(opened(recording))
    page.until(f"{MINI}.hidden")
    page.ask("void viewer.store.set({ view: [0, 50, 0, 50] })")
    page.until(f"!{MINI}.hidden")
    box = json.loads(page.ask(f"JSON.stringify({MINI}.getBoundingClientRect())"))
    point = {"x": box["x"] + 0.75 * box["width"], "y": box["y"] + 0.6 * box["height"], "button": "left", "clickCount": 1}
    page.call("Input.dispatchMouseEvent", type="mousePressed", **point)
    page.call("Input.dispatchMouseEvent", type="mouseReleased", **point)
    page.until(f"{STATE}.view[0] > 100")
    r0, r1, k0, k1 = page.ask(f"{STATE}.view")
    assert ((r0 + r1) / 2, (k0 + k1) / 2) == pytest.approx((180, 225), abs=4)
    page.ask("void viewer.store.set({ view: null })")
    page.until(f"{MINI}.hidden")


@pytest.mark.slow
def test_a_flat_window_says_where_the_weight_lies_and_leads_there(opened):
    queries, keys = torch.zeros(1, 1, 900, 4), torch.zeros(1, 1, 900, 4)
    queries[0, 0, 120, 0], keys[0, 0, 700, 0] = 60.0, 60.0
    page = settled(opened(recorded(Attends(), queries, keys, torch.randn(1, 1, 900, 4), tokens=words(900))))
    assert page.ask(f"{HINT} === null")
    page.ask("void viewer.store.set({ view: [500, 560, 100, 160] })")
    page.until(f"{HINT} !== null")
    assert page.ask(f"{HINT}.textContent") == "↗1.0000 lies there: “w120” → “w700”"
    page.ask(f"void {HINT}.click()")
    page.until(f"{HINT} === null")
    r0, r1, k0, k1 = page.ask(f"{STATE}.view")
    assert r0 <= 120 < r1
    assert k0 <= 700 < k1
    assert page.ask(CURSOR) == [120, 700]


def test_the_plain_sum_is_computed_on_the_page(opened):
    torch.manual_seed(0)
    query, key, value = (torch.rand(1, 2, 7, 4) for _ in range(3))
    options = {"score": overt.Dot(scale=1.0), "normalizer": overt.normalizers.Sum(), "mask": Causal()}
    recording = recorded(Attends(**options), query, key, value, tokens=words(7))
    page = opened(recording)
    for point in range(2):
        np.testing.assert_allclose(weights_of(page, point), recording[0, point].weights()[0].double().numpy(), atol=1e-5)
    assert not page.ask("viewer.recording.heads[0].stored")


@pytest.mark.slow
def test_the_wheel_that_lands_on_a_flat_map_gets_a_hint(opened):
    queries, keys = torch.zeros(1, 1, 900, 4), torch.zeros(1, 1, 900, 4)
    queries[0, 0, 120, 0], keys[0, 0, 700, 0] = 60.0, 60.0
    page = settled(opened(recorded(Attends(), queries, keys, torch.randn(1, 1, 900, 4), tokens=words(900))))
    point = pointed(page, 0.35, 0.85)
    for _ in range(8):
        page.call("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=-240, **point)
    page.until(f"{HINT} !== null")
    assert page.ask(f"{HINT}.textContent").startswith("↗1.0000 lies there")
