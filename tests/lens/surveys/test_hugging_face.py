"""Surveys of Hugging Face models, encoders and decoders, with padding on either kind of mask; grouped heads; and linear mixers."""

import numpy as np
import pytest
import torch

from overt.errors import InputError
from overt.lens import survey
from overt.lens.analysis.surveys.measures import ROWS
from small_surveys import WORDS, texts


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *dict.fromkeys(WORDS)]
    pieces = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pieces.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=pieces, **special)


def bert(tokenizer):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    return BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, initializer_range=0.5, **sizes)).eval()


def llama(tokenizer):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), intermediate_size=32, initializer_range=0.3, **sizes)).eval()


@pytest.mark.slow
@pytest.mark.parametrize("build", [bert, llama])
def test_padded_batches_give_what_each_text_gives_alone(build, tokenizer):
    model, some = build(tokenizer), texts(8, seed=1)
    together = survey(model, some, tokenizer=tokenizer)
    parts = [survey(model, [text], tokenizer=tokenizer) for text in some]
    counts = sum(part.counts.values().sum(0) for part in parts)
    sums = sum(part.sums.values().sum(0) for part in parts)
    assert np.array_equal(together.counts.values().sum(0), counts)
    assert np.allclose(together.sums.values().sum(0), sums, atol=2e-4)
    assert counts[ROWS.index("special by norm")].min() > 0


def test_special_tokens_are_those_of_the_tokenizer(tokenizer):
    model = bert(tokenizer)
    text = "the cat sat . the dog ran"
    from overt.lens import record

    with record(model, tokenizer=tokenizer) as recording, torch.no_grad():
        model(**tokenizer(text, return_tensors="pt"))
    result = survey(model, [text], tokenizer=tokenizer)
    for index, head in enumerate(result.heads):
        weights, value = recording[head.number, head.head].weights()[0], recording[head.number, head.head].value[0]
        assert result.measure("special").values[index] == pytest.approx(float(weights[:, [0, -1]].sum(-1).mean()), abs=1e-6)
        assert result.measure("separator").values[index] == pytest.approx(float(weights[:, [4, -1]].sum(-1).mean()), abs=1e-6)
        lengths = weights * value.norm(dim=-1)
        share = (lengths[:, [0, -1]].sum(-1) / lengths.sum(-1)).mean()
        assert result.measure("special by norm").values[index] == pytest.approx(float(share), abs=1e-6)


def test_roles_over_a_corpus_are_those_of_its_one_text(tokenizer):
    from overt.lens import record

    model, text = bert(tokenizer), "the cat sat and the cat ran and the dog sat"
    with record(model, tokenizer=tokenizer) as recording, torch.no_grad():
        model(**tokenizer(text, return_tensors="pt"))
    of_text, of_corpus = recording.roles(), survey(model, [text] * 40, tokenizer=tokenizer).roles()
    for one, other in zip(of_text, of_corpus, strict=True):
        assert one.scores.keys() == other.scores.keys()
        for name in one.scores:
            assert one.scores[name] == pytest.approx(other.scores[name], abs=1e-5), name


def test_texts_are_cut_at_what_the_model_takes(tokenizer):
    result = survey(bert(tokenizer), [" ".join(["the cat"] * 40)], tokenizer=tokenizer)
    assert (result.facts.tokens, result.facts.cut, result.facts.longest) == (32, 1, 32)


def test_a_tokenizer_of_another_vocabulary_is_refused(tokenizer):
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
    with pytest.raises(InputError, match="Expected a tokenizer of about 3000 ids"):
        survey(BertModel(BertConfig(vocab_size=3000, **sizes)), texts(3), tokenizer=tokenizer)


@pytest.mark.slow
def test_minilm_over_a_corpus_is_as_its_texts_are(minilm):
    some = [
        "The animal didn't cross the street because it was too tired.",
        "A cat.",
        "The dog ran after the cat, and the cat ran.",
    ]
    together = survey(minilm.network, some, tokenizer=minilm.tokenizer)
    alone = [survey(minilm.network, [text], tokenizer=minilm.tokenizer) for text in some]
    assert np.allclose(together.sums.values().sum(0), sum(part.sums.values().sum(0) for part in alone), atol=2e-4)
    assert together.roles()[2].role == "previous token"


def test_half_of_a_character_and_a_text_of_megabytes_are_read(tokenizer):
    from overt.lens.analysis.surveys.reading.encoding import encoder

    encode = encoder(tokenizer, 16)
    assert encode("the cat \ud83d\ude00 sat \ud83d") == encode("the cat 😀 sat \ufffd")
    long = "the cat sat on the mat . " * 200
    lengths = []

    class Counting:
        convert_ids_to_tokens = tokenizer.convert_ids_to_tokens

        def __call__(self, text, **options):
            lengths.append(len(text))
            return tokenizer(text, **options)

    assert encoder(Counting(), 16)(long) == (list(tokenizer(long, truncation=True, max_length=16)["input_ids"]), True)
    assert max(lengths) <= 64 * 16
