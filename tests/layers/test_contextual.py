"""Contextual: the call and the return of the layer alone, twice the width, [h_i, c_i]."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import overt
from overt.errors import InputError, KindError
from overt.layers import Contextual, SelfAttention

NAMES = ["additive", "dot", "general", "concat", "cosine", "gaussian"]


def joined(hidden, attention, **options):
    """[h, c] by hand, from states (B, n, d)."""
    return torch.cat([hidden, attention(hidden, **options)], dim=-1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_recurrent_layer_returns_its_states_unchanged_beside_h_and_c(kind, name):
    layer = Contextual(kind(5, 4, batch_first=True), name)
    x = torch.randn(2, 7, 5)
    hidden, states = layer.layer(x)
    output, kept = layer(x)
    torch.testing.assert_close(output, joined(hidden, layer.attention))
    torch.testing.assert_close(kept, states)
    assert output.shape == (2, 7, layer.features) == (2, 7, 8)


def test_the_context_is_the_mixture_that_attend_gives_of_the_states():
    layer = Contextual(nn.LSTM(5, 4, batch_first=True), "additive")
    x = torch.randn(2, 7, 5)
    h = layer.layer(x)[0]
    scoring = layer.attention.scoring
    context = overt.attend(scoring.queries(h), scoring.keys(h), h, score=scoring.score())
    torch.testing.assert_close(layer(x)[0], torch.cat([h, context], dim=-1))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    "options", [{"bidirectional": True}, {"num_layers": 2}, {"proj_size": 3}, {"proj_size": 3, "bidirectional": True}]
)
def test_bidirectional_deep_and_projected_layers_have_their_own_width(options):
    lstm = nn.LSTM(5, 4, batch_first=True, **options)
    layer = Contextual(lstm, "dot")
    assert layer(torch.randn(2, 7, 5))[0].shape == (2, 7, 2 * lstm(torch.randn(2, 7, 5))[0].shape[-1])


def test_an_initial_state_is_passed_through():
    layer, x = Contextual(nn.LSTM(5, 4, batch_first=True), "dot"), torch.randn(2, 7, 5)
    start = (torch.randn(1, 2, 4), torch.randn(1, 2, 4))
    output, states = layer(x, start)
    hidden, wanted = layer.layer(x, start)
    torch.testing.assert_close(output[..., :4], hidden)
    torch.testing.assert_close(states, wanted)
    assert not torch.allclose(output, layer(x)[0])


def test_time_first_and_unbatched_inputs_keep_their_order():
    layer = Contextual(nn.GRU(5, 4), "additive")
    x = torch.randn(7, 2, 5)
    first = Contextual(nn.GRU(5, 4, batch_first=True), "additive")
    first.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x)[0], first(x.transpose(0, 1))[0].transpose(0, 1))
    torch.testing.assert_close(layer(x[:, 0])[0], layer(x)[0][:, 0])


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_packed_in_is_packed_out_and_each_sequence_is_as_alone(kind, enforce_sorted):
    layer, x = Contextual(kind(5, 4, batch_first=True), "additive"), torch.randn(3, 7, 5)
    lengths = [7, 4, 2] if enforce_sorted else [2, 7, 4]
    output, _ = layer(pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=enforce_sorted))
    assert isinstance(output, PackedSequence)
    padded, found = pad_packed_sequence(output, batch_first=True)
    assert found.tolist() == lengths
    for i, length in enumerate(lengths):
        torch.testing.assert_close(padded[i, :length], layer(x[i, :length])[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.GRU(5, 4, batch_first=True),
        lambda: nn.LSTM(5, 4, batch_first=True, bidirectional=True),
        lambda: nn.Linear(5, 4),
        lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.GRU(6, 4, batch_first=True)),
        lambda: nn.TransformerEncoderLayer(5, 1, 8, dropout=0.0, batch_first=True),
    ],
)
def test_with_lengths_each_sequence_is_as_alone_whatever_padding_holds(make):
    layer, x, lengths = Contextual(make(), "additive").eval(), torch.randn(3, 7, 5), torch.tensor([7, 3, 0])
    x[1, 3:], x[2] = torch.nan, torch.nan
    output = layer(x, lengths=lengths)
    output = output[0] if isinstance(output, tuple) else output
    for i, length in enumerate(lengths.tolist()):
        assert (output[i, length:] == 0).all()
        if length:
            alone = layer(x[i : i + 1, :length])
            torch.testing.assert_close(output[i, :length], (alone[0] if isinstance(alone, tuple) else alone)[0])


def test_a_convolution_keeps_its_axis_order_and_its_lengths():
    layer, x = Contextual(nn.Conv1d(5, 4, 3, padding=1), "dot"), torch.randn(2, 5, 7)
    hidden = layer.layer(x)
    torch.testing.assert_close(layer(x), joined(hidden.mT, layer.attention).mT)
    short = layer(x, lengths=torch.tensor([7, 4]))
    torch.testing.assert_close(short[1, :, :4], layer(x[1:, :, :4])[0])


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_transformer_layer_and_its_padding_mask_are_understood(batch_first):
    inner = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
    layer, x = Contextual(inner, "dot"), torch.randn(2, 6, 8)
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    given = x if batch_first else x.transpose(0, 1)
    output = layer(given, src_key_padding_mask=padding)
    output = output if batch_first else output.transpose(0, 1)
    alone = layer(x[1:, :4] if batch_first else x[1:, :4].transpose(0, 1))
    torch.testing.assert_close(output[1, :4], (alone if batch_first else alone.transpose(0, 1))[0], rtol=1e-4, atol=1e-5)


def test_two_stacked_train_each_reading_the_others_h_and_c():
    first = Contextual(nn.GRU(3, 4, batch_first=True), "additive")
    second = Contextual(nn.GRU(first.features, 4, batch_first=True), "general")
    output, _ = second(first(torch.randn(2, 5, 3))[0])
    output.square().sum().backward()
    assert output.shape == (2, 5, 8)
    for name, parameter in [*first.named_parameters(), *second.named_parameters()]:
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_a_causal_context_does_not_see_what_comes_after():
    layer, x = Contextual(nn.GRU(3, 4, batch_first=True), "additive", causal=True), torch.randn(1, 6, 3)
    changed = x.clone()
    changed[:, 4:] = 9.0
    torch.testing.assert_close(layer(x)[0][:, :4], layer(changed)[0][:, :4])
    assert not torch.allclose(Contextual(layer.layer, "dot")(x)[0][:, :4], Contextual(layer.layer, "dot")(changed)[0][:, :4])


def test_a_layer_of_ones_own_says_its_axis_and_its_features():
    class Own(nn.Module):
        def forward(self, x):
            return x * 2

    x = torch.randn(2, 5, 3)
    assert Contextual(Own(), "dot", axis=1, features=3)(x).shape == (2, 5, 6)
    assert Contextual(Own(), "dot", axis=2, features=5)(x).shape == (2, 10, 3)
    with pytest.raises(InputError, match="got Own without axis= and features="):
        Contextual(Own(), "dot")


def test_any_score_and_any_self_attention_can_be_handed_over():
    x = torch.randn(2, 5, 3)
    own = Contextual(nn.Linear(3, 4), lambda q, k: -torch.cdist(q, k))
    assert own(x).shape == (2, 5, 8)
    attention = SelfAttention(4, "dot", causal=True)
    assert Contextual(nn.Linear(3, 4), attention).attention is attention


def test_derivatives_are_exact():
    layer = Contextual(nn.Linear(3, 2), "additive").double()
    assert torch.autograd.gradcheck(layer, torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True))


def test_state_copies_dtypes_and_compilation_go_through():
    layer, x = Contextual(nn.Linear(3, 4), "additive"), torch.randn(2, 5, 3)
    again = Contextual(nn.Linear(3, 4), "additive")
    again.load_state_dict(layer.state_dict())
    torch.testing.assert_close(again(x), layer(x))
    torch.testing.assert_close(copy.deepcopy(layer)(x), layer(x))
    torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x))
    assert copy.deepcopy(layer).bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_a_task_that_needs_an_early_token_is_learned():
    """The first token says the answer; a window of attention lets the last state find it."""
    torch.manual_seed(0)
    layer = Contextual(nn.GRU(4, 8, batch_first=True), "additive")
    head = nn.Linear(layer.features, 4)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.02)
    for _ in range(120):
        tokens = torch.randint(0, 4, (32, 12))
        scores = head(layer(nn.functional.one_hot(tokens, 4).float())[0][:, -1])
        loss = nn.functional.cross_entropy(scores, tokens[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens = torch.randint(0, 4, (256, 12))
    answers = head(layer(nn.functional.one_hot(tokens, 4).float())[0][:, -1]).argmax(-1)
    assert float((answers == tokens[:, 0]).float().mean()) > 0.9


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: Contextual(nn.LSTM, "dot"), KindError, "Contextual wraps a torch.nn.Module"),
        (lambda: Contextual(nn.GRU(3, 4), "dot")(torch.randn(5, 2, 7)), InputError, "this nn.GRU reads 3 features"),
        (
            lambda: Contextual(nn.GRU(3, 4), "dot")(torch.ones(5, 2, 3, dtype=torch.long)),
            KindError,
            "nn.GRU reads floating-point numbers",
        ),
        (lambda: Contextual(nn.GRU(3, 4), SelfAttention(5)), InputError, "this nn.GRU gives states of 4 features"),
        (
            lambda: Contextual(nn.GRU(3, 4, bidirectional=True), "dot", causal=True),
            InputError,
            "a causal attention needs states",
        ),
        (lambda: Contextual(nn.GRU(3, 4), "dot", axis=7), InputError, "axis is the dimension of the positions"),
        (
            lambda: Contextual(nn.Sequential(nn.GRU(3, 4), nn.Linear(4, 4)), "dot"),
            InputError,
            "a recurrent layer in an nn.Sequential comes last",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, kind, text):
    with pytest.raises(kind) as error:
        call()
    assert text in str(error.value)
    assert "To mend it, " in str(error.value)


def test_an_unknown_score_is_refused_with_the_list():
    with pytest.raises(InputError) as error:
        Contextual(nn.GRU(3, 4), "bahdanau")
    assert "additive" in str(error.value)
    assert "'bahdanau'" in str(error.value)
