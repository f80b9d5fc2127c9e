"""What a tokenizer says of the tokens, on the page: words are read, pieces are in tooltips, and the text is the title."""

import torch
import transformers

import overt
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
