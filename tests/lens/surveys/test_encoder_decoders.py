"""Of an encoder–decoder the encoder is measured, and said to be: a decoder reads a text of its own, in Bart's family moved by one token."""

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from overt.errors import InputError
from overt.lens import find_heads, probe, survey

NOUNS = ["cat", "dog", "cow", "hen"]
WORDS = ["[UNK]", "[PAD]", *NOUNS, "the", "saw", "and", "it", "slept", *(f"w{number}" for number in range(9))]
TEXTS = [f"the {first} saw the {other} and it slept" for first in NOUNS for other in NOUNS if first != other]
BART = {
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 48,
    "init_std": 0.5,
}
KINDS = {
    "T5": {"d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
    "Bart": BART,
    "Marian": BART,
    "MBart": BART,
    "Pegasus": BART,
}


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    torch.manual_seed(0)
    config = getattr(transformers, f"{request.param}Config")(
        vocab_size=len(WORDS), d_model=16, pad_token_id=1, decoder_start_token_id=1, **KINDS[request.param]
    )
    return getattr(transformers, f"{request.param}Model")(config).eval()


def test_heads_are_those_of_the_encoder(model, tokenizer):
    pairs = [(text, "it", text.split()[1], [text.split()[4]]) for text in TEXTS]
    whole, encoder = (find_heads(part, pairs, tokenizer=tokenizer) for part in (model, model.get_encoder()))
    assert whole.notes[0].startswith("Only the encoder is measured")
    assert [head[2:] for head in whole.heads] == [head[2:] for head in encoder.heads]
    assert len(whole.heads) == 4
    assert all(head.layer in dict(model.named_modules()) for head in whole.heads)


def test_a_survey_is_that_of_the_encoder(model, tokenizer, tmp_path):
    whole, encoder = (survey(part, TEXTS, tokenizer=tokenizer) for part in (model, model.get_encoder()))
    assert np.array_equal(whole.sums.values(), encoder.sums.values())
    assert len(whole.heads) == 4
    assert all(head.layer in dict(model.named_modules()) for head in whole.heads)
    assert [reason for name, reason in whole.missing if name == "decoder"] == [
        "only the encoder is measured, because the decoder reads a text of its own"
    ]
    page = whole.page(model=model, tokenizer=tokenizer)
    assert "only the encoder is measured" in page


def test_a_probe_is_that_of_the_encoder(model, tokenizer):
    whole, encoder = (probe(part, tokenizer, length=40, sequences=2) for part in (model, model.get_encoder()))
    assert [head.scores for head in whole.heads] == [head.scores for head in encoder.heads]
    assert dict(whole.missing)["decoder"].startswith("only the encoder is measured")


def test_an_encoder_that_reads_sound_is_refused(tokenizer):
    sizes = {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
    }
    sizes |= {"vocab_size": len(WORDS), "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 3}
    model = transformers.WhisperModel(transformers.WhisperConfig(encoder_ffn_dim=32, decoder_ffn_dim=32, **sizes))
    with pytest.raises(InputError, match="a model that reads one text, got a WhisperModel, which reads input_features"):
        survey(model, TEXTS, tokenizer=tokenizer)
