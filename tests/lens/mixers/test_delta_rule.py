"""Gated DeltaNet in models, recorded whole."""

import pytest
import torch

import overt
from small_mixers import apart, mixers, model, recorded, tokens

FAMILIES = ["Qwen3Next"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_that_mixes_tokens_is_recorded_and_none_is_missing(family):
    recording, _ = recorded(model(family), tokens(2, 70))
    assert recording.missing == []
    assert len(mixers(recording)) == 3
    for call in mixers(recording):
        assert any("convolution over 4 positions" in each for each in call.around)
        assert any("gate" in each for each in call.around)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_weights_of_rows_times_the_values_are_the_models_output(family):
    recording, _ = recorded(model(family), tokens(2, 70))
    for call in mixers(recording):
        weights = call.recurrence.weights([0, 5, 69])
        assert apart(weights @ call.recurrence.value.float(), call.output[:, :, [0, 5, 69]]) < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_of_generation_has_the_keys_since_the_beginning(family):
    made, ids = model(family), tokens(2, 9)
    with torch.no_grad(), overt.lens.record(made) as recording:
        written = made.generate(ids, max_new_tokens=4, do_sample=False)
    whole, _ = recorded(made, written[:, :-1])
    for call, full in zip(mixers(recording)[-3:], mixers(whole), strict=True):
        assert (call.queries, call.keys, call.notes) == (1, 12, ())
        assert apart(call.recurrence.weights(), full.recurrence.weights([11])) < 1e-4
        assert apart(call.recurrence.weights() @ call.recurrence.value, call.output) < 1e-5
