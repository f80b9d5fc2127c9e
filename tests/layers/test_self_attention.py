"""SelfAttention computes what its table says, and keeps the laws of attention."""

import copy

import pytest
import torch
from torch import nn

import overt
from overt.errors import InputError, KindError
from overt.layers import SelfAttention

NAMES = ["additive", "concat", "general", "dot", "cosine", "gaussian"]
D = 6


def layer(name, seed=0, **options):
    torch.manual_seed(seed)
    return SelfAttention(D, name, **options).double()


def sequence(*shape, seed=1):
    return torch.randn(*shape, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(layer, name, x):
    """The table's formula, a pair at a time."""
    p = dict(layer.named_parameters())
    w, u = p.get("scoring.query.weight"), p.get("scoring.key.weight")
    f = {
        "additive": lambda a, b: p["scoring.weight"] @ torch.tanh(w @ a + u @ b),
        "concat": lambda a, b: p["scoring.weight"] @ torch.tanh(torch.cat([w, u], 1) @ torch.cat([a, b])),
        "general": lambda a, b: a @ p["scoring.weight"] @ b,
        "dot": lambda a, b: (w @ a) @ (u @ b) / w.shape[0] ** 0.5,
        "cosine": lambda a, b: p["scoring.log_strength"].exp() * (w @ a) @ b / ((w @ a).norm() * b.norm()),
        "gaussian": lambda a, b: -(w @ a - u @ b).square().sum() / (2 * w.shape[0] ** 0.5),
    }[name]
    scores = torch.stack([torch.stack([f(a, b) for b in x]) for a in x])
    values = x @ p["value.weight"].T if "value.weight" in p else x
    return scores.softmax(-1) @ values


@pytest.mark.parametrize("name", NAMES)
def test_each_score_is_the_formula_of_the_table(name):
    attention, x = layer(name), sequence(5)
    torch.testing.assert_close(attention(x), by_hand(attention, name, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["additive", "dot", "gaussian"])
def test_queries_and_keys_are_as_wide_as_asked_and_the_contexts_as_wide_as_the_states(name):
    attention, x = layer(name, width=3), sequence(5)
    assert attention.scoring.query.weight.shape == (3, D)
    torch.testing.assert_close(attention(x), by_hand(attention, name, x), rtol=1e-12, atol=1e-12)


def test_the_layer_is_one_call_of_attend():
    attention, x = layer("additive", causal=True), sequence(2, 5)
    scoring = attention.scoring
    q, k = x @ scoring.query.weight.T, x @ scoring.key.weight.T
    wanted = overt.attend(q, k, x, score=overt.Additive(scoring.weight), mask=overt.Causal())
    assert torch.equal(attention(x), wanted)


@pytest.mark.parametrize("name", ["additive", "concat", "general", "cosine", "gaussian"])
def test_a_context_is_a_mixture_of_the_states_themselves(name):
    attention, x = layer(name), sequence(5)
    torch.testing.assert_close(attention(x), attention.weights(x) @ x)


def test_only_dot_has_a_value_matrix_unless_asked():
    assert {name for name in NAMES if layer(name).value is not None} == {"dot"}
    assert layer("dot", project_values=False).value is None
    assert layer("additive", project_values=True).value is not None


@pytest.mark.parametrize(
    ("name", "score"), [("dot", overt.Dot(scale=1.0)), ("cosine", overt.Cosine()), ("gaussian", overt.Gaussian(bandwidth=1.0))]
)
def test_without_projections_the_vectors_themselves_are_queries_keys_and_values(name, score):
    attention, x = SelfAttention(D, name, projections=False), sequence(2, 5)
    assert not list(attention.parameters())
    assert torch.equal(attention(x), overt.attend(x, x, x, score=score))


@pytest.mark.parametrize("name", ["additive", "concat", "general"])
def test_a_score_made_of_what_it_learns_cannot_do_without(name):
    with pytest.raises(InputError, match=f'projections for the score "{name}".* use "dot", "cosine" or "gaussian"'):
        SelfAttention(D, name, projections=False)


def test_a_score_of_the_callers_own_is_used_as_it_is_and_behind_projections_when_asked():
    x = sequence(5)

    def nearest(query, key):
        return -torch.cdist(query, key)

    torch.testing.assert_close(SelfAttention(D, nearest)(x), (-torch.cdist(x, x)).softmax(-1) @ x)
    projected = layer(nearest, projections=True)
    q, k = projected.scoring.query(x), projected.scoring.key(x)
    torch.testing.assert_close(projected(x), (-torch.cdist(q, k)).softmax(-1) @ x)


def test_tensors_of_a_given_score_and_normalizer_train_move_and_are_saved_with_the_layer():
    score, normalizer = overt.Bilinear(nn.Parameter(torch.eye(D))), overt.Softmax(temperature=torch.tensor(2.0))
    attention = SelfAttention(D, score, normalizer=normalizer)
    assert {name for name, _ in attention.named_parameters()} == {"scoring.given.weight"}
    assert set(attention.state_dict()) == {"scoring.given.weight", "normalizer.temperature"}
    x = sequence(5)
    attention.double()(x).sum().backward()
    assert attention.scoring.given.weight.grad.abs().sum() > 0
    torch.testing.assert_close(attention(x), (x @ x.T / 2).softmax(-1) @ x)


def test_a_score_that_is_a_module_trains_with_the_layer():
    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(D, D)

        def forward(self, query, key):
            return self.map(query) @ key.mT

    attention = SelfAttention(D, Learned())
    assert {name for name, _ in attention.named_parameters()} == {
        "scoring.given.given.map.weight",
        "scoring.given.given.map.bias",
    }


@pytest.mark.parametrize("name", NAMES)
def test_permuting_the_positions_permutes_the_contexts(name):
    attention, x = layer(name), sequence(2, 7)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(attention(x[:, order]), attention(x)[:, order])


@pytest.mark.parametrize("name", NAMES)
def test_equal_vectors_get_equal_weights(name):
    attention, x = layer(name), sequence(7)
    x[5] = x[1]
    weights = attention.weights(x)
    torch.testing.assert_close(weights[:, 5], weights[:, 1])
    torch.testing.assert_close(weights[5], weights[1])


@pytest.mark.parametrize("name", NAMES)
def test_a_bias_of_log_p_for_a_key_multiplies_its_weight_by_p(name):
    attention, x = layer(name), sequence(7)
    priority = torch.linspace(0.5, 3, 7, dtype=torch.float64)
    plain = attention.weights(x) * priority
    torch.testing.assert_close(attention.weights(x, bias=priority.log()), plain / plain.sum(-1, keepdim=True))


def test_causal_hides_what_comes_after_and_a_window_what_is_far():
    x = sequence(6)
    positions = torch.arange(6)
    distance = positions - positions[:, None]
    cases = [
        ({"causal": True}, distance <= 0),
        ({"window": 1}, distance.abs() <= 1),
        ({"window": (2, 0)}, (distance <= 0) & (distance >= -2)),
        ({"window": (None, 1)}, distance <= 1),
        ({"window": 2, "causal": True}, (distance <= 0) & (distance >= -2)),
        ({"window": (1, 3), "causal": True}, (distance <= 0) & (distance >= -1)),
    ]
    for options, allowed in cases:
        assert torch.equal(layer("additive", **options).weights(x) > 0, allowed), options


def test_a_mask_joins_causal_and_lengths():
    attention, x = layer("dot", causal=True), sequence(2, 4)
    mask = torch.tensor([True, False, True, True])
    result = attention.weights(x, mask=mask, lengths=torch.tensor([4, 3])) > 0
    wanted = torch.ones(4, 4).tril().bool() & mask
    assert torch.equal(result[0], wanted)
    assert torch.equal(result[1], wanted & (torch.arange(4) < 3) & (torch.arange(4) < 3)[:, None])


@pytest.mark.parametrize("name", NAMES)
def test_padding_reaches_nothing_forward_or_backward_whatever_it_holds(name):
    attention, lengths = layer(name), torch.tensor([4, 2, 0])
    x = sequence(3, 4)
    gradients = []
    for filling in (0.0, torch.nan, torch.inf):
        padded = torch.where((torch.arange(4) < lengths[:, None])[..., None], x, filling).requires_grad_()
        output = attention(padded, lengths=lengths)
        torch.testing.assert_close(output[0], attention(x[0]))
        torch.testing.assert_close(output[1, :2], attention(x[1, :2]))
        assert not output[1, 2:].any()
        assert not output[2].any()
        attention.zero_grad()
        output.square().sum().backward()
        gradients.append([padded.grad, *(parameter.grad for parameter in attention.parameters())])
    for result in gradients[1:]:
        torch.testing.assert_close(result, gradients[0])


def test_weights_and_steps_agree_with_the_output_at_padding_too():
    attention, x, lengths = layer("general"), sequence(2, 4), torch.tensor([3, 0])
    result = attention.steps(x, lengths=lengths)
    torch.testing.assert_close(result.output, attention(x, lengths=lengths))
    torch.testing.assert_close(result.weights @ x, result.output)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(name):
    attention, x = layer(name, causal=True), sequence(2, 3).requires_grad_()
    parameters = dict(attention.named_parameters())

    def run(x, *values):
        return torch.func.functional_call(attention, dict(zip(parameters, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *parameters.values()))


@pytest.mark.parametrize("name", ["additive", pytest.param("dot", marks=pytest.mark.slow)])
def test_compiled_as_one_graph_it_gives_the_same(name):
    torch._dynamo.reset()
    attention, x, lengths = layer(name, causal=True), sequence(2, 5), torch.tensor([5, 3])
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, lengths=lengths), attention(x, lengths=lengths), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_dict_and_a_deep_copy_give_the_same_layer(name):
    attention, x = layer(name), sequence(5)
    restored = layer(name, seed=9)
    assert not torch.equal(restored(x), attention(x))
    restored.load_state_dict(attention.state_dict())
    assert torch.equal(restored(x), attention(x))
    assert torch.equal(copy.deepcopy(attention)(x), attention(x))


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_and_autocast_stay_near_float32(name):
    attention, x = layer(name).float(), sequence(2, 5).float()
    wanted = attention(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = attention(x)
    low = copy.deepcopy(attention).bfloat16()(x.bfloat16())
    assert low.dtype == torch.bfloat16
    for result in (under, low):
        torch.testing.assert_close(result.float(), wanted, rtol=2e-2, atol=2e-2)


def test_given_pieces_move_with_the_layer():
    attention = SelfAttention(D, overt.Additive(torch.ones(D)), normalizer=overt.Softmax(sink=torch.zeros(()))).to("meta")
    assert attention.scoring.score().weight.device.type == "meta"
    assert attention.normalizer.current().sink.device.type == "meta"


def test_dropout_zeroes_weights_in_training_only():
    torch.manual_seed(0)
    attention, x = SelfAttention(D, dropout=0.5).double(), sequence(5)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    torch.testing.assert_close(attention(x), attention.weights(x) @ x)


def test_all_weights_start_nearly_equal_with_the_additive_score():
    torch.manual_seed(0)
    weights = SelfAttention(64).weights(torch.randn(50, 64))
    assert weights.min() > 0.2 / 50
    assert weights.max() < 5 / 50


def test_it_prints_what_it_is():
    assert "64, score='additive', causal=True, window=3" in repr(SelfAttention(64, causal=True, window=3))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: SelfAttention(D, "adaptive"), InputError, "score as one of additive, concat, general, dot"),
        (lambda: SelfAttention(D, 3), KindError, "score as a name or a callable"),
        (lambda: SelfAttention(D, overt.Dot), KindError, "score as a name or a callable"),
        (lambda: SelfAttention(0), InputError, "features of SelfAttention of at least 1, got 0"),
        (lambda: SelfAttention(D, width=2.5), InputError, "width of SelfAttention of at least 1, got 2.5"),
        (lambda: SelfAttention(D, dropout=2), InputError, "dropout to be a probability"),
        (lambda: SelfAttention(D, window=-1), InputError, "window as a number of positions to each side"),
        (lambda: SelfAttention(D)(torch.ones(5, 7)), InputError, r"with features = 6, got x \(5, 7\)"),
        (lambda: SelfAttention(D)(torch.ones(D)), InputError, r"give it a length"),
        (lambda: SelfAttention(D)([1.0]), KindError, "x of .* as a torch tensor"),
        (lambda: SelfAttention(D)(torch.ones(5, D).long()), KindError, "embed the tokens first"),
        (lambda: SelfAttention(D)(torch.ones(2, 5, D), lengths=torch.tensor([1.0, 2])), KindError, "lengths as whole numbers"),
        (lambda: SelfAttention(D)(torch.ones(2, 5, D), lengths=[1, 2, 3]), InputError, r"one length for each sequence, \(B,\)"),
        (
            lambda: SelfAttention(D)(torch.ones(2, 5, D), lengths=[1, 6]),
            InputError,
            "lengths from 0 to 5, the number of positions, got 1 to 6",
        ),
        (lambda: SelfAttention(D)(torch.ones(5, D), mask=torch.ones(5, 5)), KindError, "bias="),
        (lambda: SelfAttention(D)(torch.ones(5, D), mask=torch.ones(4, 4).bool()), InputError, "mask to broadcast"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_fix(make, kind, message):
    with pytest.raises(kind, match=message) as caught:
        make()
    assert "Fix:" in str(caught.value)
