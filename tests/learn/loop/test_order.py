"""What order and distance do, learned: small tasks, a fixed seed each, and a wide margin between can and cannot."""

import pytest
import torch

from overt.errors import InputError
from overt.learn.examples.order import FIRST, Recall, recall, rewriting, sequences
from overt.models import Seq2Seq, Transformer


def transformer(positions):
    torch.manual_seed(0)
    return Transformer(
        12, 12, 32, heads=4, encoder_layers=1, decoder_layers=1, feed_forward=64, dropout=0.0, positions=positions
    )


def shuffled(model):
    """The scores of a source, and of a permutation of it."""
    model = model.double().eval()
    source, target = torch.tensor([[4, 5, 6, 7, 8, 9]]), torch.tensor([[1, 6, 7]])
    return model(source, target), model(source[:, [3, 0, 5, 1, 4, 2]], target)


def test_without_positions_a_source_and_its_permutation_are_one():
    torch.testing.assert_close(*shuffled(transformer(None)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi"])
def test_with_positions_they_are_not(positions):
    original, permuted = shuffled(transformer(positions))
    assert not torch.allclose(original, permuted)


def test_a_recurrent_encoder_reads_order():
    torch.manual_seed(0)
    original, permuted = shuffled(Seq2Seq(12, 12, 8))
    assert not torch.allclose(original, permuted)


@pytest.mark.slow
def test_without_positions_a_transformer_learns_to_sort():
    assert rewriting(transformer(None), "sort", updates=200) > 0.9


@pytest.mark.parametrize("task", ["reverse", pytest.param("copy", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_without_positions_it_learns_neither_to_copy_nor_to_reverse(task):
    assert rewriting(transformer(None), task, updates=200) < 0.1


@pytest.mark.parametrize(
    "task", ["reverse", pytest.param("copy", marks=pytest.mark.slow), pytest.param("sort", marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_with_positions_it_learns_to(task):
    assert rewriting(transformer("sinusoidal"), task) > 0.9


@pytest.mark.slow
def test_a_recurrent_translator_learns_to_reverse_without_positions():
    torch.manual_seed(0)
    assert rewriting(Seq2Seq(12, 12, 32), "reverse") > 0.9


@pytest.mark.parametrize("layer", ["rnn", "gru", "lstm", "attention"])
@pytest.mark.few_cases(1)
def test_all_recall_what_came_four_places_before(layer):
    assert recall(layer, 4) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer", ["lstm", pytest.param("rnn", marks=pytest.mark.slow), pytest.param("gru", marks=pytest.mark.slow)]
)
def test_recurrent_layers_trained_as_long_do_not_recall_from_thirty_two_places(layer):
    assert recall(layer, 32) < 0.4


def test_to_attention_thirty_two_places_are_no_farther_than_four():
    assert recall("attention", 32) > 0.9


@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_a_sequence_has_different_symbols_and_its_answer(task):
    source, target = sequences(task, 50, 5, 8, torch.Generator().manual_seed(0))
    assert source.min() >= FIRST
    assert source.max() < FIRST + 8
    for row, wanted in zip(source.tolist(), target.tolist(), strict=True):
        assert len(set(row)) == 5
        assert wanted == {"copy": row, "reverse": row[::-1], "sort": sorted(row)}[task]


def test_names_that_are_not_known_are_refused():
    with pytest.raises(InputError, match="task to be one of 'copy', 'reverse', 'sort', got 'shuffle'"):
        sequences("shuffle", 1, 3, 5, torch.Generator())
    with pytest.raises(InputError, match="layer to be one of 'rnn', 'gru', 'lstm', 'attention', got 'cnn'"):
        Recall("cnn", 8)
