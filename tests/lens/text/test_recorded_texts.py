"""The token ids that a model reads are recorded, and become words wherever a person reads."""

import pytest
import torch
import transformers
from torch import nn

import overt
from families import FAMILIES
from overt.errors import InputError
from tokenizers_of_all_kinds import TEXT, byte_level, fast, word_piece

_SMALL = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}


def gpt2(**settings):
    torch.manual_seed(0)
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.GPT2Config(vocab_size=byte_level().get_vocab_size(), **ids, **_SMALL, **settings)
    return transformers.GPT2LMHeadModel(config).eval()


def record(model, tokenizer, *texts, **options):
    inputs = fast(byte_level())(list(texts), padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad(), overt.lens.record(model, tokenizer=tokenizer, **options) as recording:
        model(**inputs)
    return recording


def test_words_in_place_of_pieces():
    recording = record(gpt2(), byte_level(), TEXT)
    assert recording.texts == [TEXT]
    [words] = recording[1, 0].key_tokens
    assert " ".join(words[:2]) == "The animal"
    assert [word.piece for word in words] == byte_level().encode(TEXT).tokens
    assert recording[1, 0].query_tokens == [words]


def test_a_batch_has_the_words_of_each_sequence_with_padding():
    recording = record(gpt2(), fast(byte_level()), TEXT, "The street")
    first, second = recording[0, 0].key_tokens
    assert len(first) == len(second)
    assert [word.padding for word in second][:3] == [False, False, True]
    assert recording.texts == [TEXT, "The street"]


@pytest.mark.parametrize("keep", ["qkv", "summary"])
def test_a_tokenizer_may_come_later_and_after_loading(tmp_path, keep):
    recording = record(gpt2(), None, TEXT, keep=keep)
    assert recording.tokens is None
    assert recording.texts == []
    recording.save(tmp_path / "without.safetensors")
    loaded = overt.lens.load(tmp_path / "without.safetensors")
    loaded.tokenizer(byte_level())
    assert loaded.texts == [TEXT]
    loaded.save(tmp_path / "with.safetensors")
    read_back = overt.lens.load(tmp_path / "with.safetensors")
    assert read_back.tokens == loaded.tokens
    assert [token.piece for token in read_back[0, 0].key_tokens[0]] == [token.piece for token in loaded[0, 0].key_tokens[0]]
    assert len(read_back.roles()) == 4


def test_a_summary_measures_its_roles_with_the_words(tmp_path):
    summary, whole = (record(gpt2(), byte_level(), TEXT, keep=keep) for keep in ("summary", "qkv"))
    for one, other in zip(summary.roles(), whole.roles(), strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-4)
    summary.save(tmp_path / "summary.safetensors")
    assert overt.lens.load(tmp_path / "summary.safetensors").roles() == summary.roles()


def test_steps_of_generation_have_the_words_of_all_keys():
    model = gpt2()
    inputs = fast(byte_level())(TEXT, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad(), overt.lens.record(model, tokenizer=byte_level()) as recording:
        written = model.generate(**inputs, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    last = recording.passes[-1][0, 1]
    assert [word.id for word in last.key_tokens[0]] == written[0, :-1].tolist()
    assert [word.id for word in last.query_tokens[0]] == written[0, -2:-1].tolist()


@pytest.mark.parametrize("keep", ["qkv", "summary"])
@pytest.mark.parametrize("beams", [{}, {"num_beams": 3, "num_return_sequences": 3}], ids=["greedy", "beams"])
def test_each_sequence_of_a_batch_has_the_words_that_it_was_written_with(beams, keep):
    model, tokenizer = gpt2(), fast(byte_level())
    tokenizer.padding_side = "left"
    inputs = tokenizer([TEXT, "The street"], padding=True, return_tensors="pt", return_token_type_ids=False)
    steps = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "return_dict_in_generate": True}
    with torch.no_grad(), overt.lens.record(model, tokenizer=tokenizer, keep=keep) as recording:
        output = model.generate(**inputs, **steps, **beams)
    last = output.beam_indices[:, 4].tolist() if beams else [0, 1]  # the beams of the last pass that were returned
    text = output.sequences[:, :-1]
    expected = [[tokenizer.decode(number).strip() for number in ids] for ids in text.tolist()]
    head, step = recording[1, 1], recording.passes[-1][1, 1]
    for words in (head.query_tokens, head.key_tokens, recording.tokens, step.key_tokens):
        assert [[word.id for word in words[row]] for row in last] == text.tolist()
    assert [[word for word in head.key_tokens[row] if word.isascii()] for row in last] == [
        [word for word in sentence if word.isascii()] for sentence in expected
    ]
    assert [step.query_tokens[row][0].id for row in last] == text[:, -1].tolist()
    assert torch.equal(recording.passes[-1].token_ids()[last], text[:, -1:])


def test_virtual_tokens_before_a_text_take_no_words_of_later_ones():
    from overt.lens.text.texts import Lookup, Texts

    texts = Texts([Lookup(number, "", 0, 60, torch.tensor([ids])) for number, ids in enumerate([[3, 4], [5], [6]])])
    texts.attach(numbers(60))
    assert (
        texts.tokens_of_call("layer", 0, 1, 4, other=False) is None
    )  # two keys of a trained prefix and the two of the first pass


def test_sequences_that_continue_others_have_their_words():
    from overt.lens.text.texts import Lookup, Texts

    steps = [[[3, 4], [5, 6]], [[7], [8]], [[9], [10]]]
    texts = Texts([Lookup(number, "", 0, 60, torch.tensor(ids)) for number, ids in enumerate(steps)], reordered={2: (1, 1)})
    texts.attach(numbers(60))
    read = texts.tokens_of_call("layer", 2, 2, 4, other=False)
    assert [[token.id for token in sentence] for sentence in read] == [[5, 6, 8, 9], [5, 6, 8, 10]]


@pytest.mark.parametrize("family", [each for each in FAMILIES if each.kind == "both"], ids=lambda each: each.name)
def test_both_texts_of_an_encoder_and_a_decoder(family):
    model, inputs = family.build(), family.inputs(None)
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(**inputs)
    assert recording.tokens is None
    read, written = inputs["input_ids"].tolist(), inputs["decoder_input_ids"].tolist()
    recording.strings.texts.attach(numbers(60))
    for call in recording.calls:
        queries, keys = ids_of(recording, call)
        cross, decoder = call.queries != call.keys, call.queries == len(written[0])
        assert (queries, keys) == (written if decoder else read, read if cross or not decoder else written)


def numbers(size):
    """A vocabulary whose words are the numbers of its ids."""
    from overt.lens.text.vocabulary import Entry, Vocabulary

    return Vocabulary(size, None, True, lambda number: Entry(str(number), f" {number}".encode(), False))


def ids_of(recording, call):
    sides = recording.strings.query_words(call), recording.strings.key_words(call)
    return [None if words is None else [[token.id for token in sentence] for sentence in words] for words in sides]


class Translator(nn.Module):
    """A model of torch alone: two texts, positions in a table of their own, and kinds of tokens."""

    def __init__(self, width=16):
        super().__init__()
        self.source, self.target = nn.Embedding(40, width), nn.Embedding(50, width)
        self.positions, self.kinds = nn.Embedding(64, width), nn.Embedding(2, width)
        self.body = nn.Transformer(width, 2, 1, 1, 16, batch_first=True)

    def forward(self, source, target):
        count = torch.arange(source.shape[1])
        source = self.source(source) + self.positions(count) + self.kinds(torch.zeros_like(count))
        return self.body(source, self.target(target) + self.positions(torch.arange(target.shape[1])))


@pytest.mark.parametrize("lengths", [(7, 5), (6, 6)])
def test_a_model_of_torch_alone(lengths):
    source, target = (torch.randint(0, 40, (2, length)) for length in lengths)
    model = Translator().eval()
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(source, target)
    recording.strings.texts.attach(numbers(45))
    sides = [ids_of(recording, call) for call in recording.calls]
    read, written = source.tolist(), target.tolist()
    assert sides == [[read, read], [written, written], [written, read]]


def test_a_sound_has_no_words():
    family = next(each for each in FAMILIES if each.kind == "sound")
    model, inputs = family.build(), family.inputs(None)
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(**inputs)
    recording.strings.texts.attach(numbers(60))
    encoder = next(call for call in recording.calls if "decoder" not in call.layer)
    assert ids_of(recording, encoder) == [None, None]


def test_separators_are_the_special_tokens_but_the_first():
    config = transformers.BertConfig(
        vocab_size=45, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model, tokenizer = transformers.BertModel(config).eval(), fast(word_piece())
    ids = torch.tensor([[1, *word_piece().encode(TEXT).ids, 2]])
    with torch.no_grad(), overt.lens.record(model, tokenizer=tokenizer) as recording:
        model(input_ids=ids)
    weights = recording[0, 0].weights()[0]
    role = recording.roles()[0]
    assert role.scores["separator"] == pytest.approx(float(weights[:, -1].mean()), abs=1e-5)


def test_a_tokenizer_of_another_vocabulary_is_refused_before_the_model_runs():
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=5000, bos_token_id=1, eos_token_id=2, **_SMALL))
    recording = overt.lens.record(model, tokenizer=word_piece())
    with pytest.raises(InputError, match=r"Expected a tokenizer of about 5000 ids, the rows of.*got one of 45"):
        recording.__enter__()


def test_ids_that_the_tokenizer_does_not_have():
    recording = record(gpt2(), None, TEXT)
    with pytest.raises(
        InputError, match=r"Expected token ids of the tokenizer, which has 45, got id \d+, which the model read"
    ):
        recording.tokenizer(word_piece())
    assert recording.tokens is None


def test_a_model_that_got_embeddings_has_no_words():
    model = gpt2()
    with torch.no_grad(), overt.lens.record(model) as recording:
        model(inputs_embeds=torch.randn(1, 5, 16))
    with pytest.raises(InputError, match=r"Expected a model that read token ids.*got embeddings"):
        recording.tokenizer(byte_level())
    behind = overt.lens.record(model, tokenizer=byte_level())
    behind.__enter__()
    model(inputs_embeds=torch.randn(1, 5, 16))
    with pytest.raises(InputError, match=r"Expected a model that read token ids.*got embeddings"):
        behind.__exit__(None, None, None)


def test_an_error_of_the_model_is_its_own():
    with pytest.raises(ZeroDivisionError), overt.lens.record(gpt2(), tokenizer=byte_level()):
        raise ZeroDivisionError


def test_tokens_and_a_tokenizer_exclude_each_other():
    with pytest.raises(InputError, match="Expected tokens or a tokenizer, got both"):
        overt.lens.record(gpt2(), tokenizer=byte_level(), key_tokens=["a"]).__enter__()
    recording = record(gpt2(), None, "The street")
    recording.tokens = ["The", "street"]
    with pytest.raises(InputError, match="Expected tokens or a tokenizer, got a tokenizer for a recording that has tokens"):
        recording.tokenizer(byte_level())
