import io
import json
import subprocess
import sys

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from overt.cli import translate
from overt.cli.main import app
from overt.learn.run.model_folder import save_model
from overt.learn.translator import Translator
from overt.models import Seq2Seq
from translators import ENGLISH, FRENCH, by_heart


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translator")
    save_model(by_heart().model, folder, by_heart().tokenizer)
    return folder


def run(model, *arguments, inputs=b"", columns=100):
    arguments = ["translate", "--model", str(model), *map(str, arguments)]
    return CliRunner().invoke(app, arguments, input=inputs, env={"COLUMNS": str(columns)})


def shown(model, *arguments, **options):
    result = run(model, *arguments, **options)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def refused(model, *arguments, **options):
    result = run(model, *arguments, **options)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr.removeprefix("overt: ")


def test_a_text_is_translated(model):
    assert shown(model, ENGLISH[0]) == FRENCH[0] + "\n"


def test_characters_that_the_model_cannot_read_are_named(model):
    result = run(model, "你好")
    assert result.exit_code == 0
    assert "warning: the translator cannot read 你 好 in the text; its translation may be wrong" in result.stderr
    many = run(model, inputs=f"{ENGLISH[0]}\n好\n{ENGLISH[1]} 你\n".encode())
    assert "cannot read 好 你 in lines 2 and 3" in many.stderr
    assert run(model, ENGLISH[0]).stderr == ""


def test_lines_unlike_the_training_data_are_named(model, tmp_path):
    odd = "the the cat you ."
    scores = [each.score for each in Translator.load(model).translate([ENGLISH[0], odd])]
    assert scores[1] < scores[0]
    save_model(by_heart().model, tmp_path, by_heart().tokenizer, {"score_bound": sum(scores) / 2})
    result = run(tmp_path, inputs=f"{ENGLISH[0]}\n{odd}\n".encode())
    assert result.exit_code == 0
    assert "warning: line 2 may be unlike the training data, as in another language: 99 % of the" in " ".join(
        result.stderr.split()
    )
    assert "have a mean log probability of the translation above" in " ".join(result.stderr.split())
    assert run(tmp_path, ENGLISH[0]).stderr == ""
    greedy = run(tmp_path, odd, "--beam", 1)
    assert "warning: the text may be unlike" in greedy.stderr


def test_warnings_name_every_line_and_a_file_has_a_row_for_each(model, tmp_path):
    inputs = "\n".join(["好", *ENGLISH[:3], "你", "好", "你", "", "你好", ENGLISH[0]]).encode()
    result = run(model, "--warnings", tmp_path / "warnings.tsv", inputs=inputs)
    assert "cannot read 好 你 in lines 1, 5-7 and 9;" in " ".join(result.stderr.split())
    rows = [line.split("\t") for line in (tmp_path / "warnings.tsv").read_text(encoding="utf-8").splitlines()]
    assert rows == [
        [number, "the translator cannot read", each]
        for number, each in zip("15679", ["好", "你", "好", "你", "你 好"], strict=True)
    ]
    shown(model, ENGLISH[0], "--warnings", tmp_path / "none.tsv")
    assert (tmp_path / "none.tsv").read_text() == ""


def test_a_span_that_the_model_drops_is_kept_and_its_line_is_named(model):
    result = run(model, inputs=f"{ENGLISH[0]}\nTom is my friend https://a.org/b.\n".encode())
    assert "https://a.org/b" in result.stdout.splitlines()[1]
    assert "attention chose its place (https://a.org/b) in line 2" in " ".join(result.stderr.split())


def test_a_text_without_words_is_copied_and_has_no_map(model):
    assert shown(model, inputs=f"https://a.org/b\n😊\n{ENGLISH[0]}\n".encode()) == f"https://a.org/b\n😊\n{FRENCH[0]}\n"
    assert refused_late(model, "--map", "--text", "https://a.org/b").startswith("overt: Expected a text with words")


def test_the_map_shows_spans_as_they_were_written(monkeypatch):
    result = CliRunner().invoke(app, ["translate", "The map is in a_b.md.", "--map"], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("a_b.md") == 3  # the translation, a row and a column


def test_lines_keep_their_order_and_empty_ones_stay_empty(model):
    inputs = f"{ENGLISH[1]}\n\n{ENGLISH[0]}\r\n{ENGLISH[2]}".encode()
    assert shown(model, inputs=inputs) == f"{FRENCH[1]}\n\n{FRENCH[0]}\n{FRENCH[2]}\n"


def test_code_is_copied_and_the_cells_of_a_table_are_translated(model):
    inputs = f"| {ENGLISH[0]} | {ENGLISH[1]} |\n|---|:-:|\n```\n{ENGLISH[0]}\n```\nx = f(y)\n".encode()
    assert shown(model, inputs=inputs) == f"| {FRENCH[0]} | {FRENCH[1]} |\n|---|:-:|\n```\n{ENGLISH[0]}\n```\nx = f(y)\n"


def test_nothing_in_is_nothing_out(model):
    assert shown(model, inputs=b"") == ""


def test_out_writes_the_translations_to_a_file(model, tmp_path):
    assert shown(model, ENGLISH[2], "--out", tmp_path / "french.txt") == ""
    assert (tmp_path / "french.txt").read_text(encoding="utf-8") == FRENCH[2] + "\n"


def test_nbest_numbers_the_line_and_gives_score_and_text(model):
    lines = shown(model, "--nbest", 2, inputs=f"{ENGLISH[1]}\n\n{ENGLISH[0]}\n".encode()).splitlines()
    rows = [line.split("\t") for line in lines]
    assert [number for number, _, _ in rows] == ["1", "1", "3", "3"]
    assert [rows[0][2], rows[2][2]] == [FRENCH[1], FRENCH[0]]
    assert float(rows[0][1]) > float(rows[1][1])


def test_a_map_has_a_row_for_each_token_with_its_weights(model):
    output = shown(model, ENGLISH[1], "--map", columns=200)
    translation, _, *beginning = output.splitlines()
    assert translation == FRENCH[1]
    text = " ".join(beginning)
    assert "the head that reads most of the source text" in text
    [result] = by_heart().translate([ENGLISH[1]])
    rows = beginning[-len(result.tokens) - 1 :]
    assert [row.split()[0] for row in rows] == [*(token.removeprefix("▁") for token in result.tokens), "</s>"]
    weights = by_heart().model.weights(*by_heart().teacher_forced(ENGLISH[1], result))["cross"]
    layer, head = int(text[text.index("L") + 1]), int(text[text.index("H") + 1])
    largest = weights[layer][0, head].max(-1).values
    for row, weight in zip(rows, largest.tolist(), strict=True):
        assert f"{weight:.2f}".removeprefix("0") in row


def test_the_page_holds_every_words_attention_and_loads_nothing(model, tmp_path):
    output = shown(model, ENGLISH[1], "--attention", tmp_path / "a.html")
    assert output == FRENCH[1] + "\n"
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    [result] = by_heart().translate([ENGLISH[1]])
    header = json.loads(page.split('id="header">')[1].split("</script>")[0])
    words = [header["words"][header["heads"][0][side]] for side in ("queries", "keys")]
    assert words == [[*(token.removeprefix("▁") for token in result.tokens), "</s>"], words[1]]
    assert words[1][-1] == "</s>"
    assert {each["queries"] for each in header["calls"]} == {len(result.tokens) + 1}
    assert f"<title>“{FRENCH[1]}” attends to “{ENGLISH[1]}”</title>" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def recurrent(folder, **options):
    """The folder of an untrained recurrent translator."""
    words = by_heart().tokenizer.words
    torch.manual_seed(0)
    save_model(Seq2Seq(words, words, 16, **options), folder, by_heart().tokenizer)
    return folder


@pytest.mark.parametrize(
    ("score_with", "who"),
    [
        ("previous", "the query is the decoder's previous state"),
        ("current", "the query is the decoder's current state"),
        ("both", "the query is the decoder's current state"),
    ],
)
def test_the_map_of_a_recurrent_decoder_shows_the_weights_of_its_attention(tmp_path, score_with, who):
    folder = recurrent(tmp_path, score_with=score_with)
    beginning = shown(folder, "--map", "--beam", "1", ENGLISH[3])
    assert who in " ".join(beginning.split())
    translator = Translator.load(folder)
    [translation] = translator.translate([ENGLISH[3]], beam=1)
    weights = translator.model.weights(*translator.teacher_forced(ENGLISH[3], translation))["cross"][0][0, 0]
    last = beginning.splitlines()[-1]
    assert all(f"{weight:.2f}".removeprefix("0") in last for weight in weights[-1].tolist())


def test_a_recurrent_decoder_has_no_page_and_without_attention_no_map(tmp_path):
    assert "whose decoder is recurrent, with one query for each word. Fix: show" in refused_late(
        recurrent(tmp_path), "--attention", tmp_path / "page.html", "a"
    )
    assert not (tmp_path / "page.html").exists()
    beginning = refused_late(recurrent(tmp_path, attention=None), "--map", "a")
    assert "whose decoder reads one context vector and attends to nothing" in beginning


def refused_late(folder, *arguments):
    """What is said by a refusal that comes after the translation."""
    result = run(folder, *arguments)
    assert result.exit_code == 2
    return " ".join(result.stderr.split())


def test_on_a_terminal_a_bar_counts_the_lines_and_goes_when_they_are_translated(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(
        translate, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=80, color_system=None)
    )
    with translate.show_progress(2) as advance:
        advance()
        advance()
    assert "2/2" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[1A\x1b[2K")
    screen.truncate(0)
    with translate.show_progress(1) as advance:
        advance()
    assert "1/1" not in screen.getvalue()


def test_text_that_is_not_utf8_is_refused_with_its_byte(model):
    beginning = refused(model, inputs=b"one\ntwo \xff\n")
    assert beginning.startswith("Expected standard input to be UTF-8 text, got the byte 0xff on line 2, byte 5 of the line.")


@pytest.mark.parametrize(
    ("arguments", "inputs", "beginning"),
    [
        (["--map"], b"one\ntwo\n", "one sentence for --attention and --map, got 2 lines. Fix: pass it as the text:"),
        (["--map", " "], b"", "one sentence for --attention and --map, got an empty line."),
        (
            ["--nbest", "3", "--beam", "2", "a"],
            b"",
            "from 1 translation up to the size of the beam, got --nbest 3 with --beam 2.",
        ),
        (["--nbest", "0", "a"], b"", "from 1 translation up to the size of the beam, got --nbest 0 with --beam 5."),
        (["--beam", "0", "a"], b"", "a beam of at least 1, got --beam 0."),
        (["a", "--out", "nowhere/at/all.txt"], b"", "an output path in an existing folder, got nowhere/at/all.txt."),
    ],
)
def test_what_cannot_be_done_is_refused(model, arguments, inputs, beginning):
    assert refused(model, *arguments, inputs=inputs).startswith(f"Expected {beginning}")


def test_a_folder_without_a_model_is_refused(tmp_path):
    assert refused(tmp_path, "a").startswith("Expected the folder of a training run")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="pipes break otherwise there")
def test_a_reader_that_leaves_is_no_fault(model):
    command = [sys.executable, "-m", "overt", "translate", "--model", str(model), "--beam", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        process.stdin.write(f"{ENGLISH[1]}\n".encode())
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_explain_shows_the_encoder_of_a_runs_folder(model):
    result = CliRunner().invoke(app, ["explain", "--model", str(model), ENGLISH[0], "--word", "happy"], env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.stderr
    beginning = " ".join(result.stdout.split())
    assert "this is its encoder" in beginning
    assert "✓ within the rounding bound" in beginning


def test_explain_falls_back_to_the_box_and_says_so(model, monkeypatch):
    from overt.explain import text_model
    from overt.learn import translator as translators

    monkeypatch.setattr(text_model, "packaged_folder", lambda: None)
    monkeypatch.setattr(translators, "bundled_folder", lambda: model)
    result = CliRunner().invoke(app, ["explain", ENGLISH[0], "--word", "happy"], env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.stderr
    beginning = " ".join(result.stdout.split())
    assert "all-MiniLM-L6-v2 is not installed, so overt's own translator, a smaller model, is used" in beginning
    assert "✓ within the rounding bound" in beginning


def test_the_explained_head_is_the_encoders_own():
    from overt.cli.shared.translator_as_text_model import TranslatorTextModel
    from overt.explain.recipes.qkv import qkv

    translator_as_text_model = TranslatorTextModel(by_heart())
    explanation = qkv(translator_as_text_model, ENGLISH[0], "happy", layer=0, head=1)
    source = torch.tensor([by_heart().encode(ENGLISH[0])])
    weights = by_heart().model.weights(source, torch.tensor([[1]]))["encoder"][0][0, 1]
    torch.testing.assert_close(torch.tensor(explanation.matrix), weights)


def test_word_vectors_are_the_rows_of_the_encoders_table(model):
    result = CliRunner().invoke(
        app, ["explain", "--model", str(model), "--recipe", "plain", ENGLISH[0]], env={"COLUMNS": "140"}
    )
    assert result.exit_code == 0, result.stderr
    assert "No trained weights" in result.stdout


def test_a_page_that_would_be_too_large_is_refused_before_it_is_made(model, tmp_path, monkeypatch):
    from overt.explain import html
    from overt.lens import viewer

    monkeypatch.setattr(viewer, "pack_heads", lambda *inputs, **beginning: pytest.fail("it was built"))
    monkeypatch.setitem(html.write.__kwdefaults__, "limit", 1000)
    message = refused_late(model, ENGLISH[1], "--attention", tmp_path / "a.html")
    assert "a page of at most 0.0 MB, which browsers open quickly, got " in message
    assert message.rstrip().endswith("Fix: pass a shorter text.")
    assert list(tmp_path.iterdir()) == []


def test_a_page_keeps_its_limit():
    from overt.explain import html
    from overt.lens.recording import PAGE_LIMIT

    assert html.write.__kwdefaults__["limit"] == PAGE_LIMIT == 24_000_000


def test_a_file_that_is_named_is_translated_line_by_line(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text(f"{ENGLISH[1]}\n\n{ENGLISH[0]}\n", encoding="utf-8")
    assert shown(model, "in.txt") == f"{FRENCH[1]}\n\n{FRENCH[0]}\n"
    assert shown(model, "-", inputs=ENGLISH[0].encode()) == FRENCH[0] + "\n"
    assert "got out.txt, which does not exist. Fix: check the name, or pass --text if it is a text." in refused(
        model, "out.txt"
    )
    assert shown(model, "out.txt", "--text").count("\n") == 1
