"""Contextual: the same call and return as the layer alone, with [h_i, c_i] in the place of h_i."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

import overt
from overt.errors import InputError, KindError
from overt.layers import Contextual, SelfAttention

NAMES = ["additive", "concat", "general", "dot", "cosine", "gaussian"]
RECURRENT = [nn.RNN, nn.GRU, nn.LSTM]


def contextual(layer, attention="additive", **options):
    torch.manual_seed(0)
    return Contextual(layer, attention, **options).double()


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_on_an_lstm_it_is_the_lstm_then_attend_then_cat():
    layer, x = contextual(nn.LSTM(3, 5, batch_first=True)), normal(2, 7, 3)
    output, states = layer(x)
    hidden, wanted_states = layer.layer(x)
    p = layer.attention.scoring
    q, k = hidden @ p.query.weight.T, hidden @ p.key.weight.T
    context = overt.attend(q, k, hidden, score=overt.Additive(p.weight))
    assert torch.equal(output, torch.cat([hidden, context], dim=-1))
    assert all(torch.equal(result, wanted) for result, wanted in zip(states, wanted_states, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_whatever_the_score_the_context_is_a_mixture_of_the_hidden_states(name):
    layer, x = contextual(nn.GRU(3, 5, batch_first=True), name), normal(2, 7, 3)
    hidden, context = layer(x)[0].split(5, dim=-1)
    weights = layer.attention.weights(hidden)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 7).double())
    torch.testing.assert_close(context, weights @ hidden)


def test_a_score_of_ones_own_or_a_self_attention_is_taken_as_it_is():
    x = normal(7, 3)
    layer = contextual(nn.Linear(3, 4), overt.Dot(scale=1.0))
    hidden = layer.layer(x)
    torch.testing.assert_close(layer(x), torch.cat([hidden, overt.attend(hidden, hidden, hidden, score=overt.Dot(1.0))], -1))
    attention = SelfAttention(4, "dot", window=1)
    assert contextual(nn.Linear(3, 4), attention).attention is attention


def hidden_of(output):
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("kind", RECURRENT)
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"num_layers": 2}])
def test_axis_order_directions_and_missing_batch_are_the_layers_own(kind, options):
    torch.manual_seed(0)
    first = contextual(kind(3, 5, batch_first=True, **options))
    second = contextual(kind(3, 5, **options))
    second.load_state_dict(first.state_dict())
    x = normal(2, 7, 3)
    output = hidden_of(first(x))
    width = 10 if options.get("bidirectional") else 5
    assert output.shape == (2, 7, 2 * width)
    assert first.features == 2 * width
    assert torch.equal(output[..., :width], hidden_of(first.layer(x)))
    torch.testing.assert_close(hidden_of(second(x.transpose(0, 1))), output.transpose(0, 1))
    torch.testing.assert_close(hidden_of(first(x[0])), output[0])
    torch.testing.assert_close(hidden_of(second(x[0])), output[0])


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_first_hidden_state_is_passed_through(kind):
    layer, x = contextual(kind(3, 5)), normal(7, 2, 3)
    start = normal(1, 2, 5, seed=2)
    start = (start, normal(1, 2, 5, seed=3)) if kind is nn.LSTM else start
    output, states = layer(x, start)
    hidden, wanted = layer.layer(x, start)
    assert torch.equal(output[..., :5], hidden)
    torch.testing.assert_close(states, wanted)
    assert not torch.equal(output, layer(x)[0])
    assert torch.equal(layer(x, hx=start)[0], output)


def test_projected_lstm_states_are_as_wide_as_the_projection():
    layer = contextual(nn.LSTM(3, 5, proj_size=2, bidirectional=True, batch_first=True))
    assert layer.features == 8
    assert layer(normal(2, 7, 3))[0].shape == (2, 7, 8)


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("kind", RECURRENT)
def test_a_packed_sequence_comes_out_packed_and_attends_within_each_sequence_only(kind, enforce_sorted):
    layer = contextual(kind(3, 5, bidirectional=True, batch_first=True))
    sequences = [normal(n, 3, seed=n) for n in ((6, 4, 1) if enforce_sorted else (1, 6, 4))]
    packed = pack_sequence(sequences, enforce_sorted=enforce_sorted)
    output, states = layer(packed)
    hidden, wanted_states = layer.layer(packed)
    assert isinstance(output, PackedSequence)
    assert torch.equal(output.batch_sizes, hidden.batch_sizes)
    for result, wanted in ((output.sorted_indices, hidden.sorted_indices), (output.unsorted_indices, hidden.unsorted_indices)):
        assert (result is None and wanted is None) or torch.equal(result, wanted)
    torch.testing.assert_close(states, wanted_states)
    padded, lengths = pad_packed_sequence(output, batch_first=True)
    for row, length, sequence in zip(padded, lengths, sequences, strict=True):
        torch.testing.assert_close(row[:length], layer(sequence)[0])


def test_a_mask_of_a_packed_call_is_in_the_order_of_the_batch():
    layer = contextual(nn.GRU(3, 5, batch_first=True))
    sequences = [normal(n, 3, seed=n) for n in (2, 6)]
    first_key_only = overt.masks.Keys(
        torch.tensor([[False, True, True, True, True, True], [True, False, False, False, False, False]])
    )
    output, _ = layer(pack_sequence(sequences, enforce_sorted=False), mask=first_key_only)
    padded, _ = pad_packed_sequence(output, batch_first=True)
    hidden = padded[..., :5]
    torch.testing.assert_close(padded[0, :2, 5:], hidden[0, 1].expand(2, 5))
    torch.testing.assert_close(padded[1, :, 5:], hidden[1, 0].expand(6, 5))


def test_a_convolution_keeps_its_axis_order_and_its_length():
    layer, x = contextual(nn.Conv1d(3, 4, kernel_size=3, stride=2)), normal(2, 3, 9)
    output, hidden = layer(x), layer.layer(x)
    assert output.shape == (2, 8, 4)
    assert torch.equal(output[:, :4], hidden)
    torch.testing.assert_close(output[:, 4:], layer.attention(hidden.mT).mT)
    torch.testing.assert_close(layer(x[0]), output[0])


def test_a_linear_layer_takes_any_leading_dimensions():
    layer, x = contextual(nn.Linear(3, 4)), normal(2, 5, 7, 3)
    output = layer(x)
    assert output.shape == (2, 5, 7, 8)
    torch.testing.assert_close(layer(x[1, 3]), output[1, 3])


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_transformer_layer_keeps_its_axis_order(batch_first):
    layer = contextual(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=batch_first))
    x = normal(2, 7, 4) if batch_first else normal(7, 2, 4)
    output, hidden = layer(x), layer.layer(x)
    assert torch.equal(output[..., :4], hidden)
    states = hidden if batch_first else hidden.transpose(0, 1)
    context = layer.attention(states)
    torch.testing.assert_close(output[..., 4:], context if batch_first else context.transpose(0, 1))


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_padding_mask_of_a_transformer_layer_holds_for_the_attention(batch_first):
    layer = contextual(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=batch_first))

    def batched(x):
        return x if batch_first else x.transpose(0, 1)

    x, padding = normal(2, 7, 4), torch.arange(7) >= torch.tensor([[7], [3]])
    output = layer(batched(x), src_key_padding_mask=padding)
    torch.testing.assert_close(batched(output)[1, :3], batched(layer(batched(x[1:, :3])))[0])
    assert torch.equal(layer(batched(x), None, padding), output)


def test_a_sequential_is_read_by_its_layers():
    embedded = contextual(nn.Sequential(nn.Embedding(10, 3), nn.LSTM(3, 5, batch_first=True)))
    output, (h_n, _) = embedded(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    assert output.shape == (2, 3, 10)
    assert h_n.shape == (1, 2, 5)
    convolved = contextual(nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv1d(4, 6, 1), nn.ReLU()))
    assert convolved(normal(2, 3, 7)).shape == (2, 12, 7)
    stacked = contextual(nn.Sequential(contextual(nn.Linear(3, 4)), nn.Tanh(), contextual(nn.Linear(8, 5))))
    assert stacked(normal(2, 7, 3)).shape == (2, 7, 20)


def test_any_other_module_says_its_axis_and_features():
    class Reversed(nn.Module):
        def forward(self, x):
            return x.flip(1)

    layer, x = contextual(Reversed(), axis=1, features=3), normal(2, 7, 3)
    assert torch.equal(layer(x)[..., :3], x.flip(1))
    assert contextual(Reversed(), SelfAttention(3), axis=1).features == 6
    channels_first = contextual(Reversed(), axis=2, features=7)
    assert torch.equal(channels_first(x)[:, 7:], channels_first.attention(x.flip(1).mT).mT)
    length_first = contextual(nn.Linear(3, 4), axis=0)
    batch_first = contextual(nn.Linear(3, 4))
    batch_first.load_state_dict(length_first.state_dict())
    torch.testing.assert_close(length_first(x.transpose(0, 1)), batch_first(x).transpose(0, 1))


def test_a_causal_layer_does_not_look_ahead():
    layer, x = contextual(nn.LSTM(3, 5, batch_first=True), causal=True), normal(2, 7, 3)
    changed = torch.cat([x[:, :4], normal(2, 3, 3, seed=2)], dim=1)
    torch.testing.assert_close(layer(changed)[0][:, :4], layer(x)[0][:, :4])
    assert not torch.allclose(contextual(nn.LSTM(3, 5, batch_first=True))(changed)[0][:, :4], layer(x)[0][:, :4])
    windowed = contextual(nn.Linear(3, 5), window=(1, 0))
    torch.testing.assert_close(windowed(x)[:, 3], windowed(x[:, 2:4])[:, 1])


def test_of_two_stacked_the_second_reads_hidden_state_and_context_of_the_first():
    first = contextual(nn.GRU(3, 5, batch_first=True))
    second = contextual(nn.LSTM(first.features, 4, batch_first=True), "general")
    x = normal(2, 7, 3)
    between, _ = first(x)
    output, _ = second(between)
    assert output.shape == (2, 7, 8)
    output.square().sum().backward()
    for module in (first, second):
        assert all(parameter.grad is not None and parameter.grad.any() for parameter in module.parameters())
    packed, _ = second(first(pack_sequence([x[0], x[1, :3]]))[0])
    torch.testing.assert_close(pad_packed_sequence(packed, batch_first=True)[0][0], output[0])


def test_torchs_fast_path_of_a_transformer_layer_gives_the_same():
    x = normal(2, 7, 4)
    layer = contextual(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True))
    trained = layer(x)
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(x), trained)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.few_cases(2)
def test_gradients_are_those_of_finite_differences(name):
    layer = contextual(nn.GRU(2, 3, batch_first=True), name)
    parameters = dict(layer.named_parameters())

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(parameters, values, strict=True)), (x,))[0]

    assert torch.autograd.gradcheck(run, (normal(2, 3, 2).requires_grad_(), *parameters.values()))


def test_compiled_as_one_graph_over_a_linear_layer_it_gives_the_same():
    torch._dynamo.reset()
    layer, x = contextual(nn.Linear(3, 4), causal=True), normal(2, 5, 3)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x), rtol=1e-12, atol=1e-12)


def test_a_state_dict_and_a_deep_copy_give_the_same_layer():
    layer, x = contextual(nn.LSTM(3, 5)), normal(7, 2, 3)
    restored = Contextual(nn.LSTM(3, 5), "additive").double()
    restored.load_state_dict(layer.state_dict())
    assert torch.equal(restored(x)[0], layer(x)[0])
    assert torch.equal(copy.deepcopy(layer)(x)[0], layer(x)[0])


def test_half_precision_and_autocast_stay_near_float32():
    layer, x = contextual(nn.Linear(3, 5)).float(), normal(2, 7, 3).float()
    wanted = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = layer(x)
    low = layer.bfloat16()(x.bfloat16())
    assert low.dtype == torch.bfloat16
    for result in (under, low):
        torch.testing.assert_close(result.float(), wanted, rtol=2e-2, atol=2e-2)


class Unknown(nn.Module):
    def forward(self, x):
        return x


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: Contextual(nn.LSTM, "additive"), KindError, "a torch.nn.Module in Contextual, got <class"),
        (lambda: Contextual(nn.LSTM(3, 5), "bahdanau"), InputError, "one of additive, .*got .bahdanau'"),
        (lambda: Contextual(Unknown(), "additive"), InputError, "got Unknown without axis= and features=.* features=64"),
        (lambda: Contextual(Unknown(), "additive", axis=1), InputError, "got Unknown without features="),
        (lambda: Contextual(Unknown(), "additive", axis=3, features=4), InputError, r"pass 0 for \(L, B, D\)"),
        (
            lambda: Contextual(nn.LSTM(3, 5), "additive", axis=1),
            InputError,
            "the positions of this nn.LSTM on axis 0, got axis=1",
        ),
        (
            lambda: Contextual(nn.LSTM(3, 5), "additive", features=6),
            InputError,
            "5 features, as this nn.LSTM has, got features=6",
        ),
        (
            lambda: Contextual(nn.LSTM(3, 5), SelfAttention(6)),
            InputError,
            r"a SelfAttention for 5 features, .*, got SelfAttention\(6\)",
        ),
        (lambda: Contextual(nn.LSTM(3, 5), SelfAttention(5), causal=True), InputError, "causal and window in the Self"),
        (lambda: Contextual(nn.GRU(3, 5, bidirectional=True), "dot", causal=True), InputError, "bidirectional=False"),
        (lambda: Contextual(nn.Sequential(nn.GRU(3, 5), nn.Linear(5, 5)), "dot"), InputError, "nn.GRU before another layer"),
        (
            lambda: Contextual(nn.Sequential(nn.Conv1d(3, 5, 1), nn.GRU(5, 5)), "dot"),
            InputError,
            "layers with their positions on one axis",
        ),
        (lambda: contextual(nn.LSTM(3, 5))(normal(2, 7, 6)), InputError, "3 features for this nn.LSTM, got .* which has 6"),
        (
            lambda: contextual(nn.Conv1d(3, 5, 1))(normal(2, 7, 3)),
            InputError,
            "3 features for this nn.Conv1d, .* which has 7",
        ),
        (lambda: contextual(nn.LSTM(3, 5))(pack_sequence([normal(2, 4)])), InputError, "3 features for .*, got packed data"),
        (lambda: contextual(nn.Linear(3, 5))(pack_sequence([normal(2, 3)])), KindError, "padded sequences for nn.Linear"),
        (lambda: contextual(nn.Linear(3, 5))(torch.ones(7, 3).long()), KindError, "embed the tokens first"),
        (
            lambda: contextual(Unknown(), axis=1, features=4)(normal(2, 7, 3)),
            InputError,
            r"4 features.*got a tensor \(2, 7, 3\)",
        ),
        (lambda: contextual(nn.GRU(3, 5))(normal(7, 3), lengths=[7]), InputError, "lengths"),
        (lambda: contextual(nn.GRU(3, 5))(pack_sequence([normal(2, 3)]), lengths=[2]), InputError, "since it has its lengths"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_fix(make, kind, message):
    with pytest.raises(kind, match=message) as caught:
        make()
    assert "Fix:" in str(caught.value)


def test_the_layer_behind_one_learns_in_the_error_that_it_reads_twice_the_width():
    first, second = contextual(nn.Linear(3, 4)), contextual(nn.Linear(4, 4))
    with pytest.raises(
        InputError,
        match=r"4 features for this nn.Linear, got an input \(2, 7, 8\), which has 8.* \[h, c\] of a Contextual is twice as wide",
    ):
        nn.Sequential(first, second)(normal(2, 7, 3))
