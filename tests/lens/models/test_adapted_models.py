"""Models with adapters and quantised models are recorded by the same call: outputs to the bit, names and words as those of any model."""

from typing import Any

import peft
import pytest
import torch
import transformers
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from torch.ao.quantization import quantize_dynamic

import overt
from families import FAMILIES
from tokenizers_of_all_kinds import byte_level

# What these libraries say of themselves and of each other.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning"),
    pytest.mark.filterwarnings("ignore:Position ids are not supported:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
]
NAMED = {family.name: family for family in FAMILIES}
TARGETS = {"Llama": ["q_proj", "v_proj"], "GPT2": ["c_attn"]}
STEPS = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0}


@pytest.fixture(scope="module")
def prompt():
    return torch.randint(3, 60, (2, 7), generator=torch.Generator().manual_seed(3))


def with_lora(name, **settings):
    """A model whose adapter is random, so that it changes what is computed."""
    torch.manual_seed(0)
    settings = {"target_modules": TARGETS[name], "task_type": "CAUSAL_LM", "init_lora_weights": False, **settings}
    return peft.get_peft_model(NAMED[name].build("sdpa"), peft.LoraConfig(**settings)).eval()


def recorded(model, run, tokenizer=None):
    """The recording of a run whose output is, to the bit, the one without it."""
    with torch.no_grad():
        expected = run(model)
        with overt.lens.record(model, tokenizer=tokenizer) as recording:
            output = run(model)
    assert torch.equal(output, expected)
    assert recording.verify().holds
    assert not recording.missing
    return recording, output


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_lora_is_in_the_recorded_queries(name, merged, prompt):
    model = with_lora(name)
    if merged:
        model.merge_adapter()
    recording, text = recorded(model, lambda model: model.generate(input_ids=prompt, **STEPS))
    assert recording.layers == [f"base_model.model.{layer}" for layer in NAMED[name].layers]
    assert torch.equal(recording.token_ids(), text[:, :-1])
    if not merged:
        assert any(isinstance(each, BaseTunerLayer) for each in model.get_submodule(recording.layers[0]).modules())
        with torch.no_grad(), model.disable_adapter(), overt.lens.record(model) as without:
            model(input_ids=text[:, :-1])
        assert not torch.equal(recording[0, 0].query, without[0, 0].query)


def test_a_merged_and_unloaded_model_has_its_own_names(prompt):
    recording, _ = recorded(with_lora("Llama").merge_and_unload(), lambda model: model.generate(prompt, **STEPS))
    assert recording.layers == list(NAMED["Llama"].layers)


def test_an_adapter_on_nn_multihead_attention():
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False)
    model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["self_attn"], init_lora_weights=False)).eval()
    recording, _ = recorded(model, lambda model: model(torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1))))
    assert [layer.removeprefix("base_model.model.layers.")[0] for layer in recording.layers] == ["0", "1"]


@pytest.mark.parametrize("config", [peft.PrefixTuningConfig, peft.PromptTuningConfig])
def test_virtual_tokens_are_keys_without_words(config, prompt):
    model = peft.get_peft_model(NAMED["Llama"].build("sdpa"), config(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()
    recording, _ = recorded(model, lambda model: model.generate(input_ids=prompt[:1], **STEPS))
    assert recording[0, 0].keys == 13
    for one in (recording, *(each for each in recording.passes if each.calls)):  # what computes the virtual tokens runs alone
        assert one.strings.key_words(one.calls[0]) is None


def test_words_of_a_model_with_an_adapter():
    torch.manual_seed(0)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(), pad_token="<pad>", padding_side="left")
    config = transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2)
    lora = peft.LoraConfig(target_modules=["c_attn"], task_type="CAUSAL_LM", init_lora_weights=False)
    model = peft.get_peft_model(transformers.GPT2LMHeadModel(config).eval(), lora).eval()
    inputs = tokenizer(["The animal", "The"], padding=True, return_tensors="pt", return_token_type_ids=False)
    recording, text = recorded(model, lambda model: model.generate(**inputs, **STEPS), tokenizer)
    sentences: Any = recording[0, 0].key_tokens
    assert [[word.id for word in words] for words in sentences] == text[:, :-1].tolist()
    assert sentences[0][:2] == ["The", "animal"]


@pytest.mark.parametrize("name", ["Bert", "Llama"])
def test_a_quantised_model_is_recorded_as_it_computes(name, prompt):
    quantised = quantize_dynamic(NAMED[name].build("sdpa"), {nn.Linear}, dtype=torch.qint8)
    assert any("quantized" in type(module).__module__ for module in quantised.modules())
    recording, _ = recorded(quantised, lambda model: model(input_ids=prompt)[0])
    assert recording.layers == list(NAMED[name].layers)
    plain, _ = recorded(NAMED[name].build("sdpa"), lambda model: model(input_ids=prompt)[0])
    assert not torch.equal(recording[0, 0].query, plain[0, 0].query)
