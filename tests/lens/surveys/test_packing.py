"""Packed texts are surveyed as each text alone is; a model that does not keep them apart reads padded batches."""

import numpy as np
import pytest
import torch

from everyday import everyday
from overt.lens import Survey, survey
from overt.lens.analysis.surveys.measures import ROWS
from overt.lens.analysis.surveys.reading.encoding import CHUNK, TextReader, chunks
from overt.lens.analysis.surveys.reading.packing import in_rows, packed
from overt.lens.analysis.surveys.reading.passes import Passes
from overt.models import LanguageModel
from small_surveys import small_model, texts

TOKENIZER = small_model()[1]
SIZES = {"vocab_size": TOKENIZER.words, "hidden_size": 32, "intermediate_size": 32, "initializer_range": 0.3}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}


def built(name, attention="sdpa", **options):
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES | {"max_position_embeddings": 64} | options)
    return getattr(transformers, f"{name}Model")._from_config(config, attn_implementation=attention).eval()


class IgnoresTexts(torch.nn.Module):
    """Takes positions and mixes all tokens of a row by one attention more, which knows of no texts."""

    def __init__(self):
        super().__init__()
        self.inner = built("Llama")

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        x = self.inner.embed_tokens(input_ids)
        x = torch.nn.functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True)[:, 0]
        return self.inner(inputs_embeds=x, attention_mask=attention_mask, position_ids=position_ids)


class LosesWindows(torch.nn.Module):
    """Has a window in which a 4-D mask is not combined, so that packed texts would be read without it."""

    def __init__(self):
        super().__init__()
        self.inner = built("Bert")

    def forward(self, input_ids, attention_mask, position_ids=None):
        if attention_mask.ndim == 2:
            near = (torch.arange(input_ids.shape[1])[:, None] - torch.arange(input_ids.shape[1])).abs() < 24
            attention_mask = near[None, None] & attention_mask.bool()[:, None, None]
        return self.inner(input_ids, attention_mask=attention_mask, position_ids=position_ids)


def language_model(positions):
    torch.manual_seed(0)
    model = LanguageModel(TOKENIZER.words, width=16, heads=2, layers=2, feed_forward=32, positions=positions).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


MODELS = {
    "Llama": (lambda: built("Llama", num_key_value_heads=2), "position_ids"),
    "Llama, eager": (lambda: built("Llama", "eager"), "position_ids"),
    "GPT-2": (lambda: built("GPT2", n_embd=32, n_layer=2, n_head=4, n_positions=64), "position_ids"),
    "Mistral with a window": (lambda: built("Mistral", sliding_window=5, num_key_value_heads=2), "position_ids"),
    "BERT": (lambda: built("Bert"), "mask"),
    "BERT, eager": (lambda: built("Bert", "eager"), "mask"),
    "sinusoidal": (lambda: language_model("sinusoidal"), "documents"),
    "rotary": (lambda: language_model("rotary"), "documents"),
    "ALiBi": (lambda: language_model("alibi"), "documents"),
    "a row is one text": (IgnoresTexts, None),
    "a window that a mask replaces": (LosesWindows, None),
    "ALiBi by a padding mask": (lambda: built("Bloom", "eager", n_layer=2, n_head=4), None),
    "a state": (
        lambda: built(
            "Qwen3Next", num_key_value_heads=2, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16, head_dim=8,
            shared_expert_intermediate_size=16, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8,
            linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"],
        ),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.few_cases(4)
def test_how_a_model_keeps_packed_texts_apart_is_found(name):
    build, packing = MODELS[name]
    assert Passes(TextReader(build(), TOKENIZER, 64)).packing == packing


# Texts packed and not packed; the other ways of keeping texts apart are slow. The counts of 10 texts are not 0 for any measure.
@pytest.mark.parametrize("name", everyday(MODELS, "Llama", "a row is one text"))
@pytest.mark.few_cases(1)
def test_texts_together_give_what_each_gives_alone(name):
    model, some = MODELS[name][0](), texts(10, seed=1, longest=40)
    together = survey(model, some, tokenizer=TOKENIZER, longest=64)
    parts = [survey(model, [text], tokenizer=TOKENIZER, longest=64) for text in some]
    assert np.array_equal(together.counts.values().sum(0), sum(part.counts.values().sum(0) for part in parts))
    sums, counts = sum(part.sums.values().sum(0) for part in parts), together.counts.values().sum(0)
    assert np.allclose(together.sums.values().sum(0) / counts.clip(1), sums / counts.clip(1), atol=1e-5)
    assert counts[ROWS.index("induction")].min() > 0
    assert np.array_equal(together.pairs, sum(part.pairs for part in parts))


@pytest.mark.slow
def test_shards_of_packed_texts_are_the_whole_to_the_bit():
    model, corpus = built("Llama"), texts(2 * CHUNK + 40, longest=30)
    whole = survey(model, corpus, tokenizer=TOKENIZER, longest=64)
    parts = [survey(model, corpus, tokenizer=TOKENIZER, longest=64, shard=(number, 3)) for number in range(3)]
    merged = Survey.merged(parts[::-1])
    for name in ("sums", "counts", "profile"):
        assert np.array_equal(getattr(merged, name).high, getattr(whole, name).high)
        assert np.array_equal(getattr(merged, name).low, getattr(whole, name).low)


def test_rows_are_full_and_hold_each_text_once():
    reader = TextReader(language_model("rotary"), TOKENIZER, 512)
    reads = [reader.encode(text)[0] for text in texts(256, longest=120)]
    passes = [*packed([len(ids) for ids in reads], 1024)]
    assert sorted(index for each in passes for index in each.texts) == [*range(256)]
    size = 0
    for each in passes:
        ids, positions, documents = in_rows(
            [(reads[index], row, start) for index, row, start in zip(each.texts, each.rows, each.starts, strict=True)],
            each.width,
        )
        assert ids.numel() <= 1024 or len(ids) == 1
        size += ids.numel()
        for number, (index, row, start) in enumerate(zip(each.texts, each.rows, each.starts, strict=True)):
            inside = documents[row] == number
            assert ids[row, inside].tolist() == reads[index]
            assert positions[row, inside].tolist() == [*range(len(reads[index]))]
            assert int(inside.int().argmax()) == start
    assert size <= 1.05 * sum(map(len, reads))


def test_a_chunk_is_read_in_fewer_tokens_than_padded_batches_have():
    models = language_model("rotary"), built("Bloom", "eager", n_layer=2, n_head=4)
    packs, pads = (Passes(TextReader(model, TOKENIZER, 512)) for model in models)
    (chunk,) = chunks(texts(256, longest=120))
    sizes = [sum(each.ids.numel() for each in passes.split(passes.reader.read(chunk))) for passes in (packs, pads)]
    assert sizes[0] < sizes[1]
