"""Models that take the name and do not attend by it are told of once, and in a sentence."""

import copy
import io
import warnings

import pytest
import torch
import transformers
from torch import nn

from families import FAMILIES
from overt import integrations
from overt.errors import InputError

NAME = integrations.huggingface()
NAMED = {family.name: family for family in FAMILIES}
SAM = {
    "vision_config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16, "patch_size": 8,
                      "mlp_dim": 16, "output_channels": 16, "window_size": 2, "global_attn_indexes": [0]},
}  # fmt: skip


def message(action):
    """The sentences of the warnings of overt that an action gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(each.message) for each in caught if "attn_implementation" in str(each.message)]


def test_a_model_that_writes_its_attention_out_is_told_of_at_its_first_pass_alone():
    bloom = NAMED["Bloom"]
    model = bloom.build(NAME)
    with torch.no_grad():
        first, second = (message(lambda: model(**bloom.inputs("left"))) for _ in range(2))
        assert torch.equal(model(**bloom.inputs("left")).logits, bloom.build("eager")(**bloom.inputs("left")).logits)
    assert len(first) == 1
    assert first[0].startswith('BloomForCausalLM accepted attn_implementation="overt" and did not call it')
    assert second == []


@pytest.mark.parametrize("name", ["Llama", "Bert", "T5", "Whisper"])
def test_a_model_that_attends_by_overt_is_not_told_of(name):
    family = NAMED[name]
    model = family.build(NAME)
    assert message(lambda: model(**family.inputs())) == []


def test_the_part_of_a_model_that_does_not_attend_by_overt_is_named():
    class Both(transformers.PreTrainedModel):
        config_class = transformers.LlamaConfig
        base_model_prefix = "both"

        def __init__(self, config):
            super().__init__(config)
            self.one, self.other = NAMED["Llama"].build(NAME), NAMED["Bloom"].build(NAME)

        def forward(self, ids):
            return self.one(ids), self.other(ids)

    config = transformers.LlamaConfig(**NAMED["Llama"].settings, pad_token_id=0)
    config._attn_implementation = NAME
    sentences = message(lambda: Both(config)(torch.tensor([[3, 4, 5]])))
    assert len(sentences) == 1
    assert sentences[0].startswith("BloomForCausalLM accepted")


def test_a_model_that_was_changed_to_another_path_is_not_told_of():
    model = NAMED["Llama"].build(NAME)
    model.set_attn_implementation("eager")
    assert message(lambda: model(**NAMED["Llama"].inputs())) == []


def test_a_watched_model_is_copied_and_saved_as_any_other():
    model, inputs = NAMED["Llama"].build(NAME), NAMED["Llama"].inputs()
    stored = io.BytesIO()
    torch.save(model, stored)
    stored.seek(0)
    with torch.no_grad():
        wanted = model(**inputs).logits
        assert torch.equal(copy.deepcopy(model)(**inputs).logits, wanted)
        assert torch.equal(torch.load(stored, weights_only=False)(**inputs).logits, wanted)


def test_an_error_inside_a_model_leaves_the_watch_as_it_was():
    model, inputs = NAMED["Llama"].build(NAME), NAMED["Llama"].inputs()
    with pytest.raises(IndexError):
        model(input_ids=inputs["input_ids"] + 1000)
    bloom = NAMED["Bloom"]
    assert len(message(lambda: bloom.build(NAME)(**bloom.inputs()))) == 1


def test_a_model_with_a_table_of_its_own_is_refused_in_a_sentence():
    config = transformers.SamConfig(**SAM)
    with pytest.raises(
        InputError, match='got attn_implementation="overt" for a part with SamVisionConfig.*choose "eager" or "sdpa"'
    ):
        transformers.SamModel._from_config(config, attn_implementation=NAME)


def test_the_other_parts_of_such_a_model_are_served():
    config = transformers.SamConfig(**SAM)
    model = transformers.SamModel._from_config(config, attn_implementation={"": NAME, "vision_config": "sdpa"})
    assert model.config._attn_implementation == NAME
    assert model.vision_encoder.config._attn_implementation == "sdpa"


def test_weights_that_the_models_code_does_not_return_are_told_of():
    class Silent(transformers.PreTrainedModel):
        config_class = transformers.LlamaConfig

        def __init__(self, config):
            super().__init__(config)
            self.projection = nn.Linear(4, 4)

        def forward(self, x, output_attentions=False):
            function = transformers.AttentionInterface().get_interface(NAME, None)
            output, _ = function(self, x, x, x, None)
            return transformers.modeling_outputs.BaseModelOutput(output, attentions=())

    config = transformers.LlamaConfig(**NAMED["Llama"].settings)
    config._attn_implementation = NAME
    model, x = Silent(config), torch.randn(1, 2, 3, 4)
    assert message(lambda: model(x)) == []
    sentences = message(lambda: model(x, output_attentions=True))
    assert len(sentences) == 1
    assert "the code of Silent does not return the attention weights" in sentences[0]
    assert "overt.lens.record(model)" in sentences[0]
