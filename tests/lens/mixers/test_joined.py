"""Generation by a model with linear mixers as one recording: equal to one pass over the whole text, each position stored once."""

import pytest
import tokenizers
import torch

import overt
from overt.errors import InputError, KindError
from overt.lens import record
from overt.lens.linear.captured import CapturedMixer
from small_mixers import model, tokens

FAMILIES = ["Qwen3Next", "MiniMax"]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("OlmoHybrid", "KimiLinear", "xLSTM", "RecurrentGemma")]
EXACT = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}


def in_one_pass(made, ids):
    with torch.no_grad(), record(made) as recording:
        made(ids, use_cache=False)
    return recording


def assert_equal(recording, whole, rows=slice(None)):
    """The weights of both, relative to the largest of a head."""
    for joined, full in zip(recording.calls, whole.calls, strict=True):
        assert (joined.layer, joined.queries, joined.keys) == (full.layer, full.queries, full.keys)
        for head in joined.heads:
            weights = recording.head_of(joined.opened(), head).weights()[rows]
            wanted = whole.head_of(full, head).weights()
            torch.testing.assert_close(weights, wanted, rtol=0, atol=1e-5 * max(1, float(wanted.abs().max())))


@pytest.mark.parametrize("family", [*FAMILIES, *SLOW])
def test_what_a_hybrid_writes_is_one_map_over_all_tokens(family):
    made = model(family)
    with record(made) as recording:
        text = made.generate(tokens(2, 9), **EXACT)
    assert_equal(recording, in_one_pass(made, text[:, :-1]))
    assert recording.verify().holds


@pytest.mark.parametrize("family", ["Qwen3Next", "Mamba"])
@pytest.mark.few_cases(1)
def test_beams_follow_their_ancestors(family):
    made = model(family)
    with record(made) as recording:
        output = made.generate(tokens(1, 9), num_beams=3, num_return_sequences=2, return_dict_in_generate=True, **EXACT)
    assert any(each is not None and each.rows is not None for each in recording.recorded.continuations)
    last = output.beam_indices[:, 4]
    assert_equal(recording, in_one_pass(made, output.sequences[:, :-1]), rows=last)
    assert recording.verify().holds


@pytest.mark.parametrize("family", ["Qwen3Next", "Mamba", "FalconH1"])
@pytest.mark.parametrize("way", [{"num_beams": 3}, {"do_sample": True}, {"num_beams": 3, "do_sample": True}], ids=str)
@pytest.mark.few_cases(1)
def test_each_text_that_was_written_is_found_among_the_sequences_with_its_words(family, way):
    made, words = model(family), tokenizers.models.WordLevel({f"w{number}": number for number in range(60)}, unk_token="w0")
    torch.manual_seed(0)
    with record(made, tokenizer=tokenizers.Tokenizer(words)) as recording:
        written = made.generate(tokens(2, 9), num_return_sequences=2, **(EXACT | way))
    whole = in_one_pass(made, written[:, :-1])
    for number, text in enumerate(written):
        index = recording.sequence_of(text)
        assert [word.id for word in recording[0, 0].key_tokens[index]] == text[:-1].tolist()
        expected = whole[0, 0].weights()[number]
        torch.testing.assert_close(recording[0, 0].weights()[index], expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
        assert recording.sequence_of(text[:-1].tolist()) == index


def test_a_text_that_no_sequence_has_read_is_refused():
    made = model("Qwen3Next")
    with record(made) as recording:
        text = made.generate(tokens(1, 9), **EXACT)[0]
    with pytest.raises(
        InputError, match=r"one of 1 sequences, 13 or 14 ids, got 14 ids, with which none of these sequences begins"
    ):
        recording.sequence_of(text.flip(0))
    for other in (text[:12], torch.cat([text, text])):
        with pytest.raises(InputError, match=r"as one of 1 sequences, 13 or 14 ids, got (12|28) ids"):
            recording.sequence_of(other)
    with pytest.raises(KindError, match="token ids, a tensor or a list of numbers, got str"):
        recording.sequence_of("a text")


def test_summaries_of_single_steps_are_no_whole_text():
    made = model("Mamba")
    with record(made, keep="summary") as recording:
        text = made.generate(tokens(1, 9), **EXACT)[0]
    with pytest.raises(InputError, match="as one of 1 sequences, 1 or 2 ids, got 14 ids"):
        recording.sequence_of(text)


def test_sampled_sequences_are_joined_each_with_its_own():
    made = model("Qwen3Next")
    torch.manual_seed(0)
    with record(made) as recording:
        text = made.generate(tokens(1, 9), num_return_sequences=3, **(EXACT | {"do_sample": True}))
    assert_equal(recording, in_one_pass(made, text[:, :-1]))


def test_each_position_is_stored_once_and_passes_have_all_of_theirs():
    made = model("Qwen3Next")
    with record(made) as recording:
        made.generate(tokens(1, 9), **EXACT)
    stored = [call for call in recording.recorded.stored if isinstance(call, CapturedMixer)]
    assert [call.recurrence.keys for call in stored] == [9, 1, 1, 1, 1]
    assert [one[0, 0].keys for one in recording.passes] == [9, 10, 11, 12, 13]
    assert torch.equal(recording.passes[-1][0, 3].weights(), recording[0, 3].weights()[:, -1:])


@pytest.mark.parametrize("way", [pytest.param({}, marks=pytest.mark.slow), {"num_beams": 3}])
def test_a_saved_recording_has_sequences_and_passes(way, tmp_path):
    made = model("Qwen3Next")
    with record(made, heads=[1, 2], offload="disk") as recording:
        made.generate(tokens(1, 9), **EXACT, **way)
    recording.save(tmp_path / "written.safetensors")
    loaded = overt.lens.load(tmp_path / "written.safetensors")
    for mine, other in [(recording, loaded), *zip(recording.passes, loaded.passes, strict=True)]:
        for first, second in zip(mine.heads(), other.heads(), strict=True):
            assert torch.equal(first.weights(), second.weights())
    assert loaded.page()[:15] == "<!doctype html>"


def test_a_chat_goes_on_with_its_state():
    made, text = model("Qwen3Next"), tokens(1, 12)
    with torch.no_grad(), record(made) as recording:
        cache = made(text[:, :7], use_cache=True).past_key_values
        for number in range(7, 12):
            made(text[:, number : number + 1], past_key_values=cache, use_cache=True)
    assert_equal(recording, in_one_pass(made, text))


def test_joined_heads_answer_as_those_of_one_pass_do():
    made = model("Qwen3Next")
    with record(made) as recording:
        text = made.generate(tokens(1, 9), **EXACT)
    for joined, full in zip(recording.heads(), in_one_pass(made, text[:, :-1]).heads(), strict=True):
        torch.testing.assert_close(joined.entropy(), full.entropy(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(joined.received(), full.received(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(joined.map(4), full.map(4), rtol=1e-4, atol=1e-4)
    for joined, full in zip(recording.roles(), in_one_pass(made, text[:, :-1]).roles(), strict=True):
        assert joined.scores == pytest.approx(full.scores, abs=1e-4)


def test_chosen_layers_are_joined_too():
    made = model("Qwen3Next")
    with record(made, layers=["model.layers.0"]) as recording:
        text = made.generate(tokens(1, 9), **EXACT)
    whole = in_one_pass(made, text[:, :-1])
    whole.calls = whole.calls[:1]
    assert_equal(recording, whole)


def test_independent_passes_are_never_joined():
    made = model("Qwen3Next")
    with torch.no_grad(), record(made) as recording:
        for _ in range(2):
            made(tokens(1, 9))
    assert [call.queries for call in recording.calls] == [9, 9, 9, 9]
