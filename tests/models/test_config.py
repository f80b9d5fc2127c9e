"""Models from plain data, and what is wrong with data that makes none."""

import json

import pytest
import torch

from overt.errors import InputError, KindError
from overt.models import from_config
from overt.models.building import KINDS
from overt.models.config import constructor_arguments

SMALL = {
    "Transformer": {"source_words": 9, "target_words": 9, "width": 8, "heads": 2, "feed_forward": 16, "encoder_layers": 1},
    "TransformerEncoder": {"words": 9, "width": 8, "heads": 2, "layers": 1, "feed_forward": 16},
    "LanguageModel": {"words": 9, "width": 8, "heads": 2, "layers": 1, "feed_forward": 16, "tied": False},
    "Seq2Seq": {"source_words": 9, "target_words": 9, "width": 8},
    "Tagger": {"words": 9, "tags": 3, "width": 8},
    "Classifier": {"words": 9, "classes": 3, "width": 8},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_survives_json_and_builds_the_same_model(kind):
    torch.manual_seed(0)
    model = from_config({"kind": kind, **SMALL[kind]})
    second = from_config({"kind": kind, **json.loads(json.dumps(model.config))})
    assert type(second).__name__ == kind
    assert second.config == model.config
    assert {name: p.shape for name, p in second.named_parameters()} == {name: p.shape for name, p in model.named_parameters()}


def test_a_whole_number_serves_where_any_number_does():
    assert from_config({"kind": "TransformerEncoder", **SMALL["TransformerEncoder"], "dropout": 0}).config["dropout"] == 0


def test_what_is_named_after_the_arguments_is_no_argument():
    def made(words, *, width=4):
        inputs = constructor_arguments(locals())
        words = 7
        return inputs, words

    assert made(3)[0] == {"words": 3, "width": 4}


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ({"kind": "Transfomer"}, InputError, "kind as one of Transformer, .*'Transfomer'.*write 'Transformer'"),
        ({}, InputError, "kind as one of .*got None"),
        ({"widht": 8}, InputError, "arguments of TransformerEncoder: words, .*'widht'.*write 'width'"),
        ({"colour": 8}, InputError, "'colour'.*choose one of them"),
        ({"words": None}, KindError, "words of TransformerEncoder as int, got None of type NoneType"),
        ({"width": 8.0}, KindError, "width of TransformerEncoder as int, got 8.0 of type float"),
        ({"width": True}, KindError, "width of TransformerEncoder as int, got True of type bool"),
        ({"dropout": "much"}, KindError, "dropout of TransformerEncoder as float, got 'much' of type str"),
        ({"positions": 3}, KindError, "positions of TransformerEncoder as str or None, got 3 of type int"),
        ({"causal": 1}, KindError, "causal of TransformerEncoder as bool, got 1 of type int"),
    ],
)
def test_a_config_that_makes_no_model_is_refused(config, kind, message):
    inputs = {} if not config or config.get("kind") else {"kind": "TransformerEncoder", **SMALL["TransformerEncoder"]}
    with pytest.raises(kind, match=message):
        from_config(inputs | config)


def test_what_is_missing_is_named():
    with pytest.raises(InputError, match="source_words and target_words of Transformer, got width"):
        from_config({"kind": "Transformer", "width": 8})
