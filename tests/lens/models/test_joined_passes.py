"""Generation as one recording: the rows of all passes over the keys that they had, equal to one pass over the whole text."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import StaticCache

import overt
from families import FAMILIES, written
from overt.attention.kernels.call import Call
from overt.lens import record
from overt.lens.storage.continued import Continued

NAMED = {family.name: family for family in FAMILIES}
EXACT = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
WAYS = {
    "greedy": {},
    "rejected tokens": {"prompt_lookup_num_tokens": 3},
    "static cache": {"cache_implementation": "static"},
    "a prompt in chunks": {"prefill_chunk_size": 3},
}


@pytest.fixture(scope="module")
def prompt():
    return torch.randint(3, 60, (1, 7), generator=torch.Generator().manual_seed(3))


def in_one_pass(model, ids, **inputs):
    with torch.no_grad(), record(model) as recording:
        model(input_ids=ids, use_cache=False, **inputs)
    return recording


def assert_equal(calls, recording, whole, rows=slice(None)):
    for joined, full in zip(calls, whole.calls, strict=True):
        assert (joined.layer, joined.queries, joined.keys) == (full.layer, full.queries, full.keys)
        for head in joined.heads:
            weights = recording.head_of(joined.opened(), head).weights()[rows]
            torch.testing.assert_close(weights, whole.head_of(full, head).weights(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["Llama", "Mistral", "GPT2"])
@pytest.mark.few_cases(4)
def test_what_is_written_is_one_map_over_all_tokens(name, way, prompt):
    model = NAMED[name].build("sdpa")
    with record(model) as recording:
        text = model.generate(prompt, **EXACT, **WAYS[way])
    assert_equal(recording.calls, recording, in_one_pass(model, text[:, :-1]))
    assert recording.verify().holds
    assert torch.equal(recording.token_ids(), text[:, :-1])


CACHES = {
    "dynamic": {},
    "static": {"cache_implementation": "static"},
    "a longer one for the second time": {"slots": 31},
}
SEARCHES = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "beams, chunks": {"num_beams": 3, "prefill_chunk_size": 3},
}
PADDING = {
    "left": ((1, 1, 1, 1, 1, 1, 1), (0, 0, 1, 1, 1, 1, 1), (0, 1, 1, 1, 1, 1, 1), (0, 0, 0, 1, 1, 1, 1)),
    "right": ((1, 1, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1, 0)),
    "any": (
        (1, 1, 1, 1, 1, 1, 1),
        (1, 1, 1, 1, 1, 0, 0),
        (0, 1, 1, 1, 1, 0, 0),
        (0, 1, 1, 1, 1, 1, 0),
        (1, 1, 0, 1, 1, 1, 1),
        (1, 1, 1, 1, 0, 1, 1),
    ),
}


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("path", ["eager", "sdpa", "overt"])
@pytest.mark.parametrize("name", ["Llama", "Mistral", "GPT2", "Gemma2"])
@pytest.mark.few_cases(8)
def test_a_padded_batch_is_one_map_a_layer_in_any_cache(name, path, search, cache, padding):
    family = NAMED[name]
    path = "eager" if path == "sdpa" and path not in family.paths else path
    model = family.build(overt.integrations.huggingface() if path == "overt" else path)
    real = torch.tensor(PADDING[padding])
    ids = torch.randint(3, 60, real.shape, generator=torch.Generator().manual_seed(3))
    options = {"attention_mask": real, "return_dict_in_generate": True, **SEARCHES[search], **CACHES[cache], **EXACT}
    slots = options.pop("slots", None)
    if slots is not None:
        options["past_key_values"] = StaticCache(model.config, max_cache_len=slots)
    for _ in range(1 if slots is None else 2):
        if slots is not None:
            options["past_key_values"].reset()
        with record(model) as recording:
            written = model.generate(ids, **options)
    layers = len({call.layer for call in recording.calls})
    assert (len(recording.calls), recording.missing) == (layers, [])
    assert recording.verify().holds
    last = written.beam_indices[:, 5] if "num_beams" in options else slice(None)
    real = torch.cat([real.bool(), torch.ones(len(real), 5, dtype=torch.bool)], dim=1)
    whole = in_one_pass(
        model, written.sequences[:, :-1], attention_mask=real.long(), position_ids=positions_in_generation(real, 7)
    )
    for call, full in zip(recording.calls, whole.calls, strict=True):
        assert (call.queries, call.keys) == (12, 12)
        for head in call.heads:
            weights, expected = recording.head_of(call.opened(), head).weights()[last], whole.head_of(full, head).weights()
            torch.testing.assert_close(weights[real], expected[real], rtol=0, atol=1e-5)


def positions_in_generation(real, prompt):
    """The positions that `generate` gives to tokens: padding has the position 0, and what is written goes on from the prompt's last one."""
    positions = (real[:, :prompt].long().cumsum(-1) - 1).masked_fill(~real[:, :prompt], 0)
    return torch.cat([positions, positions[:, -1:] + torch.arange(1, real.shape[1] - prompt + 1)], dim=1)


def test_statistics_of_padding_name_no_slot_that_holds_no_token():
    model = NAMED["Llama"].build("eager")
    ids, real = torch.full((2, 7), 5), torch.arange(7) >= torch.tensor([0, 2])[:, None]
    cache = StaticCache(model.config, max_cache_len=31)
    with record(model, keep="summary") as recording:
        model.generate(ids, attention_mask=real.long(), past_key_values=cache, **EXACT)
    for call in recording.calls:
        opened = call.opened()
        assert (call.queries, call.keys, opened.summary.received.shape[-1]) == (12, 12, 12)
        assert int(opened.summary.top_keys.max()) < 12


@pytest.mark.parametrize("name", ["T5", "Bart"])
@pytest.mark.few_cases(1)
def test_cross_attention_has_a_row_for_each_token_and_the_encoder_runs_once(name):
    family = NAMED[name]
    model = family.build("sdpa")
    with record(model) as recording:
        text = written(model, family).sequences
    inputs = {name: tensor for name, tensor in family.inputs("left").items() if name != "decoder_input_ids"}
    with torch.no_grad(), record(model) as whole:
        model(**inputs, decoder_input_ids=text[:, :-1], use_cache=False)
    assert_equal(recording.calls, recording, whole)
    assert recording.layers == list(family.layers)


def test_beams_follow_their_ancestors():
    family = NAMED["Bart"]
    model = family.build("sdpa")
    with record(model) as recording:
        output = written(model, family, tokens=6, num_beams=3)
    last = output.beam_indices[:, 5]  # the beams of the last pass that the returned sequences ended as
    inputs = {name: tensor for name, tensor in family.inputs("left").items() if name != "decoder_input_ids"}
    with torch.no_grad(), record(model) as whole:
        model(**inputs, decoder_input_ids=output.sequences[:, :-1], use_cache=False)
    decoder = [call for call in recording.calls if "decoder" in call.layer]
    whole.calls = [call for call in whole.calls if "decoder" in call.layer]
    assert_equal(decoder, recording, whole, rows=last)


def test_each_key_is_stored_once_and_passes_have_all_of_theirs(prompt):
    model = NAMED["Llama"].build("sdpa")
    with record(model) as recording:
        model.generate(prompt, **EXACT)
    rows, layers, query_and_output, key_and_value = 12, 2, 2 * 4 * 8, 2 * 2 * 8
    assert recording.bytes == rows * layers * (query_and_output + key_and_value) * 4
    assert [one[1, 3].keys for one in recording.passes] == [7, 8, 9, 10, 11, 12]
    assert torch.equal(recording.passes[-1][1, 3].key, recording[1, 3].key)


@pytest.mark.parametrize("way", [{"num_beams": 3}, {"prompt_lookup_num_tokens": 3}])
def test_a_saved_recording_has_sequences_and_passes(way, prompt, tmp_path):
    model = NAMED["Llama"].build("sdpa")
    with record(model) as recording:
        model.generate(prompt, **EXACT, **way)
    recording.save(tmp_path / "written.safetensors")
    loaded = overt.lens.load(tmp_path / "written.safetensors")
    pairs = [(recording, loaded), *zip(recording.passes, loaded.passes, strict=True)]
    for mine, other in pairs:
        for first, second in zip(mine.heads(), other.heads(), strict=True):
            assert torch.equal(first.weights(), second.weights())


def test_a_chat_is_one_sequence_with_its_cache_and_several_without(prompt):
    model, question = NAMED["Llama"].build("sdpa"), torch.tensor([[5, 6, 7]])
    with record(model) as recording:
        first = model.generate(prompt, return_dict_in_generate=True, **EXACT)
        both = torch.cat([first.sequences, question], dim=1)
        text = model.generate(both, past_key_values=first.past_key_values, attention_mask=torch.ones_like(both), **EXACT)
    assert_equal(recording.calls, recording, in_one_pass(model, text[:, :-1]))
    with record(model) as recording:
        model.generate(prompt, **EXACT)
        model.generate(both, attention_mask=torch.ones_like(both), **EXACT)
    assert [(call.queries, call.number) for call in recording.calls] == [(12, 0), (12, 1), (21, 12), (21, 13)]


def test_two_continuations_of_one_cache_are_two_sequences(prompt):
    model, questions = NAMED["GPT2"].build("sdpa"), [torch.tensor([[5, 6, 7]]), torch.tensor([[8, 9]])]
    with torch.no_grad(), record(model) as recording:
        cache = model(prompt, use_cache=True).past_key_values
        for question in questions:
            model(question, past_key_values=copy.deepcopy(cache))
    for number, question in enumerate(questions):
        whole = in_one_pass(model, torch.cat([prompt, question], dim=1))
        assert_equal(recording.calls[2 * number : 2 * number + 2], recording, whole)


def test_independent_passes_are_never_joined(prompt):
    model = NAMED["Bart"].build("sdpa")
    with record(model) as recording:
        for _ in range(3):
            model(input_ids=prompt, decoder_input_ids=prompt[:, :4])
    assert [len(one) for one in recording.passes] == [6, 6, 6]
    assert len(recording) == 18


def test_keys_that_change_in_the_cache_are_not_joined():
    class Rounded(nn.Module):
        def forward(self, x):
            key = torch.cat([(x[..., :-1, :] * 8).round() / 8, x[..., -1:, :]], dim=-2)  # as a quantised cache does
            return functional.scaled_dot_product_attention(x[..., -1:, :], key, key)

    model, x = Rounded(), torch.randn(1, 1, 5, 4)
    with record(model) as recording:
        for length in range(2, 6):
            model(x[:, :, :length])
    assert [call.keys for call in recording.calls] == [2, 3, 4, 5]


def test_summaries_are_joined_as_far_as_that_is_exact(prompt):
    model = NAMED["Llama"].build("sdpa")
    with record(model, keep="summary") as summaries:
        model.generate(prompt, **EXACT)
    with record(model) as recording:
        model.generate(prompt, **EXACT)
    for summary, head in zip(summaries.heads(), recording.heads(), strict=True):
        torch.testing.assert_close(summary.entropy(), head.entropy())
        torch.testing.assert_close(summary.received(), head.received())
        assert torch.equal(summary.top(9).keys, head.top(9).keys)
    assert summaries.verify().holds
    for ask in (summaries.roles, summaries.page, lambda: summaries[0, 1].map(4)):
        with pytest.raises(overt.errors.InputError, match="Expected a summary of one pass, for .* summaries of several passes"):
            ask()


def test_a_pipeline_is_recorded_by_the_same_call(prompt):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, pipeline

    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(60)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w0")
    model = NAMED["Llama"].build("sdpa")
    writer = pipeline("text-generation", model=model, tokenizer=tokenizer)
    with record(writer, tokenizer=tokenizer) as recording:
        writer("w5 w6 w7", max_new_tokens=4, min_new_tokens=4, do_sample=False)
    assert recording[1, 3].queries == 6
    assert recording.verify().holds
    assert [str(token) for token in recording[0, 0].query_tokens[0][:3]] == ["w5", "w6", "w7"]


def test_a_window_that_dropped_what_tells_beams_apart_takes_their_order_from_other_layers():
    one, other, same, new = torch.randn(4, 1, 1, 8)
    continued = Continued()

    def called(layer, passes, *sequences):
        keys = torch.stack([torch.cat(sequence, dim=-2) for sequence in sequences])  # (B, H, K, D)
        return continued.add(layer, Call.checked(keys[..., -1:, :], keys, keys), passes)

    called("windowed", 0, (one, same), (other, same))
    called("whole", 0, (one, same), (other, same))
    windowed = called("windowed", 1, (same, new), (same, new))
    assert windowed.rows is None
    whole = called("whole", 1, (other, same, new), (one, same, new))
    assert (windowed.rows, whole.rows) == ((1, 0), (1, 0))
    assert continued.in_order == [windowed, whole]
