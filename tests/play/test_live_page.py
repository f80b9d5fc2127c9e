"""The live page in a real browser: what it computes, what it says, and what it never does."""

import functools
import http.server
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from live_page import TIRED, Typed, write
from typer.testing import CliRunner

import browser
import overt
from overt.cli.main import app

WIDE = "The animal didn't cross the street because it was too wide."
HOSTILE = [
    "</script><script>document.title='broken'</script>",
    "<img src=x onerror=alert(1)> & \"quotes\" 'n' `ticks` ${x}",
    "{{style}} \u2028\u2029 \u202e right to left \u202c \x00\x01 \ud83d end",
]
SENTENCES = [
    TIRED,
    WIDE,
    "Sky is clear today",
    "Naïve café owners in Zürich pay 3.50 € for a croissant; élèves don't.",
    "北京 is the capital of 中国, and 東京 of Japan.",
    "A very unbelievablylongwordthatnobodyknows appears here, doesn't it?",
    "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer. " * 3,
]  # fmt: skip


def weights_of(page, layer, head):
    head = f"viewer.recording.heads.find((head) => head.number === {layer} && head.head === {head})"
    return np.array(page.ask(f"{head}.queries.map((_, i) => Array.from({head}.weightsRow(i)))"))


def all_weights(page):
    return np.array(
        page.ask("viewer.recording.heads.map((head) => head.queries.map((_, i) => Array.from(head.weightsRow(i))))")
    )


def python_weights(minilm, text):
    encoded = minilm.encode(text)
    with overt.lens.record(minilm.network) as recording, torch.no_grad():
        minilm.run(encoded)
    recording.tokens = encoded.tokens
    heads = [recording[layer, head] for layer in range(6) for head in range(12)]
    return encoded, np.array([head.weights()[0].numpy() for head in heads]), recording


def test_the_weights_are_pythons_and_the_page_asks_for_nothing(written, opened, minilm):
    live = opened(written).ready()
    for text in SENTENCES:
        live.type(text)
        encoded, expected, _ = python_weights(minilm, text)
        assert live.page.ask("viewer.recording.heads[0].queries") == list(map(str, encoded.tokens))
        assert np.abs(all_weights(live.page) - expected).max() < 1e-3, text
    assert [url for url in live.page.requests if not url.startswith(("data:", "blob:", "file:"))] == []
    assert len([url for url in live.page.requests if url.startswith("file:")]) == 1
    assert live.page.complaints == []


@pytest.mark.slow
def test_weights_of_eight_bits_keep_nearly_all_strongest_links(written_small, opened, minilm):
    live = opened(written_small).ready()
    same = []
    for text in SENTENCES:
        live.type(text)
        expected = python_weights(minilm, text)[1]
        page = all_weights(live.page)
        same += list(page.reshape(72, -1).argmax(-1) == expected.reshape(72, -1).argmax(-1))
    assert np.mean(same) >= 0.97


def test_a_file_is_no_larger_than_is_promised(written):
    assert os.path.getsize(written) <= 62e6


@pytest.mark.slow
def test_a_file_of_eight_bits_is_no_larger_than_is_promised(written_small):
    assert os.path.getsize(written_small) <= 33e6


@pytest.mark.slow
@pytest.mark.parametrize("text", [
    "My old neighbour sold his blue bicycle, so now she walks to work.", "red dog, old tree, red dog, old tree, red dog.",
])  # fmt: skip
def test_statistics_links_and_roles_are_pythons(written, opened, minilm, text):
    live = opened(written).ready()
    live.type(text)
    recording = python_weights(minilm, text)[2]
    heads = live.page.ask(
        "viewer.recording.heads.map(({ entropy, role, roleScores, received }) => ({ entropy, role, roleScores, received: Array.from(received) }))"
    )
    for index, role in enumerate(recording.roles()):
        head = recording[role.number, role.head]
        assert heads[index]["role"] == role.role
        assert heads[index]["roleScores"] == pytest.approx(role.scores, abs=2e-3)
        assert heads[index]["entropy"] == pytest.approx(head.entropy().mean().item(), abs=2e-3)
        assert heads[index]["received"] == pytest.approx(head.received()[0].tolist(), abs=1e-3)


@pytest.mark.slow
def test_the_page_breaks_no_rule_of_accessibility(written_little, opened):
    live = opened(written_little, width=400, dark=True).ready()
    assert live.page.broken_rules() == []


def test_the_page_computes_a_row_again_and_says_how_far_it_is_off(written_little, opened):
    live = opened(written_little).ready()
    live.type(WIDE)
    assert live.said == ""
    assert live.page.ask("viewer.recording.verified.holds")
    assert "The page's weights have 16 bits" in live.page.ask("document.querySelector('.true').textContent")
    live.page.ask("viewer.store.set({ panel: 'checks' })")
    checks = live.page.ask("document.querySelector('.honest').textContent")
    assert "computed again in JavaScript: " in checks
    assert "in float64 by plain JavaScript" in checks
    assert "within the rounding bound" in checks


@pytest.mark.slow
def test_what_is_chosen_follows_the_sentence(written_little, opened):
    live = opened(written_little).ready()
    assert live.page.ask("viewer.store.get().token") == 10
    chosen = "viewer.recording.heads[0].queries[viewer.store.get().token]"
    live.type("The old animal didn't cross the street because it was too tired.")
    assert live.page.ask(chosen) == "it"
    live.type("The old animal stopped because it was tired, and slept.")
    assert live.page.ask(chosen) == "it"
    assert live.page.ask("document.title") == "The old animal stopped because it was tired, and slept."
    assert live.page.ask("document.querySelector('.running .own').textContent") == "it"
    assert live.page.ask("document.querySelector('.steps h2 bdi').textContent") == "“it”"
    live.page.ask("viewer.store.set({ panel: 'map' })")
    live.type("Cats sleep.")
    live.page.until("document.querySelector('.map-head').textContent.endsWith('5 × 5')")
    live.page.ask("viewer.store.set({ panel: 'links' })")
    assert live.page.ask("document.querySelectorAll('.linked tbody tr').length") == 20


def test_what_is_out_of_sight_is_not_drawn(written_little, opened):
    live = opened(written_little, calm=True).ready()
    assert live.page.ask("document.querySelectorAll('.heads-box canvas').length") == 0
    live.type("Cats sleep.")
    assert live.page.ask("document.querySelectorAll('.heads-box canvas').length") == 0
    live.page.ask("viewer.store.set({ panel: 'map' })")
    assert live.page.ask("document.querySelectorAll('.heads-box canvas').length") == 12


@pytest.mark.slow
def test_typing_is_never_held_up(written, opened):
    live = opened(written).ready()
    read = live.page.ask("Number(viewer.dataset.read)")
    live.put(*(WIDE[:length] for length in range(1, len(WIDE))), "The end.")
    live.page.until("viewer.recording.title === 'The end.'", 30)
    # What was overtaken is never computed: the first and the last are read.
    assert live.page.ask("Number(viewer.dataset.read)") == read + 2


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.few_cases(1)
def test_hostile_text_is_text(written_little, opened, text):
    live = opened(written_little).ready()
    live.type(text)
    assert live.page.complaints == []
    assert live.page.ask("document.querySelectorAll('img, iframe, script[src]').length") == 0
    assert "broken" not in live.page.ask("document.title") or "script" in live.page.ask("document.title")


@pytest.mark.slow
def test_an_empty_sentence_and_a_megabyte_get_a_sentence(written, opened):
    live = opened(written).ready()
    live.put("  \n ")
    live.until_said("Type a sentence")
    live.type("word " * 200_000, 120)
    assert live.said.startswith("512 tokens, the beginning of the text: the model takes no more")
    live.type("x" * 1_000_000, 60)
    assert live.page.ask("viewer.recording.heads[0].queries.tokenizer.pieces") == ["[CLS]", "[UNK]", "[SEP]"]
    live.type(TIRED)
    assert live.page.complaints == []


@pytest.fixture(scope="module")
def strongest(little):
    """The token that the word of the first picture attends to most."""
    from overt.explain.recipes.qkv import qkv

    return max(qkv(little, TIRED, "it").steps, key=lambda step: step.weight).token


@pytest.mark.slow
def test_a_file_that_is_cut_short_says_so_and_its_first_picture_works(written_little, opened, strongest, tmp_path):
    whole = written_little.read_text(encoding="utf-8")
    for name, end, said in [
        ("weights", whole.index('id="weights-3"') + 5_000, "The file's model is damaged: part 4 of 4 is cut short."),
        ("core", whole.index('id="core"') + 5_000, "The file's model cannot be read"),
    ]:
        path = tmp_path / f"{name}.html"
        path.write_text(whole[:end], encoding="utf-8")
        live = opened(path)
        live.until_said(said)
        assert live.page.ask("document.getElementById('sentence').disabled")
        assert live.page.ask("document.querySelector('.steps tr.chosen').textContent").startswith(strongest)


def test_a_weight_that_was_changed_is_noticed(written_little, opened, tmp_path):
    whole = written_little.read_text(encoding="utf-8")
    start = whole.index('id="weights-3"') + 4_000
    path = tmp_path / "changed.html"
    path.write_text(whole[:start] + ("B" if whole[start] == "A" else "A") + whole[start + 1 :], encoding="utf-8")
    opened(path).until_said("The file's model is damaged: part 4 of 4 has other bytes than were written.")


@pytest.mark.skipif(browser.find() is None, reason=browser.MISSING)
def test_without_webassembly_the_page_says_so_and_shows_its_first_picture(written_little, strongest, monkeypatch):
    monkeypatch.setattr(browser, "QUIET", (*browser.QUIET, "--js-flags=--jitless"))
    running = browser.Browser()
    try:
        page = running.page().open(written_little)
        page.until("document.querySelector('.typing .state')?.textContent.startsWith('This browser runs no WebAssembly')", 30)
        assert page.ask("document.querySelector('.steps tr.chosen').textContent").startswith(strongest)
        assert page.complaints == []
    finally:
        running.close()


def test_without_scripts_the_first_picture_is_there(written_little, opened):
    live = opened(written_little, script=False)
    assert TIRED in live.page.ask("document.getElementById('still').textContent")


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_sticks_out(written_little, opened, width):
    live = opened(written_little, width=width, height=900).ready()
    live.type("Unbelievablylongwords " * 6 + "<" * 300)
    assert live.page.ask("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_the_command_writes_the_page(minilm, tmp_path):
    out = tmp_path / "page.html"
    command = [sys.executable, "-m", "overt", "play", "--small", "--text", "Cats sleep.", "--out", str(out)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"{os.path.getsize(out) / 1e6:.1f} MB" in " ".join(said.split())
    assert "heads kept their strongest link" in " ".join(said.split())
    assert "<title>Cats sleep.</title>" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(("arguments", "said"), [
    (["no/such/folder"], "no/such/folder"),
    (["minilm", "--model", "other"], "one model"),
    (["--text", ""], "Expected a text of at least one word, got ''"),
    (["translator", "--text", " "], "Expected a text of at least one word, got ' '"),
    (["gpt2", "--serve", "--beside"], "Expected --serve, which writes nothing, got --beside"),
])  # fmt: skip
def test_the_command_refuses_what_it_cannot_write(tmp_path, arguments, said):
    done = CliRunner().invoke(app, ["play", *arguments, "--out", str(tmp_path / "page.html")])
    assert done.exit_code != 0
    assert said in done.stderr + done.stdout
    assert not (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_on_a_site_the_weights_are_fetched_beside_the_page(little, chromium, tmp_path):
    write(little, tmp_path / "play & more.html", small=True, beside=True)
    assert (tmp_path / "play & more.html").stat().st_size < 2e6
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        page, address = chromium.page(), f"http://127.0.0.1:{server.server_port}/play%20%26%20more.html"
        page.call("Page.navigate", url=address)
        page.until("document.querySelector('.typing') !== null", 30)
        Typed(page).ready().type("Cats sleep.")
        assert page.complaints == []
        (tmp_path / "play & more-weights-3.txt").unlink()
        page.call("Page.navigate", url="about:blank")
        page.call("Network.setCacheDisabled", cacheDisabled=True)
        page.call("Page.navigate", url=address)
        page.until("document.querySelector('.typing') !== null", 30)
        Typed(page).until_said("The model could not be fetched")
        server.shutdown()
