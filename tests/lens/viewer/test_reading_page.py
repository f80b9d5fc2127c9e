import json
import math
import os
from datetime import date

import pytest
import torch
from torch import nn

import overt
from overt.lens.statistics.output_norms import output_norms
from reading_pages import NASTY, between, multi_head, network, recorded, tab, words

SHARES = "[...document.querySelectorAll('.part bdi')].map((each) => parseFloat(each.style.getPropertyValue('--share')))"
LABELS = "[...document.querySelectorAll('.part bdi')].map((each) => each.getAttribute('aria-label'))"
CHOSEN = "document.querySelector('.part [aria-current]').textContent"
TABLE = """[...document.querySelectorAll('.six tbody tr')].map((row) =>
  [Number(row.dataset.key), ...[...row.querySelectorAll('td.number')].map((each) => each.textContent)])"""


def shares(weights):
    """How deep the text's colour is, in percent: linear, pale below a half."""
    return [100 * weight / max(0.5, float(weights.max())) for weight in weights.tolist()]


def read(text):
    return float(text.replace("−", "-").replace("∞", "inf"))


def test_the_texts_colour_is_the_weights_of_the_chosen_token(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.1&batch=0&token=5&colour=linear")
    assert page.ask(CHOSEN) == "w5"
    assert page.ask(SHARES) == pytest.approx(shares(recording[0, 1].weights(rows=5)[0, 0]), abs=0.06)
    assert page.complaints == []


@pytest.mark.slow
def test_turned_around_it_is_the_weights_that_the_token_gets(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.1&batch=0&token=5&colour=linear")
    page.ask("void document.querySelector('[data-side=key]').click()")
    assert page.ask(SHARES) == pytest.approx(shares(recording[0, 1].weights(keys=[5])[0, :, 0]), abs=0.06)


@pytest.mark.slow
def test_every_token_says_its_weight_to_a_screen_reader(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.0&batch=0&token=3&colour=linear")
    for index, (message, weight) in enumerate(
        zip(page.ask(LABELS), recording[0, 0].weights(rows=3)[0, 0].tolist(), strict=True)
    ):
        assert message == f"w{index}, {index}, weight {weight:.3f}"


@pytest.mark.slow
def test_arcs_and_chips_go_to_the_strongest(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.0&batch=0&token=3&colour=linear")
    weights = recording[0, 0].weights(rows=3)[0, 0]
    strongest = int(weights.argmax())
    assert page.ask("document.querySelector('.chips button').dataset.place") == str(strongest)
    expected = {
        str(index) for index in range(12) if index != 3 and float(weights[index]) / max(0.5, float(weights.max())) > 0.015
    }
    assert set(page.ask("[...document.querySelectorAll('.texts path')].map((each) => each.dataset.to)")) == expected
    assert page.ask("document.querySelector('.told').textContent") == ""


@pytest.mark.slow
def test_of_more_links_the_strongest_have_arcs_and_the_page_says_so(opened):
    layer = overt.layers.MultiHeadAttention(8, heads=2)
    page = opened(recorded(layer, torch.zeros(1, 40, 8), tokens=words(40)), "head=0.0&batch=0&token=30&colour=linear")
    assert page.ask("document.querySelectorAll('.texts path').length") == 12
    assert page.ask("document.querySelector('.told').textContent") == "Arcs: the 12 strongest links."


@pytest.mark.slow
def test_a_click_on_a_token_chooses_it_and_the_keys_walk_on(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.0&batch=0&token=3")
    page.ask("void document.querySelector('[data-token=\"7\"]').click()")
    assert page.ask(CHOSEN) == "w7"
    page.ask("void document.querySelector('[data-token=\"7\"]').focus()")
    page.press("ArrowRight", "ArrowRight")
    assert page.ask(CHOSEN) == "w9"
    assert page.ask("document.activeElement.textContent") == "w9"
    page.press("Home")
    assert page.ask(CHOSEN) == "w0"


@pytest.mark.slow
def test_attention_between_two_texts_shows_both(opened):
    _, recording = between()
    page = opened(recording, "head=0.0&batch=0&token=2&colour=linear")
    assert page.ask("[...document.querySelectorAll('.text .label')].map((each) => each.textContent)") == [
        "Queries",
        "Keys",
    ]
    requested = f"{SHARES}.slice(4)"
    assert page.ask(requested) == pytest.approx(shares(recording[0, 0].weights(rows=2)[0, 0]), abs=0.06)
    page.ask("void document.querySelectorAll('.texts .text')[1].querySelector('[data-token=\"6\"]').click()")
    assert page.ask(f"{SHARES}.slice(0, 4)") == pytest.approx(shares(recording[0, 0].weights(keys=[6])[0, :, 0]), abs=0.06)
    tab(page, "links")
    assert page.ask("[...document.querySelectorAll('.linked thead th')].map((each) => each.textContent)") == [
        "query",
        "key",
        "weight",
    ]


@pytest.mark.slow
def test_of_a_long_text_only_what_is_in_sight_is_there(opened):
    count = 4096
    tokens = [("Ġ" if index else "") + f"t{index}" for index in range(count)]
    _, recording = multi_head(count, heads=1, tokens=tokens, causal=True)
    page = opened(recording, "head=0.0&batch=0&token=4000")
    page.until(f"{CHOSEN} === 't4000'")
    assert page.ask("document.querySelectorAll('.part').length") == 16
    assert page.ask("document.querySelectorAll('.part bdi').length") < count / 2
    page.ask("void document.querySelector('.part [aria-current]').focus()")
    page.press("Home")
    page.until(f"{CHOSEN} === 't0'")
    assert page.complaints == []


STEPS = "head=0.1&batch=0&token=5&panel=steps"


def test_the_steps_numbers_are_those_of_python(opened):
    _, recording = multi_head(causal=True)
    steps = recording[0, 1].steps(5)
    page = opened(recording, STEPS)
    rows = page.ask(TABLE)
    assert [row[0] for row in rows][:3] == steps.weights[0, 0].topk(3).indices.tolist()
    for key, score, masked, weight in rows:
        assert read(score) == pytest.approx(float(steps.scores[0, 0, key]) * math.sqrt(8), abs=6e-3)
        assert read(masked) == pytest.approx(float(steps.masked[0, 0, key]), abs=6e-3)
        assert read(weight) == pytest.approx(float(steps.weights[0, 0, key]), rel=0.06, abs=6e-4)


def test_barred_keys_are_minus_infinity_and_take_nothing(opened):
    _, recording = multi_head(causal=True)
    page = opened(recording, "head=0.1&batch=0&token=2&panel=steps")
    message = {row[0]: row[2:4] for row in page.ask(TABLE)}
    assert set(message) == {0, 1, 2}
    page.ask("void (location.hash = 'head=0.1&batch=0&token=2&key=9&panel=steps&step=2')")
    page.until("document.querySelector('.working').textContent.includes('masked')")
    assert page.ask("document.querySelector('.working').textContent").endswith("masked: −∞")


def test_each_step_writes_its_numbers_out_and_the_sum_is_pythons_output(opened):
    _, recording = multi_head()
    steps, head = recording[0, 1].steps(5), recording[0, 1]
    page = opened(recording, STEPS)
    message = []
    for step in range(6):
        page.ask(f"void document.querySelector('.stages li:nth-child({step + 1}) button').click()")
        message.append(page.ask("document.querySelector('.working').textContent").replace("−", "-"))
    strongest = int(steps.weights.argmax())
    assert f"q = [{head.query[0, 5, 0]:.2f}" in message[0]
    assert f"= {steps.scores[0, 0, strongest] * math.sqrt(8):.2f}" in message[1]
    assert f"÷ √8 = {steps.masked[0, 0, strongest]:.3f}" in message[2]
    assert message[3].endswith(f" = {steps.weights[0, 0, strongest]:.3f}")
    assert f"[{head.value[0, strongest, 0]:.2f}" in message[4]
    assert f"Σ α·v = [{steps.output[0, 0, 0]:.2f}  {steps.output[0, 0, 1]:.2f}" in message[5]


@pytest.mark.slow
def test_the_arrow_keys_walk_through_steps_and_keys(opened):
    _, recording = multi_head()
    page = opened(recording, STEPS)
    page.ask("void document.querySelector('.stages .now').focus()")
    page.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
    assert page.ask("document.querySelector('.stages .now').textContent") == "3scale"
    assert page.ask("document.activeElement.textContent") == "3scale"
    second = page.ask(TABLE)[1][0]
    page.press("ArrowDown")
    assert page.ask("document.querySelector('.six .chosen').dataset.key") == str(second)


@pytest.mark.slow
def test_play_goes_step_by_step_and_pauses(opened):
    _, recording = multi_head()
    page = opened(recording, STEPS)
    page.ask("void document.querySelector('.play').click()")
    assert page.ask("document.querySelector('.stages .now i').textContent") == "1"
    assert page.ask("document.querySelector('.play span').textContent") == "Pause"
    page.until("document.querySelector('.stages .now i').textContent === '2'")
    page.ask("void document.querySelector('.play').click()")
    assert page.ask("document.querySelector('.play span').textContent") == "Play"
    page.ask("void document.activeElement.blur()")
    page.press(" ")
    assert page.ask("document.querySelector('.play span').textContent") == "Pause"
    assert page.ask("document.querySelector('.stages .now i').textContent") == "3"


def test_a_layer_that_joins_state_and_context_has_its_own_steps(opened):
    torch.manual_seed(0)
    layer = overt.layers.Contextual(torch.nn.GRU(4, 6, batch_first=True), "additive")
    recording = recorded(layer, torch.randn(1, 7, 4), tokens=words(7))
    page = opened(recording, "head=0.0&batch=0&token=2&panel=steps", made={"model": layer})
    titles = page.ask("[...document.querySelectorAll('.stages button')].map((each) => each.title)")
    assert (titles[0], titles[-1]) == ("hidden states", "join")
    page.ask("void document.querySelector('.stages li:last-child button').click()")
    assert page.ask("document.querySelector('.says').textContent").endswith("the state and its context, 12 numbers.")


def test_a_softcap_and_a_bias_are_told(opened):
    torch.manual_seed(0)
    layer = overt.layers.MultiHeadAttention(16, heads=2, positions="alibi", score=overt.Dot(softcap=5.0), causal=True)
    recording = recorded(layer, 3 * torch.randn(1, 9, 16), tokens=words(9))
    page = opened(recording, "head=0.1&batch=0&token=6&panel=steps&step=2")
    steps = recording[0, 1].steps(6)
    message = page.ask("document.querySelector('.says').textContent")
    assert "softcap: 5 · tanh(s ÷ 5)" in message
    assert "a penalty for distance (ALiBi)" in message
    for key, _, masked, weight in page.ask(TABLE):
        assert read(masked) == pytest.approx(float(steps.masked[0, 0, key]), abs=6e-3)
        assert read(weight) == pytest.approx(float(steps.weights[0, 0, key]), rel=0.06, abs=6e-4)


def test_a_summary_says_what_it_lacks(opened):
    torch.manual_seed(0)
    layer = overt.layers.MultiHeadAttention(16, heads=2)
    recording = recorded(layer, torch.randn(1, 12, 16), tokens=words(12), keep="summary")
    page = opened(recording, "head=0.1&batch=0&token=6&panel=steps")
    assert page.ask("document.querySelector('.steps h2').textContent") == "The steps need queries, keys and values"
    page.until("document.querySelector('.part bdi') !== null")
    top = recording[0, 1].top(6, 8)
    known = [float(share) > 0 for share in page.ask(SHARES)]
    assert [index for index, share in enumerate(known) if share] == sorted(top.keys[0].tolist())
    page.ask("viewer.store.set({ panel: 'checks' })")
    assert "of the recorded strongest links only" in page.ask("document.querySelector('.honest').textContent")


def test_a_nan_is_said_and_never_shown_as_zero(opened):
    torch.manual_seed(0)
    layer = overt.layers.MultiHeadAttention(8, heads=1, causal=True)
    x = torch.randn(1, 6, 8)
    x[0, 3] = math.nan
    page = opened(recorded(layer, x, tokens=words(6)), "head=0.0&batch=0&token=4")
    assert page.ask("document.querySelector('[data-token=\"2\"]').getAttribute('aria-label')") == "w2, 2, not a number"
    assert page.ask("document.querySelector('[data-token=\"2\"]').className") == "nan"


def test_the_residual_stands_beside_its_rounding_bound(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.1&batch=0&token=6&panel=checks")
    result = recording.verify()
    message = page.ask("document.querySelector('.honest .check').textContent").replace("−", "-")
    assert message.startswith("this call (L0): ")
    assert "✓ within the rounding bound" in message
    assert float(message.rsplit(" ", 1)[1]) == pytest.approx(result.bound, rel=0.06)


@pytest.mark.slow
def test_what_the_models_own_path_left_out_is_said(opened):
    _, recording = multi_head()
    note = "as run: the configuration asks for a window of 4, which this path leaves out"
    object.__setattr__(recording.calls[0], "notes", (note,))
    page = opened(recording, "head=0.1&batch=0&token=6&panel=checks")
    assert note in page.ask("[...document.querySelectorAll('.honest li')].map((each) => each.textContent)")


def test_norm_weighted_shares_stand_beside_the_weights(opened):
    layer, recording = multi_head()
    page = opened(recording, "head=0.1&batch=0&token=6&panel=checks", made={"model": layer})
    head = recording[0, 1]
    added = head.weights(rows=6)[0, 0] * output_norms(head, layer).norms[0]
    rows = page.ask(
        "[...document.querySelectorAll('.normed tbody tr')].map((row) => [Number(row.dataset.key), ...[...row.querySelectorAll('td')].map((cell) => cell.textContent)])"
    )
    assert len(rows) >= 5
    for key, norm, share, normed in rows:
        assert read(norm) == pytest.approx(float(output_norms(head, layer).norms[0, key]), abs=6e-3)
        assert read(share) == pytest.approx(float(head.weights(rows=6)[0, 0, key]), abs=6e-4)
        assert read(normed) == pytest.approx(float(added[key] / added.sum()), abs=6e-4)


@pytest.mark.slow
def test_without_the_model_the_norms_are_not_known_and_the_reason_is_said(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.1&batch=0&token=6&panel=checks")
    assert "is not known: the page was made without the model" in page.ask("document.querySelector('.honest').textContent")


def test_equal_weights_are_the_baseline(opened):
    _, recording = multi_head(causal=True)
    page = opened(recording, "head=0.1&batch=0&token=3&panel=checks")
    most = float(recording[0, 1].weights(rows=3).max())
    message = page.ask("document.querySelector('.honest').textContent")
    assert (
        f"may attend to 4 keys. Equal weights would be 0.250 each; its largest is {most:.3f}, {most * 4:.1f} times that"
        in message
    )
    page.ask("void viewer.store.set({ token: 0 })")
    message = page.ask("document.querySelector('.honest').textContent")
    assert "may attend to 1 key. Equal" in message


def test_the_links_are_a_table_of_the_strongest_weights(opened):
    _, recording = multi_head()
    weights = recording[0, 1].weights()[0]
    page = opened(recording, "head=0.1&batch=0&token=3&panel=links")
    rows = page.ask(
        "[...document.querySelectorAll('.linked tbody tr')].map((row) => [Number(row.dataset.query), Number(row.dataset.key), row.querySelector('.weight span').textContent])"
    )
    best = [(index // 12, index % 12) for index in weights.flatten().topk(20).indices.tolist()]
    assert [(query, key) for query, key, _ in rows] == best
    assert [read(message) for _, _, message in rows] == pytest.approx([float(weights[index]) for index in best], abs=6e-5)
    assert page.ask("document.querySelector('.linked caption').textContent").startswith("The 20 strongest links of L0H1")
    assert page.ask("[...document.querySelectorAll('.linked thead th')].every((each) => each.scope === 'col')")


@pytest.mark.slow
def test_a_link_of_the_table_leads_to_its_steps(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.1&batch=0&token=3&panel=links")
    query, key = page.ask("(({ dataset }) => [dataset.query, dataset.key])(document.querySelector('.linked tbody tr'))")
    page.ask("void document.querySelector('.linked tbody button').click()")
    tab(page, "steps")
    assert page.ask("document.querySelector('.six .chosen').dataset.key") == key
    assert f"“w{query}”" in page.ask("document.querySelector('.steps h2').textContent")


@pytest.mark.parametrize("panel", ["steps", "map", "links", "checks", "save"])
@pytest.mark.few_cases(3)
def test_nasty_tokens_never_run_and_are_shown_as_text(opened, panel):
    _, recording = multi_head(len(NASTY), tokens=NASTY)
    page = opened(recording, f"head=0.1&batch=0&token=0&panel={panel}")
    assert page.ask("document.images.length") == 0
    assert network(page) == []
    assert page.complaints == []
    if panel == "steps":
        assert page.ask("document.querySelector('[data-token=\"0\"]').textContent") == NASTY[0]
        assert page.ask("document.querySelector('[data-token=\"1\"]').textContent") == "␀nul"
        assert page.ask("document.querySelector('[data-token=\"5\"]').textContent.length") < 100


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(opened, width):
    _, recording = multi_head(60)
    page = opened(recording, "head=0.1&batch=0&token=3", width=width, height=800)
    for name in ("steps", "map", "links", "checks", "save"):
        tab(page, name)
        assert page.ask("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_who_wants_no_motion_gets_none(opened):
    _, recording = multi_head()
    page = opened(recording, STEPS, calm=True)
    page.ask("void document.querySelector('.play').click()")
    assert page.ask("document.getAnimations().length") == 0
    page.until("document.querySelector('.part bdi') !== null")
    page.press("a")
    assert page.ask("document.getAnimations().length") == 0


@pytest.mark.slow
def test_every_control_is_reached_and_named(opened):
    _, recording = multi_head()
    page = opened(recording, STEPS)
    for name in ("steps", "map", "links", "checks", "save"):
        tab(page, name)
        unnamed = page.ask(
            f"[...document.querySelectorAll('#panel-{name} button, #panel-{name} [role=button]')].filter((each) => !(each.getAttribute('aria-label') || each.textContent).trim()).length"
        )
        assert unnamed == 0, json.dumps(name)


def test_the_list_of_keys_opens_wherever_the_focus_is(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.0&batch=0&token=3")
    page.press("?")
    assert page.ask("document.querySelector('dialog').open")
    assert "from step to step" in page.ask("document.querySelector('dialog').textContent")


@pytest.mark.slow
def test_single_keys_turn_the_direction_the_token_and_the_panel(opened):
    _, recording = multi_head()
    page = opened(recording, "head=0.0&batch=0&token=3")
    page.press("a", ".", ".")
    assert page.ask(CHOSEN) == "w5"
    assert page.ask("document.querySelector('.reading').dataset.side") == "key"
    page.press("2")
    assert page.ask("document.getElementById('panel-map').offsetParent !== null")
    page.press("1")
    assert page.ask("document.getElementById('panel-steps').offsetParent !== null")


# WCAG 2.2's contrast of two colours, of what the browser computes.
CONTRAST = """(() => {
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const card = getComputedStyle(document.body).backgroundColor;
  const channels = (...colours) => { for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); } return [...pen.getImageData(0, 0, 1, 1).data]; };
  const light = (rgb) => { const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  return Math.min(...[...document.querySelectorAll(".part bdi")].map((each) => {
    const { color, backgroundColor } = getComputedStyle(each);
    const [ink, ground] = [light(channels(card, color)), light(channels(card, backgroundColor))];
    return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
  }));
})()"""


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("side", ["query", "key"])
def test_tokens_can_be_read_on_every_colour(opened, dark, side):
    tokens = [f"w{index}" for index in range(60)]
    _, recording = multi_head(60, tokens=tokens)
    page = opened(recording, f"head=0.0&batch=0&token=3&side={side}&colour=log", dark=dark, calm=True)
    assert page.ask(CONTRAST) >= 3.5


def test_weights_of_another_normalizer_are_shown_as_they_are_kept(opened):
    torch.manual_seed(0)
    layer = overt.layers.MultiHeadAttention(16, heads=2, normalizer=overt.Sparsemax())
    recording = recorded(layer, torch.randn(1, 9, 16), tokens=words(9))
    page = opened(recording, "head=0.1&batch=0&token=6&panel=steps")
    assert page.ask("[...document.querySelectorAll('.stages button')].map((each) => each.title)") == [
        "weights",
        "weight",
        "sum",
    ]
    weights = recording[0, 1].weights(rows=6)[0, 0]
    for key, weight in page.ask(TABLE):
        assert read(weight) == pytest.approx(float(weights[key]), abs=6e-4)
    for name in ("steps", "links", "checks"):
        tab(page, name)
    assert page.complaints == []


def test_each_batch_element_has_its_own_text_and_weights(opened):
    torch.manual_seed(0)
    layer = overt.layers.MultiHeadAttention(16, heads=2)
    recording = recorded(layer, 3 * torch.randn(2, 6, 16), tokens=[words(6), [f"v{index}" for index in range(6)]])
    page = opened(recording, "head=0.1&batch=1&token=2&colour=linear")
    assert page.ask(CHOSEN) == "v2"
    assert page.ask(SHARES) == pytest.approx(shares(recording[0, 1].weights(rows=2)[1, 0]), abs=0.06)


def test_a_query_that_may_attend_to_nothing_says_so(opened):
    torch.manual_seed(0)
    layer = overt.layers.MultiHeadAttention(8, heads=1)
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    with torch.no_grad(), overt.lens.record(layer, key_tokens=words(6)) as recording:
        layer(torch.randn(1, 6, 8), mask=mask)
    page = opened(recording, "head=0.0&batch=0&token=2&panel=checks")
    assert "may attend to nothing: its weights are zeros." in page.ask("document.querySelector('.honest').textContent")
    tab(page, "steps")
    assert page.complaints == []


def test_at_a_desks_size_the_first_view_has_the_text_the_steps_and_all_heads(opened):
    _, recording = multi_head(15, heads=12)
    page = opened(recording, "head=0.1&batch=0&token=6", width=1280, height=800)
    page.until("document.querySelectorAll('.cells button[aria-label]').length === 12")
    for part in (".texts", ".player", ".caption", ".six tbody tr:nth-child(8)", ".cells", ".beside table"):
        assert page.ask(f"document.querySelector('{part}').getBoundingClientRect().bottom") <= 800, part


@pytest.mark.slow
def test_who_chooses_a_key_by_keyboard_stays_in_the_table(opened):
    _, recording = multi_head()
    page = opened(recording, STEPS)
    page.ask("document.querySelector('.six tbody tr:nth-child(3) button').focus()")
    third = page.ask("document.activeElement.textContent")
    page.press("ArrowDown")
    assert page.ask("document.activeElement.closest('tr').className") == "chosen"
    page.ask("void document.activeElement.click()")
    assert page.ask("document.activeElement.closest('table').className") == "six"
    assert third


def test_a_chooser_on_top_shows_another_text_in_every_panel(opened):
    texts = [["the", "cat", "sat"], ["a", "dog"]]
    model, x = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval(), torch.randn(2, 3, 8)
    padding = torch.tensor([[False, False, False], [False, False, True]])
    with overt.lens.record(model, key_tokens=[texts[0], [*texts[1], "[PAD]"]]) as recording:
        model(x, src_key_padding_mask=padding)
    page = opened(recording)
    chooser = "document.querySelector('.bar .text-chooser')"
    assert page.ask(f"[...{chooser}.options].map((each) => each.text)") == ["1: the cat sat", "2: a dog"]
    for panel in ("steps", "map", "links", "checks", "save"):
        page.ask(f"void viewer.store.set({{ panel: '{panel}', batch: 0 }})")
        assert page.ask(f"{chooser}.clientHeight > 0 && {chooser}.value") == "0"
        page.ask(f"void (({chooser}.value = '1'), {chooser}.dispatchEvent(new Event('change')))")
        assert page.ask("[...document.querySelectorAll('.reading [data-token]')].map((each) => each.textContent)") == texts[1]
        assert page.ask("viewer.recording.heads[viewer.store.get().head].keyCount") == 2
    page.ask("void (location.hash = '#batch=0')")
    page.until(f"{chooser}.value === '0'")
    assert page.complaints == []


def test_the_header_says_what_one_looks_at(opened, tmp_path):
    facts = "document.querySelector('.facts').textContent"
    _, recording = multi_head()
    assert opened(recording).ask(facts) == f"MultiHeadAttention · 2 heads in 1 attention layer · {date.today().isoformat()}"
    path = tmp_path / "a & b.safetensors"
    recording.save(path)
    os.utime(path, (1e9, 1e9))
    page = opened(overt.lens.load(path), made={"heads": [(0, 1)]})
    assert page.ask(facts) == "MultiHeadAttention · 1 of 2 heads in 1 attention layer · a & b.safetensors · 2001-09-09"
    three = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 3, enable_nested_tensor=False).eval()
    page = opened(recorded(three, torch.randn(2, 3, 8)), made={"heads": [(0, 1), (2, 0)]})
    assert page.ask(facts).startswith("TransformerEncoder · 2 of 6 heads in 2 of 3 attention layers · 2 texts · ")
    assert page.ask("[...document.querySelector('.bar .text-chooser').options].map((each) => each.text)") == [
        "text 1",
        "text 2",
    ]
