"""Which word is chosen when the sentence changes: the reader's own, as long as it is there, and never a special token."""

import pytest
from live_page import TIRED

WORD = "viewer.recording.heads[0].queries[viewer.store.get().token]"
SENTENCES = [
    "Rivers freeze slowly, but lakes freeze from the shore.",
    "A nurse called the doctor before she left.",
    "Nine boats lay in the harbour.",
    "He said so, and then some.",
    "Go!",
]


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


@pytest.mark.slow
def test_it_is_the_content_word_of_the_strongest_link(written, opened):
    live = opened(written).ready()
    for text in SENTENCES[:3]:
        live.type(text)
        words = live.page.ask("viewer.recording.heads[viewer.store.get().head].queries")
        weights = live.page.ask(
            "(() => { const head = viewer.recording.heads[viewer.store.get().head]; return head.queries.map((_, i) => Array.from(head.weightsRow(i))); })()"
        )
        plain = [i for i, word in enumerate(words) if word[0].isalpha()]
        functions = {"but", "from", "the", "a", "she", "in", "before"} - {"she", "before"}
        best = max((i for i in plain if words[i] not in functions), key=lambda i: max(weights[i][j] for j in plain if j != i))
        assert live.page.ask(WORD) == words[best]
