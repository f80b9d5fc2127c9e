import os
import subprocess
import sys
import threading

import pytest
import torch
from transformers import AttentionInterface, ModernBertConfig, ModernBertModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

import overt
from families import FAMILIES, LENGTH, Family, attentions, same
from overt.lens import record
from overt.lens.capture.ranges import Ranges

CASES = [pytest.param(family, path, id=f"{family.name}-{path}") for family in FAMILIES for path in family.paths]
NAMED = {family.name: family for family in FAMILIES}


def recorded(model, inputs):
    with torch.no_grad(), record(model) as recording:
        output = model(**inputs)
    return recording, output


def weights(recording, call):
    """All heads of one call: (B, H, Q, K)."""
    return torch.stack([recording[call, head].weights() for head in recording.calls[call].heads], dim=1)


CONVOLUTIONS = {"Whisper": ["model.encoder.conv1", "model.encoder.conv2"]}  # they mix tokens, without weights


def largest_difference(recording, expected: list[torch.Tensor], idle: torch.Tensor) -> float:
    """Of the weights in all calls, the rows of idle queries (B, Q) left out."""
    assert len(recording) == len(expected)
    differences = [(weights(recording, call) - each).abs() for call, each in enumerate(expected)]
    return max(float(each.transpose(1, 2)[~idle].max() if idle.any() else each.max()) for each in differences)


@pytest.mark.parametrize(("family", "path"), CASES)
@pytest.mark.few_cases(8)
def test_every_layer_is_recorded_by_name_and_outputs_are_equal_to_the_bit(family: Family, path):
    model = family.build(path)
    for side in family.sides:
        inputs = family.inputs(side)
        with torch.no_grad():
            plain = model(**inputs)
        recording, output = recorded(model, inputs)
        assert same(output, plain)
        assert recording.layers == list(family.layers)
        assert [name for name, _ in recording.missing] == CONVOLUTIONS.get(family.name, [])
        assert len(recording.passes) == 1


@pytest.mark.parametrize(("family", "path"), CASES)
@pytest.mark.few_cases(8)
def test_weights_are_those_that_the_eager_model_returns(family: Family, path):
    model, eager = family.build(path), family.build("eager")
    for side in family.sides:
        inputs = family.inputs(side)
        with torch.no_grad():
            expected = attentions(eager(**inputs, output_attentions=True))
        recording, _ = recorded(model, inputs)
        # A padding query may have no key to attend to: "eager" then spreads it over all keys, "sdpa" gives it none.
        idle = family.idle(inputs, LENGTH) if path == "sdpa" else torch.zeros(2, LENGTH, dtype=torch.bool)
        assert largest_difference(recording, expected, idle) < 1e-5


@pytest.mark.parametrize(("family", "path"), CASES)
@pytest.mark.few_cases(8)
def test_recomputed_outputs_are_the_models_own(family: Family, path):
    model = family.build(path)
    for side in family.sides:
        verified = recorded(model, family.inputs(side))[0].verify()
        assert verified.holds, str(verified)
        assert verified.difference < 1e-5


@pytest.mark.parametrize(("family", "path"), CASES)
@pytest.mark.few_cases(6)
def test_in_bfloat16_the_residual_stands_beside_its_rounding_bound(family: Family, path):
    model, side = family.build(path, torch.bfloat16), family.sides[-1]
    inputs = {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in family.inputs(side).items()}
    recording, _ = recorded(model, inputs)
    verified = recording.verify()
    assert recording.layers == list(family.layers)
    assert verified.holds, str(verified)
    assert 1e-3 < verified.bound < 30 * verified.difference  # a bound far beyond what rounding does would tell nothing


@pytest.mark.parametrize(("family", "path"), CASES)
@pytest.mark.few_cases(8)
def test_masks_are_kept_as_ranges(family: Family, path):
    recording, _ = recorded(family.build(path), family.inputs(family.sides[-1]))
    calls = [captured.call for captured in recording.calls]
    assert all(call.mask is None or isinstance(call.mask, Ranges | overt.Causal) for call in calls)
    masked = {"image": {False}, "sound": {False, True}}.get(family.kind, {True})
    assert {call.mask is not None for call in calls} == masked
    # T5 adds its relative positions as a tensor, which its layers share.
    squares = [call.bias is not None and min(call.bias.source.shape[-2:]) > 1 for call in calls]
    assert squares == [family.name == "T5"] * len(calls)


def test_grouped_heads_are_kept_once_for_each_group():
    for path in ("eager", "sdpa"):
        recording, _ = recorded(NAMED["Llama"].build(path), NAMED["Llama"].inputs("left"))
        assert {(each.call.query.shape[1], each.call.key.shape[1]) for each in recording.calls} == {(4, 2)}


def test_layers_share_one_mask():
    recording, _ = recorded(NAMED["Llama"].build(), NAMED["Llama"].inputs("left"))
    first, second = (captured.call.mask for captured in recording.calls)
    assert isinstance(first, Ranges)
    assert first.low.data_ptr() == second.low.data_ptr()


def test_a_window_bars_keys_that_are_too_far_back():
    recording, _ = recorded(NAMED["Mistral"].build("sdpa"), NAMED["Mistral"].inputs())
    expected = torch.ones(LENGTH, LENGTH).tril() - torch.ones(LENGTH, LENGTH).tril(-4)
    assert torch.equal((recording[1, 2].weights()[0] > 0).float(), expected)


def test_a_query_that_may_attend_to_nothing_is_recorded_as_it_ran():
    family = NAMED["Llama"]
    inputs = family.inputs("left")
    eager, fused = (recorded(family.build(path), inputs)[0][0, 0].weights()[0] for path in ("eager", "sdpa"))
    torch.testing.assert_close(eager[0], torch.full((LENGTH,), 1 / LENGTH))
    assert not fused[0].any()


def test_where_the_call_was_caught_names_the_path():
    for path in ("eager", "sdpa"):
        recording, _ = recorded(NAMED["Bert"].build(path), NAMED["Bert"].inputs())
        assert {captured.source for captured in recording.calls} == {f'transformers "{path}"'}


def test_a_softcap_is_part_of_the_score():
    recording, _ = recorded(NAMED["Gemma2"].build(), NAMED["Gemma2"].inputs())
    assert [captured.call.score.softcap for captured in recording.calls] == [2.0, 2.0]
    assert float(recording[0, 0].steps(8).scores.abs().max()) < 2
    assert {captured.notes for captured in recording.calls} == {()}


@pytest.fixture
def forgetful():
    """A path of the user's own that takes what every path is given and uses torch's fused function alone."""

    def forward(module, query, key, value, attention_mask, scaling=None, **kwargs):
        mixed = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
        )
        return mixed.transpose(1, 2).contiguous(), None

    AttentionInterface.register("forgetful", forward)
    yield "forgetful"
    del AttentionInterface._global_mapping["forgetful"]


def test_a_softcap_that_the_path_leaves_out_is_said(forgetful):
    model = NAMED["Gemma2"].build()
    model.config._attn_implementation = forgetful
    recording, _ = recorded(model, NAMED["Gemma2"].inputs())
    assert recording.calls[0].notes[0] == (
        'as run: the model sets a softcap of 2.0 on the scores, and its path "forgetful" ignores that'
    )
    assert recording.calls[0].call.score.softcap is None
    assert recording.verify().holds


def test_a_window_on_both_sides_is_not_taken_for_one_that_was_left_out():
    settings = {**NAMED["Bert"].settings, "local_attention": 4, "global_attn_every_n_layers": 3}
    config = ModernBertConfig(**settings, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
    model = ModernBertModel._from_config(config, attn_implementation="eager").eval()
    recording, _ = recorded(model, NAMED["Bert"].inputs())
    assert (recording[1, 0].weights()[0] > 0).sum(-1).tolist() == [3, 4, 5, 5, 5, 5, 5, 4, 3]
    assert [call.notes for call in recording.calls] == [(), ()]


def test_a_window_that_the_path_leaves_out_is_said(forgetful):
    # A path without a mask function of its own gets no mask, and with it no window and no causality.
    model = NAMED["Mistral"].build()
    model.config._attn_implementation = forgetful
    recording, _ = recorded(model, NAMED["Mistral"].inputs())
    assert recording.calls[0].notes == (
        'as run: the model sets a sliding window of 4 keys, and its path "forgetful" ignores that',
    )
    assert (recording[0, 0].weights() > 0).all()


def test_sinks_take_their_share_and_are_said_where_the_path_leaves_them_out():
    model, inputs = NAMED["GptOss"].build(), NAMED["GptOss"].inputs()
    recording, _ = recorded(model, inputs)
    assert float(recording[0, 0].weights().sum(-1).max()) < 1
    model.config._attn_implementation = "sdpa"
    recording, _ = recorded(model, inputs)
    assert recording.calls[0].notes == (
        'as run: the model sets a sink in every head\'s softmax, and its path "sdpa" ignores that',
    )
    torch.testing.assert_close(recording[0, 0].weights().sum(-1), torch.ones(2, LENGTH))
    assert recording.verify().holds


def test_a_path_that_clips_the_scores_is_recorded_by_its_weights():
    def clipped(module, query, key, value, attention_mask, scaling=None, **kwargs):
        weights = torch.softmax((query @ key.mT * scaling).clamp(-0.5, 0.5), dim=-1)
        return (weights @ value).transpose(1, 2).contiguous(), weights

    AttentionInterface.register("clipped", clipped)
    try:
        model = NAMED["Bert"].build()
        model.config._attn_implementation = "clipped"
        with torch.no_grad(), record(model) as recording:
            expected = model(**NAMED["Bert"].inputs(), output_attentions=True).attentions
    finally:
        del AttentionInterface._global_mapping["clipped"]
    torch.testing.assert_close(weights(recording, 1), expected[1], rtol=0, atol=1e-6)
    assert recording.calls[0].notes == ("query and key are unknown here, so the model's own weights are recorded",)
    assert recording.verify().holds


def test_a_path_that_cannot_be_seen_into_is_missing_with_the_cure():
    def opaque(module, query, key, value, attention_mask, **kwargs):
        return value.transpose(1, 2).contiguous(), None

    AttentionInterface.register("opaque", opaque)
    try:
        model = NAMED["Bert"].build()
        model.config._attn_implementation = "opaque"
        recording, _ = recorded(model, NAMED["Bert"].inputs())
    finally:
        del AttentionInterface._global_mapping["opaque"]
    layer, reason = recording.missing[0]
    assert layer == "encoder.layer.0.attention.self"
    assert reason.startswith(
        "the function \"opaque\" of transformers' registry computes attention where torch's functions cannot be observed"
    )
    assert reason.endswith('load the model with attn_implementation="sdpa" or "eager"')


def test_weights_that_the_model_returns_itself_are_the_same_while_it_is_recorded():
    model, inputs = NAMED["Llama"].build(), NAMED["Llama"].inputs("left")
    with torch.no_grad():
        plain = model(**inputs, output_attentions=True)
        with record(model) as recording:
            output = model(**inputs, output_attentions=True)
    assert same(output, plain)
    assert largest_difference(recording, list(output.attentions), torch.zeros(2, LENGTH, dtype=torch.bool)) < 1e-5


def test_embeddings_may_be_given_in_the_place_of_tokens():
    for name in ("Llama", "Bert"):
        model, inputs = NAMED[name].build("sdpa"), NAMED[name].inputs()
        embedded = {"inputs_embeds": model.get_input_embeddings()(inputs["input_ids"]).detach()}
        recording, _ = recorded(model, embedded)
        by_tokens, _ = recorded(model, inputs)
        assert torch.equal(recording[1, 3].weights(), by_tokens[1, 3].weights())


def test_packed_documents_are_ranges():
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    recording, _ = recorded(
        NAMED["Llama"].build("sdpa"), {**NAMED["Llama"].inputs(batch=1), "position_ids": positions, "use_cache": False}
    )
    assert isinstance(recording.calls[0].call.mask, Ranges | overt.Causal)
    causal = torch.ones(LENGTH, LENGTH).tril()
    causal[4:, :4] = 0
    assert torch.equal((recording[0, 0].weights()[0] > 0).float(), causal)


def test_dropout_in_training_is_recorded_and_not_compared():
    settings = {**NAMED["Bert"].settings, "attention_probs_dropout_prob": 0.5, "hidden_dropout_prob": 0.0}
    family = Family("Bert", "BertModel", "encoder", settings, NAMED["Bert"].layers)
    for path in ("eager", "sdpa"):
        model, inputs = family.build(path), family.inputs()
        still, _ = recorded(model, inputs)
        torch.manual_seed(2)
        plain = model.train()(**inputs)
        torch.manual_seed(2)
        with record(model) as recording:
            output = model(**inputs)
        assert same(output, plain)
        torch.testing.assert_close(recording[0, 0].weights(), still[0, 0].weights())
        assert "dropout 0.5 was drawn at random" in str(recording.verify())


def test_the_registry_is_as_it_was_after_a_recording_and_after_an_error():
    before, model, inputs = AttentionInterface.get_interface, NAMED["Llama"].build(), NAMED["Llama"].inputs()
    with record(model), record(model):
        assert AttentionInterface.get_interface is not before
    assert AttentionInterface.get_interface is before
    with pytest.raises(IndexError), record(model):
        model(input_ids=inputs["input_ids"] + 60)
    assert AttentionInterface.get_interface is before


def test_recordings_inside_each_other_see_all_of_it():
    model, inputs = NAMED["Llama"].build(), NAMED["Llama"].inputs()
    with torch.no_grad(), record(model) as outer, record(model.model) as inner:
        model(**inputs)
    assert outer.layers == list(NAMED["Llama"].layers)
    assert inner.layers == [name.removeprefix("model.") for name in NAMED["Llama"].layers]
    assert torch.equal(outer[1, 1].weights(), inner[1, 1].weights())


def test_another_thread_gets_the_registrys_function_itself():
    result = []
    with record(NAMED["Llama"].build()):
        mine = ALL_ATTENTION_FUNCTIONS.get_interface("eager", eager_attention_forward)
        thread = threading.Thread(
            target=lambda: result.append(ALL_ATTENTION_FUNCTIONS.get_interface("eager", eager_attention_forward))
        )
        thread.start()
        thread.join()
    assert result == [eager_attention_forward]
    assert mine is not eager_attention_forward


@pytest.mark.slow
def test_recording_imports_no_transformers():
    code = (
        "import sys, torch, overt\nattention = torch.nn.MultiheadAttention(8, 2)\nx = torch.randn(3, 8)\n"
        "with overt.lens.record(attention) as recording:\n    attention(x, x, x)\n"
        "assert len(recording) == 1 and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_what_is_too_large_is_not_kept_and_is_missing():
    model, inputs = NAMED["Llama"].build(), NAMED["Llama"].inputs()
    with record(model, limit=5_000) as recording:
        model(**inputs)
    assert [layer for layer, _ in recording.missing] == list(NAMED["Llama"].layers)
    assert all(reason.startswith("Expected a recording of at most 5.0 kB") for _, reason in recording.missing)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch.compile's own
def test_flex_attention_runs_as_it_is_and_is_missing():
    family = NAMED["Llama"]
    model = family.build("flex_attention")
    with torch.no_grad():
        plain = model(**family.inputs())
    recording, output = recorded(model, family.inputs())
    assert same(output, plain)
    # The model makes its block mask by a compiled function too.
    assert [layer for layer, _ in recording.missing] == ["model", *family.layers]
    assert 'the function "flex_attention"' in recording.missing[1][1]
    assert not any("force_eager" in reason for _, reason in recording.missing)  # it would not help
    assert str(recording) == (
        "nothing recorded: Expected attention that is computed where torch's functions can be observed, got LlamaForCausalLM, whose "
        f'{", ".join(family.layers)} ran flex_attention. Fix: load the model with attn_implementation="sdpa".'
    )
