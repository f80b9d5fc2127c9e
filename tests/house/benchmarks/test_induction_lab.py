"""The induction circuit of the fifth chapter forms, and falls apart without either of its heads."""

import importlib

import pytest

from overt.lens import probe


@pytest.fixture
def induction():
    return importlib.import_module("benchmarks.lens.induction")


@pytest.mark.slow
def test_two_layers_form_the_circuit_in_400_updates_and_need_both_heads(induction):
    model, _ = induction.trained(0, 400)
    assert induction.loss_on_repeats(model) < 0.3
    result = probe(model, length=64)
    assert result[0, 0].scores["previous token"].above_chance
    assert result[1, 0].role == "induction"
    for head in ((0, 0), (1, 0)):
        assert induction.loss_on_repeats(model, [head]) > 2.5


def test_texts_start_again_after_their_period(induction):
    tokens = induction.repeating(20, induction.torch.Generator().manual_seed(0))
    assert tokens.shape == (20, induction.LENGTH)
    for row in tokens.tolist():
        assert any(row[:-period] == row[period:] for period in range(6, 17))
