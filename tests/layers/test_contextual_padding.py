"""With lengths, each sequence of a padded batch gets what it would get alone."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence

from overt.errors import InputError
from overt.layers import Contextual

LENGTHS = torch.tensor([3, 7, 5])

LAYERS = {
    "gru": lambda: nn.GRU(4, 3, batch_first=True, bidirectional=True),
    "lstm": lambda: nn.LSTM(4, 3, batch_first=True, num_layers=2),
    "rnn, length first": lambda: nn.RNN(4, 3),
    "linear": lambda: nn.Linear(4, 3),
    "conv": lambda: nn.Conv1d(4, 3, 3, padding=1),
    "conv, strided": lambda: nn.Conv1d(4, 3, 3, stride=2, dilation=1),
    "conv, longer than its input": lambda: nn.Conv1d(4, 3, 1, padding=1),
    "conv, same": lambda: nn.Conv1d(4, 3, 5, padding="same", dilation=2),
    "two convs": lambda: nn.Sequential(nn.Conv1d(4, 5, 3, padding=1), nn.ReLU(), nn.Conv1d(5, 3, 3, padding=1)),
    "linear, gru": lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.GRU(6, 3, batch_first=True, bidirectional=True)),
    "contextual, linear": lambda: nn.Sequential(Contextual(nn.Linear(4, 5), "dot"), nn.Linear(10, 3)),
    "contextual conv, conv": lambda: nn.Sequential(Contextual(nn.Conv1d(4, 2, 3, stride=2), "dot"), nn.Conv1d(4, 3, 1)),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
    "transformers": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
    ),
    "transformer, length first": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
}


def contextual(name, attention="additive"):
    torch.manual_seed(0)
    return Contextual(LAYERS[name](), attention).double()


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hidden_of(output):
    return output[0] if isinstance(output, tuple) else output


def arranged(name, rows):
    """From (..., L, D) to the layer's order, or back."""
    if "conv" in name:
        return rows.mT
    return rows.transpose(0, 1) if "length first" in name and rows.ndim == 3 else rows


def padded_batch(lengths, filling):
    inside = torch.arange(7) < lengths[:, None]
    return torch.where(inside[..., None], normal(len(lengths), 7, 4), filling)


@pytest.mark.parametrize("name", LAYERS)
def test_each_sequence_gets_what_it_would_get_alone_and_zeros_after(name):
    layer, x = contextual(name), padded_batch(LENGTHS, 5.0)
    output = arranged(name, hidden_of(layer(arranged(name, x), lengths=LENGTHS)))
    for row, length, sequence in zip(output, LENGTHS, x, strict=True):
        alone = arranged(name, hidden_of(layer(arranged(name, sequence[:length]))))
        torch.testing.assert_close(row[: len(alone)], alone)
        assert not row[len(alone) :].any()


@pytest.mark.parametrize("name", LAYERS)
def test_evaluation_without_gradients_gives_the_same(name):
    layer, lengths = contextual(name), torch.tensor([3, 0, 5])
    x = arranged(name, padded_batch(lengths, torch.nan))
    wanted = hidden_of(layer(x, lengths=lengths))
    with torch.no_grad():
        torch.testing.assert_close(hidden_of(layer.eval()(x, lengths=lengths)), wanted)


@pytest.mark.parametrize("name", LAYERS)
def test_nothing_in_the_padding_reaches_an_output_or_a_gradient(name):
    layer, result = contextual(name), []
    lengths = torch.tensor([3, 0, 5])
    for filling in (0.0, torch.nan, torch.inf):
        layer.zero_grad()
        x = padded_batch(lengths, filling).requires_grad_()
        output = hidden_of(layer(arranged(name, x), lengths=lengths))
        output.square().sum().backward()
        result.append([output, x.grad, *(parameter.grad for parameter in layer.parameters())])
    assert all(tensor.isfinite().all() for tensor in result[0])
    for each in result[1:]:
        torch.testing.assert_close(each, result[0])


@pytest.mark.parametrize("name", LAYERS)
def test_a_sequence_of_length_0_gives_zeros(name):
    layer, x = contextual(name), padded_batch(LENGTHS, 0.0)
    output = arranged(name, hidden_of(layer(arranged(name, x), lengths=torch.tensor([7, 0, 7]))))
    assert not output[1].any()
    assert output[0].any()


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_packed_is_the_same_as_padded_with_lengths(kind):
    torch.manual_seed(0)
    layer = Contextual(kind(4, 3, batch_first=True, bidirectional=True), "additive").double()
    sequences = [normal(int(n), 4, seed=int(n)) for n in LENGTHS]
    packed, packed_states = layer(pack_sequence(sequences, enforce_sorted=False))
    output, states = layer(pad_sequence(sequences, batch_first=True), lengths=LENGTHS)
    torch.testing.assert_close(output, pad_packed_sequence(packed, batch_first=True)[0])
    torch.testing.assert_close(states, packed_states)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_an_empty_sequence_leaves_the_first_state_as_it_was(kind):
    layer = Contextual(kind(4, 3, batch_first=True), "additive").double()
    x, lengths = normal(2, 7, 4), torch.tensor([0, 7])
    first = [normal(1, 2, 3, seed=seed) for seed in ((2, 3) if kind is nn.LSTM else (2,))]
    zeros = [torch.zeros_like(state) for state in first]
    for inputs, wanted in ((None, zeros), (tuple(first) if kind is nn.LSTM else first[0], first)):
        states = layer(x, inputs, lengths=lengths)[1]
        for state, start in zip(states if kind is nn.LSTM else [states], wanted, strict=True):
            assert torch.equal(state[:, 0], start[:, 0])
            assert not torch.equal(state[:, 1], start[:, 1])


def test_tokens_are_padded_with_any_token():
    torch.manual_seed(0)
    layer = Contextual(nn.Sequential(nn.Embedding(9, 4), nn.GRU(4, 3, batch_first=True)), "dot").double()
    ids, lengths = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([3, 2])
    output, _ = layer(ids, lengths=lengths)
    other, _ = layer(torch.tensor([[1, 2, 3], [4, 5, 8]]), lengths=lengths)
    assert torch.equal(output, other)
    torch.testing.assert_close(output[1, :2], layer(ids[1:, :2])[0][0])


def test_a_module_that_takes_lengths_gets_them():
    class Counted(nn.Module):
        def forward(self, x, lengths=None):
            return x * lengths[:, None, None]

    layer, x = Contextual(Counted(), "dot", axis=1, features=4).double(), normal(3, 7, 4)
    assert torch.equal(layer(x, lengths=LENGTHS)[2, :5, :4], x[2, :5] * 5)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            nn.Conv1d(4, 3, 3, padding=1, padding_mode="circular"),
            'padding_mode="zeros" in a convolution.*got padding_mode=.circular.',
        ),
        (
            nn.Sequential(nn.Conv1d(4, 3, 3), nn.MaxPool1d(1), nn.Conv1d(3, 3, 1)),
            "padding can be excluded, .*, got nn.MaxPool1d",
        ),
    ],
)
def test_a_layer_whose_padding_cannot_be_kept_apart_is_refused_with_lengths(layer, message):
    layer = Contextual(layer, "dot").double()
    with pytest.raises(InputError, match=message):
        layer(normal(3, 4, 7), lengths=LENGTHS)


def test_padding_is_told_once():
    layer = contextual("transformer")
    with pytest.raises(InputError, match="either lengths= or src_key_padding_mask=.*, got both"):
        layer(normal(3, 7, 4), lengths=LENGTHS, src_key_padding_mask=torch.zeros(3, 7).bool())
