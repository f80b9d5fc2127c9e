"""What a tokenizer says of the tokens, on the page: words are read, pieces are in tooltips, and the text is the title."""

import re

import pytest
import torch
import transformers

import overt
from overt.explain.encoded import Encoded
from reading_pages import multi_head
from tokenizers_of_all_kinds import TEXT, byte_level, fast

WORDS = "[...document.querySelectorAll('.part bdi')].map((each) => each.textContent)"
TITLES = "[...document.querySelectorAll('.part bdi')].map((each) => each.title)"


def test_a_person_reads_words_and_finds_pieces_in_tooltips(opened):
    config = transformers.GPT2Config(
        vocab_size=byte_level().get_vocab_size(), n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2
    )
    model, ids = transformers.GPT2Model(config).eval(), byte_level().encode(TEXT + "😁").ids
    with torch.no_grad(), overt.lens.record(model, tokenizer=fast(byte_level())) as recording:
        model(input_ids=torch.tensor([[1, *ids, 2]]))
    page = opened(recording, "head=0.1&batch=0&token=5")
    tokens = recording.tokens
    assert page.ask(WORDS) == tokens
    assert page.ask("document.title") == f"{TEXT}😁"
    assert page.ask("document.querySelector('.part').textContent") == f"<s> {TEXT}{''.join(tokens[-5:-1])} </s>"
    titles = page.ask(TITLES)
    assert titles[0] == "token 0: <s>, special token"
    assert titles[2] == f"token 2: {tokens[2]}, piece {tokens[2].piece}"
    shown = page.ask("document.body.innerText")
    assert not any(mark in shown for mark in ("Ġ", "âĢĻ", "▁"))
    assert page.complaints == []


# The widths of a word's tokens, and of the same letters in one run of text of the same font.
WIDTHS = """(() => {
  const part = document.querySelector(".part");
  const tokens = [...part.querySelectorAll("[data-token]")].slice(1, 6);
  const whole = part.appendChild(Object.assign(document.createElement("span"), { textContent: tokens.map((each) => each.textContent).join("") }));
  const alone = part.appendChild(document.createElement("div"));
  tokens.forEach((each) => alone.append(Object.assign(document.createElement("bdi"), { textContent: each.textContent, style: "padding: 0" }), " "));
  const width = (nodes) => nodes.reduce((sum, each) => sum + each.getBoundingClientRect().width, 0);
  const widths = [width(tokens), width([whole]), width([...alone.children])];
  whole.remove(), alone.remove();
  return widths;
})()"""


def test_arabic_letters_join_over_the_edges_of_tokens_and_the_line_runs_to_the_left(opened):
    tokens = ["[CLS]", "م", "##ر", "##ح", "##ب", "##ا", "بال", "##عالم", "[SEP]"]
    _, recording = multi_head(len(tokens), tokens=tokens)
    page = opened(recording, "head=0.0&batch=0&token=3")
    joined, whole, apart = page.ask(WIDTHS)
    assert abs(joined - whole) < 1
    assert apart > whole + 3
    lefts = page.ask("[...document.querySelectorAll('.part [data-token]')].map((each) => each.getBoundingClientRect().left)")
    assert lefts == sorted(lefts, reverse=True)
    assert page.ask("document.querySelector('.part').textContent") == "[CLS] مرحبا بالعالم [SEP]"
    page.ask("void document.querySelector('[data-token=\"4\"]').click()")
    assert page.ask("document.querySelector('.own').textContent") == "ب"
    assert page.complaints == []


def test_an_unknown_word_is_shown_marked_and_explained(opened):
    encoded = Encoded.from_pieces("a 🦊 b", ["a", "[UNK]", "b"], [1, 100, 2], [(0, 1), (2, 3), (4, 5)], [])
    _, recording = multi_head(3, tokens=encoded.tokens)
    page = opened(recording)
    assert page.ask(WORDS) == ["a", "🦊", "b"]
    assert page.ask("document.querySelectorAll('[data-unknown]').length") == 1
    assert page.ask(TITLES)[1] == "token 1: 🦊, which the vocabulary lacks: the model reads [UNK]"
    assert "The vocabulary lacks “🦊”: the model reads [UNK] there" in page.ask(
        "document.querySelector('.unknown').textContent"
    )


@pytest.mark.slow
def test_chinese_has_no_spaces_between_its_tokens(opened):
    text = "我爱北京 ok"
    encoded = Encoded.from_pieces(
        text, ["我", "爱", "北", "京", "ok"], [1, 2, 3, 4, 5], [(0, 1), (1, 2), (2, 3), (3, 4), (5, 7)], []
    )
    _, recording = multi_head(5, tokens=encoded.tokens)
    assert opened(recording).ask("document.querySelector('.part').textContent") == text


FIND = "document.querySelector('.find input')"


def test_a_token_is_searched_for_and_found_over_pieces_too(opened):
    tokens = ["the", "token", "##ization", "of", "the", "text", "</script>"]
    _, recording = multi_head(len(tokens), tokens=tokens)
    page = opened(recording, "head=0.0&batch=0&token=3")
    matches = "[...document.querySelectorAll('.match')].map((each) => Number(each.dataset.token))"
    page.press("/")
    page.call("Input.insertText", text="the")
    assert page.ask(matches) == [0, 4]
    page.press("Enter", "Enter")
    assert page.ask("document.querySelector('.own').dataset.token") == "4"
    assert page.ask("document.querySelector('.find span').textContent") == "2 of 2"
    page.ask(f"void ({FIND}.value = '')")
    page.call("Input.insertText", text="tokeniz")
    assert page.ask(matches) == [1]
    page.press("Escape")
    assert page.ask(matches) == []
    assert page.complaints == []


@pytest.mark.slow
def test_arcs_are_there_where_a_narrow_window_breaks_the_line(opened):
    words = re.findall(r"\w+", "The animal did not cross the street because it was far too tired for that")
    _, recording = multi_head(len(words), tokens=words)
    for width, lines in ((400, 3), (1400, 1)):
        page = opened(recording, "head=0.0&batch=0&token=8", width=width, height=900)
        tops = page.ask(
            "[...document.querySelectorAll('[data-token]')].map((each) => Math.round(each.getBoundingClientRect().top / 10))"
        )
        assert len(set(tops)) >= lines
        assert page.ask("document.querySelectorAll('.texts path').length") > 2
        box = "document.querySelector('.texts').getBoundingClientRect()"
        assert page.ask(f"""[...document.querySelectorAll('.texts path')].every((each) => {{
            const path = each.getBoundingClientRect(), box = {box};
            return path.width > 1 && path.left >= box.left - 3 && path.right <= box.right + 3 && path.top >= box.top - 3; }})""")
