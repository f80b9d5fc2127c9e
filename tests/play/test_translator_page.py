"""A translator in the page: it writes what Python writes, and attends as Python's does, for models of all shapes that the page takes."""

import json
import os
from importlib import resources

import numpy as np
import pytest
import torch
from live_page import opened_at, shown
from test_bpe import with_bytes
from test_live_page import HOSTILE
from translator_models import TEXTS, model_alone, saved
from typer.testing import CliRunner

import browser
from everyday import everyday
from overt.cli.main import app
from overt.cli.shared.translator_as_text_model import explained
from overt.errors import InputError
from overt.learn.data.tokenizer import END, START, Tokenizer
from overt.learn.run.model_folder import load_model, save_model
from overt.learn.translator import Translator, bundled_folder
from overt.models.decoding import greedy_search
from overt.play.page import write
from overt.play.translators import PageTranslator

# In no place of their translations are two words as likely: the page's weights are rounded.
SENTENCES = [
    "She knows that the old man is waiting for his son.",
    "Où est-il ? 東京 2½ €, “quoted” naïveté.",
    "If it rains tomorrow we will stay at home and read the books that you have bought for us.",
]
OUTPUT = "document.querySelector('.typing .translation').textContent"


def written(folder, path, text, **lesson):
    """The page of a translator, beginning with a text."""
    translator = Translator.load(folder)
    [translation] = translator.translate([text], beam=1)
    write(explained(translator, text, translation), PageTranslator(folder, **lesson), path)
    return path


@pytest.fixture(scope="module")
def bundled_page(tmp_path_factory):
    """The page of the translator that comes with the package, as the command writes it."""
    path = tmp_path_factory.mktemp("translator") / "page.html"
    result = CliRunner().invoke(app, ["play", "translator", "--out", str(path)])
    assert result.exit_code == 0, result.output
    return path


def cross_weights(model, source, target):
    """The weights of all heads of the decoder's attention to the source, (layers · H, T, S)."""
    return torch.cat([layer[0] for layer in model.weights(source, target)["cross"]]).numpy()


def page_weights(page):
    return np.array(
        page.ask("viewer.recording.heads.map((head) => head.queries.map((_, i) => Array.from(head.weightsRow(i))))")
    )


@pytest.mark.few_cases(1)
def test_it_translates_and_attends_as_python_and_asks_for_nothing(bundled_page, opened):
    live, translator = opened(bundled_page).ready(), model_alone(Translator.bundled())
    for text in SENTENCES:
        live.type(text)
        [translation] = translator.translate([text], beam=1)
        assert live.page.ask(OUTPUT) == translation.text
        expected = cross_weights(translator.model, *translator.teacher_forced(text, translation))
        assert np.abs(page_weights(live.page) - expected).max() < 1e-3
        assert live.page.ask("viewer.recording.verified.holds")
    assert os.path.getsize(bundled_page) <= 20e6
    assert [url for url in live.page.requests if not url.startswith(("data:", "blob:", "file:"))] == []
    assert live.page.complaints == []


@pytest.mark.slow
def test_a_beam_finds_what_pythons_finds(bundled_page, opened):
    live, translator = opened(bundled_page).ready(), model_alone(Translator.bundled())
    live.page.ask("void viewer.store.set({ search: 'beam' })")
    for text in ("Where did you buy these shoes?", SENTENCES[0]):
        live.type(text)
        live.page.until(
            f"viewer.recording.title === {json.dumps(text)}"
        )  # a first reading may have been of the sentence before
        assert live.page.ask(OUTPUT) == translator.translate([text], beam=5)[0].text


SHAPES = [
    {"encoder_layers": 3, "decoder_layers": 1, "norm": "pre", "activation": "relu", "tied": "all", "heads": 4},
    {"encoder_layers": 1, "decoder_layers": 2, "norm": "post", "activation": "gelu", "tied": "target", "heads": 2},
    {"encoder_layers": 2, "decoder_layers": 2, "norm": "pre", "activation": "silu", "tied": None, "heads": 3, "kv_heads": 1},
    {"encoder_layers": 1, "decoder_layers": 1, "norm": "post", "positions": "learned", "longest": 40, "heads": 4, "kv_heads": 2},
    {"encoder_layers": 1, "decoder_layers": 3, "norm": "pre", "positions": None, "heads": 1},
]  # fmt: skip


# Every day a norm behind, few heads of keys and learned positions, which the translator in the box has not.
@pytest.mark.parametrize("shape", everyday(SHAPES, SHAPES[3]))
@pytest.mark.slow
def test_any_shape_of_the_transformer_is_computed(tmp_path, opened, shape):
    tokenizer = with_bytes(Tokenizer.learn(TEXTS, merges=60), range(256)) if shape["heads"] == 4 else None
    folder = saved(tmp_path / "model", "Transformer", feed_forward=40, tokenizer=tokenizer, **shape)
    translator = model_alone(Translator.load(folder))
    live = opened(written(folder, tmp_path / "page.html", "the cat")).ready()
    for text in ("the old man, là 漢", "où as-tu acheté le chat noir"):
        live.type(text)
        source = torch.tensor([translator.encode(text)])
        limit = 2 * source.shape[1] + 10
        longest = min(limit, shape.get("longest", 10**6) - 1)
        [hypothesis] = greedy_search(translator.model, source, start=START, end=END, longest=longest)
        assert live.page.ask(OUTPUT) == translator.tokenizer.decode(hypothesis.tokens)
        expected = cross_weights(translator.model, source, torch.tensor([[START, *hypothesis.tokens]]))
        assert np.abs(page_weights(live.page) - expected).max() < 2e-5
        assert live.page.complaints == []


PAIRS = [
    ({"attention": None}, {"attention": "additive", "score_with": "current", "tied": "all"}),
    ({"attention": None, "bidirectional": False}, {"attention": "dot", "score_with": "previous"}),
    ({"attention": None, "tied": "target"}, {"attention": "general", "score_with": "both"}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("pair", everyday(PAIRS, PAIRS[0]))
def test_the_bottlenecks_models_write_what_python_writes(tmp_path, opened, pair):
    folder = saved(tmp_path / "model", "Transformer", heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16)
    lesson = {
        name: saved(tmp_path / name, "Seq2Seq", small=True, seed=3, **options)
        for name, options in zip(("one", "attention"), pair, strict=True)
    }
    curves = {name: [{"shortest": 1, "longest": 9, "rows": 5, "bleu": 3.0}] for name in lesson}
    live = opened_at(opened, written(folder, tmp_path / "page.html", "the cat", lesson=lesson, curves=curves), "bottleneck")
    for text in ("the old man", "où as-tu acheté le chat noir et ces chaussures"):
        live.type(text)
        shown(live)
        for name, path in lesson.items():
            expected = model_alone(Translator.load(path)).translate([text], beam=1)[0].text
            assert live.page.ask(f"document.querySelector('[data-model={name}]').textContent") == expected
    assert live.page.complaints == []


def test_weights_that_the_file_holds_as_int8_have_8_bits_in_the_page(tmp_path):
    sizes = {"heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 16}
    model, tokenizer, _ = load_model(saved(tmp_path / "whole", "Transformer", small=True, **sizes))
    save_model(model, tmp_path / "small", tokenizer, small=True)
    assert [PageTranslator(tmp_path / name).in_int8 for name in ("whole", "small")] == [False, True]
    translator = Translator.load(tmp_path / "small")
    explanation = explained(translator, "the cat", translator.translate(["the cat"], beam=1)[0])
    page = write(explanation, PageTranslator(tmp_path / "small"), tmp_path / "page.html")
    assert page.rounding == "The page's weights have 8 bits, as the model's file has them."


def test_lessons_say_how_many_numbers_the_bottlenecks_vector_has():
    config = json.loads((bundled_folder() / "bottleneck" / "one" / "config.json").read_text(encoding="utf-8"))["config"]
    page = resources.files("overt").joinpath("play/web")
    here = page.joinpath("translation/bottleneck.js").read_text(encoding="utf-8")
    assert config["bidirectional"]
    assert f"recurrent layers of {config['width']} numbers in each direction" in here


@pytest.mark.slow
def test_attention_is_drawn_for_each_word_of_the_bottleneck(bundled_page, opened):
    live = opened_at(opened, bundled_page, "bottleneck")
    live.page.ask("void document.querySelectorAll('.panel.bottleneck .toggles button')[3].click()")
    live.page.until("document.getElementById('sentence').value.endsWith('some tea?')")
    live.page.until("viewer.recording.title.startsWith('I have a dog')")
    shown(live)
    shares = live.page.ask(
        "Array.from(document.querySelectorAll('.panel.bottleneck .alignment i'), (cell) => parseInt(cell.style.getPropertyValue('--share')))"
    )
    columns = live.page.ask("document.querySelectorAll('.panel.bottleneck .alignment .column').length")
    rows = np.array(shares).reshape(-1, columns)
    assert rows.sum(1) == pytest.approx(100, abs=columns / 2)
    one, both = (live.page.ask(f"document.querySelector('[data-model={name}]').textContent") for name in ("one", "attention"))
    for word in ("mère", "train", "thé"):
        assert word in both
        assert word not in one


@torch.no_grad()
def without_heads(translator, text, off):
    """What is written with the output of some heads zero."""
    model, hooks = translator.model, []
    layers = {"e": model.encoder.layers, "d": model.decoder.layers, "c": model.decoder.layers}
    names = {"e": "attention", "d": "self_attention", "c": "cross_attention"}
    for part, layer, head in off:
        attention = getattr(layers[part][layer], names[part])

        def silence(module, inputs, head=head, width=attention.head_width):
            changed = inputs[0].clone()
            changed[..., head * width : (head + 1) * width] = 0
            return (changed,)

        hooks.append(attention.output.register_forward_pre_hook(silence))
    result = translator.translate([text], beam=1)[0].text
    for hook in hooks:
        hook.remove()
    return result


@pytest.mark.slow
def test_switching_heads_off_moves_the_translation_as_in_python(bundled_page, opened):
    live, translator = opened_at(opened, bundled_page, "switched"), model_alone(Translator.bundled())
    after = "document.querySelector('[data-translation=after]').textContent.trim()"
    for text, off in ((SENTENCES[0], [("d", 0, 2)]), (SENTENCES[2], [("e", 1, 0), ("c", 0, 1), ("c", 2, 3)])):
        live.type(text)
        names = ",".join(f"{part}{layer}.{head}" for part, layer, head in off)
        live.page.ask(f"void viewer.store.set({{ without: '{names}' }})")
        expected = " ".join(without_heads(translator, text, off).split())
        live.page.until(f"{after} === {json.dumps(expected)}", 20)
        assert live.page.ask("document.querySelectorAll('.panel.switched [aria-pressed=false]').length") == len(off)


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("panel", ["written", "bottleneck", "switched"])
def test_its_panels_keep_to_the_width_and_to_the_rules(bundled_page, opened, panel, width):
    live = opened_at(opened, bundled_page, panel, width=width, height=900, dark=width == 400)
    assert live.page.ask("document.documentElement.scrollWidth <= innerWidth")
    assert live.page.broken_rules() == []
    assert live.page.complaints == []


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(
    "text", [HOSTILE[0], *(pytest.param(text, marks=pytest.mark.slow) for text in HOSTILE[1:]), "a" * 50_000]
)
def test_hostile_and_long_text_is_text(bundled_page, opened, text):
    live = opened(bundled_page).ready()
    live.type(text, 120)
    assert live.page.complaints == []
    assert live.page.ask("document.querySelectorAll('img, iframe, script[src]').length") == 0
    live.put("  \n ")
    live.until_said("Type a sentence")


@pytest.mark.slow
def test_without_webassembly_it_says_so_and_shows_its_first_picture(bundled_page, monkeypatch):
    monkeypatch.setattr(browser, "QUIET", (*browser.QUIET, "--js-flags=--jitless"))
    running = browser.Browser()
    try:
        page = running.page().open(f"{bundled_page.as_uri()}#panel=bottleneck&text=Go.")
        page.until("document.querySelector('.typing .state')?.textContent.startsWith('This browser runs no WebAssembly')", 30)
        for panel in ("switched", "written", "bottleneck"):
            page.ask(f"void viewer.store.set({{ panel: '{panel}' }})")
        page.until(
            "document.querySelector('.panel.bottleneck .quiet').textContent.startsWith('This browser runs no WebAssembly')"
        )
        assert page.ask(OUTPUT) == "Je pense que le chat noir dort sur mon lit."
        assert page.complaints == []
    finally:
        running.close()


@pytest.mark.parametrize(("kind", "options", "said"), [
    ("Transformer", {"positions": "rotary", "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 16}, "positions as one of"),
    ("Transformer", {"heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 20}, "feed_forward that is a multiple of 8"),
    ("Seq2Seq", {"layer": "lstm"}, "layer as one of gru"),
])  # fmt: skip
def test_what_the_page_cannot_compute_is_refused_with_the_way_out(tmp_path, kind, options, said):
    folder = saved(tmp_path / "model", kind, **options)
    with pytest.raises(InputError) as caught:
        PageTranslator(folder).weights(False)
    assert said in str(caught.value)
    assert ("--serve" if kind == "Transformer" else "overt translate TEXT --model FOLDER --map") in str(caught.value)


@pytest.mark.slow
def test_the_second_lesson_grows_a_text_that_one_vector_does_not_hold():
    script = resources.files("overt").joinpath("play/web/translation/bottleneck.js").read_text(encoding="utf-8")
    sentences = json.loads(script.split("const SENTENCES = ")[1].split(";\n")[0])
    models = {name: Translator.load(bundled_folder() / "bottleneck" / name) for name in ("one", "attention")}
    nouns = ["chien", "mère", "train", "thé"]
    for count in range(1, 5):
        text = " ".join(sentences[:count])
        said = {name: model.translate([text], beam=1)[0].text for name, model in models.items()}
        missing = {name: [noun for noun in nouns[:count] if noun not in output] for name, output in said.items()}
        assert missing["attention"] == []
        assert bool(missing["one"]) == (count > 1), said
