"""A finished model's folder gives the model back, and says what does not fit."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from overt.errors import InputError
from overt.learn import load_model, save_model
from overt.learn.data.corpora import CorpusExample
from overt.learn.data.tokenizer import Tokenizer
from overt.learn.data.vocabulary import WordVocabulary
from overt.learn.run.weights import get_weights, load_weights
from overt.models import TransformerEncoder, from_config

SENTENCES = ["a bird sings in the tree", "the tree is old", "a cat looks at the bird"]


def encoder(words=30):
    torch.manual_seed(0)
    return from_config({"kind": "TransformerEncoder", "words": words, "width": 8, "heads": 2, "layers": 1, "feed_forward": 16})


def translator(words):
    torch.manual_seed(0)
    sizes = {"source_words": words, "target_words": words, "width": 8, "heads": 2, "feed_forward": 16}
    return from_config({"kind": "Transformer", **sizes, "encoder_layers": 1, "decoder_layers": 1, "tied": "all"})


@pytest.fixture
def tokens():
    return torch.tensor([[5, 6, 7, 2], [8, 9, 2, 0]])


def test_the_model_that_comes_back_computes_the_same_to_the_bit(tmp_path, tokens):
    save_model(model := encoder().eval(), tmp_path)
    result, tokenizer, config = load_model(tmp_path)
    assert isinstance(result, TransformerEncoder)
    assert not result.training
    assert torch.equal(result(tokens), model(tokens))
    assert tokenizer is None
    assert config == {"kind": "TransformerEncoder", "config": model.config}


def test_a_tied_matrix_is_written_once_and_is_one_matrix_again(tmp_path, tokens):
    save_model(model := translator(30).eval(), tmp_path)
    result, _, _ = load_model(tmp_path)
    assert sum(each.numel() for each in get_weights(model).values()) == sum(each.numel() for each in model.parameters())
    assert torch.equal(result(tokens, tokens), model(tokens, tokens))
    assert len(list(result.parameters())) == len(list(model.parameters()))


def test_the_tokenizer_comes_back_beside_the_model(tmp_path):
    tokenizer = Tokenizer.learn(SENTENCES, merges=10)
    save_model(translator(tokenizer.words), tmp_path, tokenizer)
    _, result, _ = load_model(tmp_path)
    assert result.encode(SENTENCES[0]) == tokenizer.encode(SENTENCES[0])


def test_the_words_and_labels_of_a_tagger_come_back_beside_it(tmp_path):
    vocabulary = WordVocabulary.learn([CorpusExample(["a", "bird"], ["DET", "NOUN"])])
    sizes = {"words": vocabulary.words, "tags": len(vocabulary.labels), "width": 8, "encoder": "gru"}
    save_model(from_config({"kind": "Tagger", **sizes}), tmp_path, vocabulary)
    _, result, _ = load_model(tmp_path)
    assert (result.labels, result.encode(["a", "cat"])) == (["DET", "NOUN"], vocabulary.encode(["a", "cat"]))


@pytest.mark.parametrize("tags", [1, 3])
def test_a_vocabulary_of_fewer_or_more_labels_than_the_model_is_refused(tags, tmp_path):
    vocabulary = WordVocabulary.learn([CorpusExample(["a", "bird"], ["DET", "NOUN"])])
    save_model(from_config({"kind": "Tagger", "words": vocabulary.words, "tags": tags, "width": 8}), tmp_path, vocabulary)
    with pytest.raises(InputError, match=rf"the same labels .*, got 2 in tokenizer.json, \{{'tags': {tags}\}} in config.json"):
        load_model(tmp_path)


def test_half_precision_takes_half_the_bytes_and_is_float32_in_memory(tmp_path):
    model = encoder()
    save_model(model, tmp_path / "whole")
    save_model(model, tmp_path / "half", half=True)
    sizes = [sum(each.nbytes for each in get_weights(load_model(tmp_path / name)[0]).values()) for name in ("whole", "half")]
    assert sizes[0] == sizes[1]
    files = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half")]
    assert files[1] < 0.7 * files[0]
    result = load_model(tmp_path / "half")[0].state_dict()
    for name, tensor in model.state_dict().items():
        assert result[name].dtype == tensor.dtype
        torch.testing.assert_close(result[name], tensor, rtol=1e-3, atol=1e-6)


def test_int8_takes_a_quarter_of_the_bytes_and_is_float32_in_memory(tmp_path):
    model = translator(2000)
    save_model(model, tmp_path / "whole")
    save_model(model, tmp_path / "small", small=True)
    matrices = sum(each.numel() for each in get_weights(model).values() if each.ndim == 2)
    files = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "small")]
    assert files[0] - files[1] > 2 * matrices
    result = load_model(tmp_path / "small")[0].state_dict()
    for name, tensor in model.state_dict().items():
        assert result[name].dtype == tensor.dtype
        if tensor.ndim == 2:  # half a step of a row's scale
            assert bool(((result[name] - tensor).abs() <= 0.5001 * tensor.abs().amax(1, keepdim=True) / 127).all())
        else:
            assert torch.equal(result[name], tensor)


def test_int8_weights_written_again_are_the_same_to_the_bit(tmp_path):
    save_model(translator(30), tmp_path / "once", small=True)
    save_model(load_model(tmp_path / "once")[0], tmp_path / "again", small=True)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("once", "again"))
    numbers = [name for name in first if not name.endswith(".scale")]
    assert all(torch.equal(first[name], second[name]) for name in numbers)


def test_half_and_small_at_once_are_refused(tmp_path):
    with pytest.raises(InputError, match="half or small, got both"):
        save_model(encoder(), tmp_path / "new", half=True, small=True)
    assert not (tmp_path / "new").exists()


def test_int8_matrices_without_their_scales_are_refused(tmp_path):
    save_model(translator(30), tmp_path, small=True)
    weights = load_file(tmp_path / "model.safetensors")
    save_file({name: tensor for name, tensor in weights.items() if not name.endswith(".scale")}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"to hold floating-point weights .*got .* of torch.int8"):
        load_model(tmp_path)


def test_what_is_said_besides_is_kept_in_the_config(tmp_path):
    save_model(encoder(), tmp_path, extra={"languages": ["en", "fr"]})
    assert load_model(tmp_path)[2]["languages"] == ["en", "fr"]


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    tokenizer = Tokenizer.learn(SENTENCES, merges=10)
    save_model(translator(40), tmp_path, tokenizer)
    words = tokenizer.words
    message = rf"with the same vocabulary in .*, got {words} tokens in tokenizer.json, source_words = 40, target_words = 40 in config.json"
    with pytest.raises(InputError, match=message):
        load_model(tmp_path)


def test_weights_of_other_shapes_are_refused_with_the_first_that_differs(tmp_path):
    save_model(encoder(30), tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    saved["config"]["words"] = 31
    (tmp_path / "config.json").write_text(json.dumps(saved))
    message = r"model.safetensors to hold weights with the model's shapes .*, got .* \(30, 8\) in the file, .*\(31, 8\) in the model\. Fix: build"
    with pytest.raises(InputError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("weights", "got"),
    [
        ({"weight": torch.ones(1, 2)}, "bias only in the model"),
        ({"weight": torch.ones(1, 2), "bias": torch.ones(1), "more": torch.ones(1)}, "more only in the file"),
    ],
)
def test_weights_that_are_missing_or_left_over_are_named_and_nothing_is_changed(weights, got):
    layer = nn.Linear(2, 1)
    before = layer.weight.clone()
    with pytest.raises(InputError, match=f"x.safetensors to hold the weights of this model, got {got}. Fix: build the model"):
        load_weights(layer, weights, "x.safetensors")
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize(
    "harm", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-9])], ids=["gone", "cut"]
)
def test_a_file_that_is_missing_or_cut_short_is_named(tmp_path, name, harm):
    save_model(encoder(), tmp_path)
    harm(tmp_path / name)
    with pytest.raises(InputError, match=rf"{name} to be part of a finished model, got .*\. Fix: copy the folder again"):
        load_model(tmp_path)


def test_a_model_of_the_callers_own_is_saved_and_not_built(tmp_path):
    save_model(nn.Linear(2, 1), tmp_path)
    with pytest.raises(InputError, match=r"a model of overt.models, got a Linear in .*\. Fix: build it yourself"):
        load_model(tmp_path)
