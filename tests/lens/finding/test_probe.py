"""The probe of random words: a circuit that was built is found, what only looks like one is not, and bad input is refused."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

import overt
from overt.errors import InputError, KindError
from overt.lens import probe
from overt.lens.analysis import probing

WORDS = 300
SHARP = 60.0


class Circuit(nn.Module):
    """An induction circuit of two layers by hand: the first attends to the previous position, the second to where its word came before.

    Layer 0 writes each position's previous word beside it; layer 1 compares its word with that (composition through the keys).
    """

    def __init__(self, causal=True):
        super().__init__()
        self.causal = causal

    def forward(self, ids):
        words = functional.one_hot(ids, WORDS).float()[:, None]  # (B, 1, n, WORDS)
        positions = torch.eye(ids.shape[1]).expand(len(ids), 1, -1, -1)
        before = self.attend(positions, positions.roll(1, -1), words)
        return self.attend(words, before, words)

    def attend(self, query, key, value):
        return functional.scaled_dot_product_attention(SHARP * query, key, value, is_causal=self.causal, scale=1.0)


class Fixed(nn.Module):
    """One head that always attends `distance` positions back."""

    def __init__(self, distance):
        super().__init__()
        self.distance = distance

    def forward(self, ids):
        positions = torch.eye(ids.shape[1]).expand(len(ids), 1, -1, -1)
        query, key = SHARP * positions, positions.roll(self.distance, -1)
        return functional.scaled_dot_product_attention(query, key, key, is_causal=True, scale=1.0)


@pytest.mark.parametrize("causal", [True, False])
def test_a_circuit_built_by_hand_is_found(causal):
    result = probe(Circuit(causal), vocabulary=WORDS, sequences=8)
    score = result[1, 0].scores["induction"]
    # Where nothing is masked, half of the weight is on the next position: it stands behind this word as well.
    assert score.share == pytest.approx(1 if causal else 0.5, abs=0.02)
    assert score.above_chance
    assert score.chance < 0.1
    assert result[0, 0].role == "previous token"
    assert not result[0, 0].scores["induction"].above_chance
    if causal:
        assert "induction" in str(result).splitlines()[3]
        assert str(result).splitlines()[5].endswith("  induction")


def test_a_fixed_distance_passes_for_induction_only_where_the_period_is_fixed(monkeypatch):
    """19 positions back is where a block of 20 words stood before, with its next word."""
    varying = probe(Fixed(19), vocabulary=WORDS).heads[0]
    assert varying.scores["induction"].share < 0.15
    assert varying.role == ""
    monkeypatch.setattr(probing, "_distances", lambda length: (20, 20))
    score = probe(Fixed(19), vocabulary=WORDS).heads[0].scores["induction"]
    assert score.share > 0.9
    assert score.low > 0.5  # with equal weights as the only baseline it would be an induction head
    assert not score.above_chance  # but its mean weight at that distance explains all of it
    assert probe(Circuit(), vocabulary=WORDS)[1, 0].role == "induction"  # a true one does not, in a block's first copy


def test_a_head_of_the_earlier_copy_is_a_duplicate_token_head():
    class Copies(nn.Module):
        def forward(self, ids):
            words = functional.one_hot(ids, WORDS).float()[:, None]
            mask = torch.ones(ids.shape[1], ids.shape[1]).tril(-1).bool()
            return functional.scaled_dot_product_attention(SHARP * words, words, words, attn_mask=mask, scale=1.0)

    assert [head.role for head in probe(Copies(), vocabulary=WORDS, sequences=8).heads] == ["duplicate token"]


def test_the_same_seed_gives_the_same_numbers_and_the_model_is_as_before():
    torch.manual_seed(0)
    model = overt.models.LanguageModel(60, width=16, heads=2, layers=2, feed_forward=32, dropout=0.5).train()
    model.body.layers[1].eval()
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    first, second, other = (probe(model, sequences=2, length=64, seed=seed) for seed in (0, 0, 1))
    assert first.heads == second.heads
    assert first[0, 1].scores == second[0, 1].scores != other[0, 1].scores
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(head.role for head in first.heads)


def test_texts_are_run_in_parts_with_the_same_result(monkeypatch):
    whole = probe(Circuit(), vocabulary=WORDS, sequences=4, length=64)
    monkeypatch.setattr(probing, "_SCORES_TOGETHER", 1)
    parts = probe(Circuit(), vocabulary=WORDS, sequences=4, length=64)
    for one, other in zip(whole.heads, parts.heads, strict=True):
        for name, score in one.scores.items():
            assert other.scores[name].share == pytest.approx(score.share, abs=1e-6)
            assert (other.scores[name].low, other.scores[name].queries) == (pytest.approx(score.low, abs=1e-6), score.queries)


def test_a_classifier_is_probed_and_its_pool_is_named_as_not_measured():
    model = overt.models.Classifier(80, 3, width=16, encoder="transformer", heads=2, pool="attention").eval()
    result = probe(model, sequences=2, length=64)
    assert result.heads
    assert ("pool", "its queries and keys are not the tokens of the text") in [(name[:4], why) for name, why in result.missing]


@pytest.fixture(scope="module")
def hugging_face():
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    special = {"bos_token": "<s>", "cls_token": "<c>", "sep_token": "<e>", "pad_token": "<p>", "unk_token": "<u>"}
    words = {word: number for number, word in enumerate([*special.values(), *(f"w{number}" for number in range(95))])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<u>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **special)
    sizes = {"vocab_size": 100, "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    gpt = transformers.GPT2Config(vocab_size=100, n_embd=32, n_head=2, n_layer=2, n_positions=64)
    bert = transformers.BertConfig(**sizes, intermediate_size=32, max_position_embeddings=128)
    return tokenizer, transformers.GPT2LMHeadModel(gpt), transformers.BertForMaskedLM(bert)


def test_causal_and_masked_models_of_hugging_face_are_probed_without_special_words(hugging_face):
    tokenizer, gpt, bert = hugging_face
    ids = []
    for model in (gpt, bert):
        hook = model.get_input_embeddings().register_forward_hook(lambda module, inputs, output: ids.append(inputs[0]))
        result = probe(model, tokenizer, sequences=3)
        hook.remove()
        assert len(result.heads) == 4
        assert result.missing == ()
    assert ids[0].shape == (3, 64)  # as many as the model has positions, with the token at the beginning
    assert ids[1].shape == (3, 128)
    for each in ids:
        assert set(each[:, 0].tolist()) == {0}
        assert set(each[:, -1].tolist()) == {2}
        assert int(each[:, 1:-1].min()) >= 5


def test_the_words_are_those_of_any_tokenizer_that_a_recording_takes(hugging_face):
    tokenizer, gpt, _ = hugging_face
    inner = tokenizer.backend_tokenizer
    learned = overt.learn.Tokenizer.learn(["the small cats sat on the mats", "all of them like the sun"], merges=40)
    ours = overt.models.LanguageModel(learned.words, width=16, heads=2, layers=1, feed_forward=16)
    for model, words in ((gpt, inner), (gpt, SimpleNamespace(tokenizer=inner)), (ours, learned)):
        ids = []
        probe(model, words, sequences=1, length=40, run=lambda each, model=model, ids=ids: (ids.append(each), model(each))[1])
        assert int(ids[-1].min()) >= 4


def test_bad_input_is_refused_in_sentences(hugging_face):
    tokenizer, gpt, _ = hugging_face
    small = overt.models.LanguageModel(150, width=16, heads=2, layers=1, feed_forward=32)
    learned = overt.models.LanguageModel(150, width=16, heads=2, layers=1, feed_forward=32, positions="learned", longest=40)
    with pytest.raises(InputError, match=r"a tokenizer of the model's vocabulary, 150 words, got a tokenizer of 100"):
        probe(small, tokenizer)
    with pytest.raises(InputError, match=r"texts of at least 32 words.*got length=20"):
        probe(small, length=20)
    with pytest.raises(InputError, match=r"texts of at most 40 words, for which the model has positions, got length=41"):
        probe(learned, length=41)
    with pytest.raises(InputError, match=r"at most the 150 words of the model, got vocabulary=200"):
        probe(small, vocabulary=200)
    with pytest.raises(InputError, match=r"the size of the model's vocabulary, got Circuit.*pass vocabulary="):
        probe(Circuit())
    with pytest.raises(InputError, match=r"a model that takes token ids.*got TransformerEncoderLayer, which raised"):
        probe(nn.TransformerEncoderLayer(8, 2, batch_first=True), vocabulary=50)
    with pytest.raises(InputError, match=r"a vocabulary of at least 32 words"):
        probe(Circuit(), vocabulary=10)
    with pytest.raises(InputError, match=r"a model with self-attention over its tokens, got Embedding"):
        probe(nn.Embedding(50, 4))
    with pytest.raises(KindError, match=r"a tokenizer: of Hugging Face, of the package tokenizers, of overt.learn.*got str"):
        probe(gpt, "gpt2")
    with pytest.raises(InputError, match=r"a head of the calls 0 to 0 of LanguageModel, got 3, head 0"):
        probe(small, sequences=1, length=64)[3, 0]


def test_another_way_to_run_the_model_is_taken():
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.circuit = Circuit()

        def forward(self, batch):
            return self.circuit(batch["ids"])

    model = Nested()
    result = probe(model, vocabulary=WORDS, sequences=2, run=lambda ids: model({"ids": ids}))
    assert result.heads[1].role == "induction"
