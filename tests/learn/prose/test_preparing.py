"""What a translator reads of a text that is no prose, and what it does not touch."""

import pytest

from overt.learn.processing.prepared import Preparation
from overt.learn.processing.spans import find_spans
from overt.learn.translator import Translator

PIECES = {"Anna": 2, "Buy": 2, "Tom": 1, "tom": 2}
english = Preparation(lambda word: PIECES.get(word, 1), ("en", "fr"))


def spans_in(text):
    return [text[span.start : span.stop] for span in find_spans(text)]


@pytest.mark.parametrize(
    "span",
    [
        "https://example.com/a_(b)?c=d&e=f#g", "http://localhost:8080/x", "ftp://files.example.org", "www.example.org", "example.com/path",
        "anna.b+c@mail.example.co.uk", "/usr/local/bin", "~/.ssh/config", "./run.sh", "src/overt/cli.py", r"C:\Users\Anna\a.txt",
        "notes.txt", "archive.tar.gz", "*.py", ".gitignore", "`git push --force`", "``a `b` c``", "user_name", "maxLength", "__init__",
        "print()", "os.path", "std::vector", "--force", "--level=3", "{name}", "{{ user }}", "$HOME", "%s", "$x^2 + y_1$", "@john.doe", "#travel2024",
        "#42", "$1,299.99", "€45.50", "£20", "1 €", "2.5 kg", "37.2°C", "3.75%", "20%", "pip install -U numpy", 'git commit -m "a b"', "git push", "1,234,567", "65536", "-3.5", "2024-03-15",
        "12/05/1998", "15.03.2024", "2024-03-15T14:30:00Z", "3.11.2", "v2.1", "12:34:56", "1/2", "+33 6 12 34 56 78", "555-0199", "B2024", "221B",
        "Ctrl+C", "😊", "👩‍👧", "🇫🇷", ":-)", ":smile:", "<br/>", "&nbsp;", "<!-- a note -->",
    ],
)  # fmt: skip
def test_a_span_is_found_whole_wherever_it_is(span):
    for text in (span, f"I saw {span} today", f"I saw {span}, Tom.", f"Is it {span}?"):
        assert spans_in(text) == [span], text


@pytest.mark.parametrize(
    "text",
    [
        "I am happy to see you.", "He left at 10.30.", "The train leaves at 6:45 from platform 12.", "It costs $20 or 38 euros.",
        "I was born in 1987.", "Call me at 0471 556 203.", "She is a well-known half-sister.", "He or/and she: yes; no.", "It's Tom's.",
        "Mr. Smith and Dr. Brown met at 5 p.m.", "What? No! Well, yes.", "He's 1.", "The U.S. is big, i.e. large.", "a * b",
        "I (really) know.", "the book(s)", "He said [yes].", "10 km away",
    ],
)  # fmt: skip
def test_plain_prose_has_no_spans_and_is_read_as_it_is(text):
    assert spans_in(text) == []
    assert english(text).plain


def test_marks_that_open_and_close_know_each_other():
    text = "**a** _b_ ~~c~~ [d](e.html) <i>f</i> [b]g[/b]"
    spans = find_spans(text)
    assert [span.partner for span in spans] == [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10]
    assert spans_in("2 * 3 and *") == []


def test_a_text_without_words_is_copied():
    for text in ("https://example.com", "12345", "😊 😊", "<p></p>", "---", "  a@b.org, c@d.org"):
        assert english(text).copied, text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- I am here", "I am here."), ("## The end is near", "The end is near."), ("1. I am here.", "I am here."), ("> I am here.", "I am here."),
        ("- [ ] I am here.", "I am here."), ("<p>I am here.</p>", "I am here."), ("I am here. 😊 #home", "I am here."),
        ("@anna_b I am here.", "I am here."), ("I am here: https://a.org", "I am here:"), ("(I am here)", "I am here."), ("... and I am here.", "and I am here."),
        ("I live in #Paris", "I live in Tom."), ("#Paris is big.", "Tom is big."),
    ],
)  # fmt: skip
def test_only_the_sentence_is_read(text, sentence):
    prepared = english(text)
    assert prepared.source == sentence
    assert prepared.text[: prepared.start] + text[prepared.start : prepared.stop] + prepared.text[prepared.stop :] == text


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("I LOVE THIS CITY!", "I love this city!"), ("WHERE ARE YOU", "Where are you?"), ("GO. I'M HERE.", "Go. I'm here."), ("I DONT KNOW.", "I don't know."),
        ("I really NEED it.", "I really need it."), ("The History Of The City", "The history of the city."), ("I saw TOM LEAVE.", "I saw TOM leave."),
        ("He left...", "He left."), ("Really?!", "Really?"), ("No!!!", "No!"), ("So… you go.", "So you go."), ("“I’m here,” he said.", '"I\'m here," he said.'),
        ("I came—late.", "I came - late."),
    ],
)  # fmt: skip
def test_case_and_signs_are_those_of_the_training_data(text, source):
    assert english(text).source == source


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("i dont know", "i don't know"), ("im here", "i'm here"), ("he cant swim", "he can't swim"), ("she wont come", "she won't come"), ("theyre late", "they're late"),
        ("its raining", "it's raining"), ("its a cat", "it's a cat"), ("lets go home", "let's go home"), ("Didnt you see?", "Didn't you see?"),
    ],
)  # fmt: skip
def test_contractions_get_their_apostrophe(text, source):
    assert english(text).source == source


@pytest.mark.parametrize(
    "text",
    [
        "the dog lost its bone", "well done", "you were late", "she is ill", "they wed in May", "the shell is white", "it is hell", "my id is lost",
        "a garden shed", "as is his wont", "he lets me go", "its meaning is clear", "we met whores",
    ],
)  # fmt: skip
def test_words_that_are_no_contractions_stay(text):
    assert english(text).source == text


def test_other_languages_get_no_english_apostrophes_and_no_french_amounts():
    other = Preparation(lambda word: 1)
    assert other("im Haus").source == "im Haus"
    assert other("Es kostet $1,299.99 am 2024-03-15.").source == "Es kostet Tom am John."


def test_a_placeholder_is_no_word_of_the_text():
    assert english("Tom and John read https://a.org.").source == "Tom and John read Jack."


def test_more_spans_than_placeholders_are_kept_too():
    text = "See " + ", ".join(f"https://a.org/{number}" for number in range(12)) + "."
    prepared = english(text)
    assert sorted(edit.content.strip() for edit in prepared.edits) == sorted(spans_in(text))


def test_labels_show_the_span_that_a_placeholder_is_read_for():
    prepared = english("It costs $1,299.99 there.")
    assert prepared.labels(["▁It", "▁costs", "▁3", "5", "0", "▁dollars", "▁there", "."]) == [
        "▁It", "▁costs", "▁$1,299.99", "…", "…", "…", "▁there", ".",
    ]  # fmt: skip


def test_a_translator_without_processing_reads_the_text_as_it_is():
    box = Translator.bundled()
    plain = Translator(box.model, box.tokenizer, processing=False)
    assert plain.prepare("I LOVE #Paris").source == "I LOVE #Paris"
