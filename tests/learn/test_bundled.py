"""The translator in the box: small, offline, with a card that says where it comes from, and open to the lens."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from overt.learn.translator import Translator, bundled_folder
from overt.lens import record

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("OVERT_DATA", ROOT.parent / "shared" / "data"))
SENTENCES = {
    "I am happy to see you.": "Je suis heureux de vous voir.",
    "Where is the station?": "Où se trouve la gare ?",
    "I don't know what you want.": "Je ne sais pas ce que tu veux.",
    "How much does this cost?": "Combien cela coûte-t-il ?",
}


@pytest.fixture(scope="module")
def translator():
    return Translator.bundled()


@pytest.fixture(scope="module")
def folder():
    return bundled_folder()


@pytest.fixture(scope="module")
def card(folder):
    return (folder / "CARD.md").read_text(encoding="utf-8")


def score(card, name):
    """A score of the card's table of the weights as they are stored."""
    table = card[card.index("## As int8") :]
    return float(re.search(rf"^\| {name} \| [\d.]+ \| ([\d.]+) \|", table, re.MULTILINE)[1])


def overt(*arguments, **options):
    command = [sys.executable, "-m", "overt", *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, **options).stdout


def test_the_box_takes_at_most_13_megabytes(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 13_000_000


def test_the_card_says_what_it_was_made_of_and_how(card):
    for message in ("tatoeba.org", "manythings.org/anki", "CC BY 2.0", "- seed:", "- hardware:", "- time:", "tok:13a"):
        assert message in card
    assert "no source sentence of the test occurs in training" in " ".join(card.split())


def test_the_card_has_the_recipe_that_makes_it_again(card):
    assert "`python recipes/train_on_gpu.py recipes/tatoeba-en-fr-box.toml`" in card
    assert (ROOT / "recipes" / "tatoeba-en-fr-box.toml").read_text(encoding="utf-8").strip() in card


@pytest.mark.slow
def test_the_card_prints_the_everyday_sentences_and_what_the_box_makes_of_them(card, translator):
    lists = ("everyday-en.txt", "everyday-more-en.txt")
    sentences = [line for name in lists for line in (ROOT / "recipes" / name).read_text(encoding="utf-8").splitlines()]
    lines = card[card.index("## Everyday sentences") :]
    rows = dict(re.findall(r"^\| (.+) \| .+ \| (.+?)(?: ✓)? \|$", lines, re.MULTILINE))
    rows.pop("English")
    assert list(rows) == sentences
    assert [lines.count(f"right in {number} lines") for number in (24, 34)] == [1, 1]
    texts = [each.text for each in translator.translate(sentences)]
    # A machine's last bits may choose another word now and then.
    assert sum(text == row for text, row in zip(texts, rows.values(), strict=True)) >= 96


def test_plain_sentences_are_translated(translator):
    result = translator.translate(list(SENTENCES))
    assert [each.text for each in result] == list(SENTENCES.values())


@pytest.mark.slow
def test_the_command_translates_at_once(tmp_path):
    assert overt("translate", "I am happy to see you.", cwd=tmp_path) == "Je suis heureux de vous voir.\n"


def test_the_encoder_the_decoder_and_what_joins_them_are_open_to_the_lens(translator):
    text = "I am happy to see you."
    source, target = translator.teacher_forced(text, translator.translate([text])[0])
    with torch.no_grad(), record(translator.model) as recording:
        translator.model(source, target)
    config = translator.model.config
    assert len(recording) == config["encoder_layers"] + 2 * config["decoder_layers"]
    assert recording.verify().holds
    assert recording["decoder.layers.0.cross_attention", 0].weights().shape == (1, target.shape[1], source.shape[1])


def test_one_head_of_the_decoder_reads_the_word_that_it_writes(translator):
    text = "Where is the station?"
    result = translator.translate([text])[0]
    cross = translator.model.weights(*translator.teacher_forced(text, result))["cross"]  # (1, heads, T, S) a layer
    written, read = result.tokens.index("▁gare"), result.source_tokens.index("▁station")
    assert max(float(weights[0, :, written, read].max()) for weights in cross) > 0.5


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "tatoeba").is_dir(), reason="needs tatoeba/fra-eng.zip in the folder that OVERT_DATA names")
def test_the_cards_scores_are_those_of_the_box(folder, card):
    message = overt("evaluate", ROOT / "recipes" / "tatoeba-en-fr.toml", "--model", folder, "--data", DATA)
    result = {
        name: float(value) for name, value in re.findall(r"^(bleu|chrf|bleu_all_references) ([\d.]+)", message, re.MULTILINE)
    }
    # A machine's last bits may choose another word now and then.
    assert result == {name: pytest.approx(score(card, name), abs=0.1) for name in ("bleu", "chrf", "bleu_all_references")}
