"""Which word is chosen when the sentence changes: the reader's own, as long as it is there, and never a special token."""

import pytest
from live_page import TIRED

from overt.explain.opening import FUNCTION, PRONOUNS, opening
from overt.explain.recipes.qkv import read

WORD = "viewer.recording.heads[0].queries[viewer.store.get().token]"
SENTENCES = [
    "Rivers freeze slowly, but lakes freeze from the shore.",
    "A nurse called the doctor before she left.",
    "Nine boats lay in the harbour.",
    "He said so, and then some.",
    "Go!",
]


@pytest.mark.slow
def test_a_word_that_was_chosen_is_chosen_again_when_it_comes_back(written_little, opened):
    live = opened(written_little).ready()
    assert live.page.ask(WORD) == "it"
    for text in ("Cats sleep.", "Cats sleep because it rains.", "T", TIRED):
        live.type(text)
        assert live.page.ask(WORD) == "it" or "it" not in text.split()
    assert live.page.ask(WORD) == "it"
    live.page.ask("viewer.store.set({ token: viewer.recording.heads[0].queries.indexOf('animal') })")
    live.type("Cats sleep.")
    live.type("Near the street it saw an animal.")
    assert live.page.ask(WORD) == "animal"


def test_the_page_itself_chooses_no_special_token(written_little, opened):
    live = opened(written_little).ready()
    for text in SENTENCES:
        live.type(text)
        head = "viewer.recording.heads[viewer.store.get().head]"
        assert not live.page.ask(f"{head}.queries.tokenizer.special[viewer.store.get().token]")
        assert any(letter.isalpha() for letter in live.page.ask(WORD))


def test_a_special_token_that_the_reader_chose_stays_chosen(written_little, opened):
    live = opened(written_little).ready()
    live.page.ask("viewer.store.set({ token: 0 })")
    live.type("Cats sleep.")
    assert live.page.ask(WORD) == "[CLS]"


LEAD = """(() => {
  const { head: index, token } = viewer.store.get();
  const head = viewer.recording.heads[index];
  const row = Array.from(head.weightsRow(token));
  const key = row.indexOf(Math.max(...row));
  return [head.queries[token], head.keys[key], head.keys.tokenizer.special[key]];
})()"""


@pytest.mark.parametrize(
    "text", [*SENTENCES[:3], "Old bridges sway when lorries pass.", "Whoever wins, the people will cheer loudly!"]
)
@pytest.mark.few_cases(2)
def test_its_strongest_link_leads_to_another_content_word(written_little, opened, text):
    live = opened(written_little).ready()
    live.type(text)
    word, key, special = live.page.ask(LEAD)
    assert not special
    assert key.isalpha()
    assert word != key
    assert not {word, key} & FUNCTION
    assert key not in PRONOUNS


def test_a_head_that_the_reader_chose_stays_chosen(written_little, opened):
    live = opened(written_little).ready()
    live.page.ask("viewer.store.set({ head: 3 })")
    for text in SENTENCES:
        live.type(text)
        assert live.page.ask("viewer.store.get().head") == 3


def test_a_sentence_from_right_to_left_runs_to_the_left(written_little, opened):
    live = opened(written_little, width=400, height=900).ready()
    live.type("القط نام")
    lefts = live.page.ask(
        "[...document.querySelectorAll('.part [data-token]')].map((token) => token.getBoundingClientRect().left)"
    )
    assert len(lefts) > 3
    assert lefts[1] > lefts[-2]
    assert live.page.ask("document.documentElement.scrollWidth <= innerWidth")
    assert live.page.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("text", SENTENCES)
def test_it_is_the_word_that_python_opens_with(written, opened, minilm, text):
    """The head of the first picture keeps its place, if a word of it has such a link."""
    live = opened(written).ready()
    live.type(text)
    layer, head = live.page.ask("(({ number, head }) => [number, head])(viewer.recording.heads[viewer.store.get().head])")
    layers = read(minilm, text).layers
    encoded = minilm.encode(text)
    expected = opening([layers[layer][head]], encoded, encoded)
    if expected is None:
        assert not any(opening(heads, encoded, encoded) for heads in layers)
    else:
        assert live.page.ask("viewer.store.get().token") == expected.word.index
