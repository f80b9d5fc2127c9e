"""AttentionPool: one learned query, one context for a whole sequence."""

import pytest
import torch

import overt
from overt.errors import InputError
from overt.layers import AttentionPool

NAMES = ["additive", "concat", "general", "dot", "cosine", "gaussian"]
D = 5


def pool(name="additive", **options):
    torch.manual_seed(0)
    return AttentionPool(D, name, **options).double()


def sequence(*shape, seed=1):
    return torch.randn(*shape, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_additive_pool_is_that_of_hierarchical_attention_networks():
    layer, x = pool(), sequence(6)
    word_context, matrix, bias = layer.scoring.weight, layer.scoring.key.weight, layer.query
    hidden = torch.tanh(x @ matrix.T + bias)
    weights = torch.softmax(hidden @ word_context, dim=0)
    torch.testing.assert_close(layer(x), weights @ x)
    torch.testing.assert_close(layer.weights(x), weights)


@pytest.mark.parametrize("name", NAMES)
def test_each_sequence_gives_one_vector_a_mixture_of_its_own(name):
    layer, x = pool(name), sequence(2, 3, 6)
    assert layer(x).shape == (2, 3, D)
    torch.testing.assert_close(layer(x), (layer.weights(x)[..., None] * x).sum(-2))
    torch.testing.assert_close(layer(x)[1, 2], layer(x[1, 2]))


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_a_sequence_has_no_influence(name):
    layer, x = pool(name), sequence(6)
    torch.testing.assert_close(layer(x.flip(0)), layer(x))


@pytest.mark.parametrize("name", ["dot", "cosine", "gaussian"])
def test_without_projections_the_query_is_all_that_is_learned(name):
    layer = pool(name, projections=False)
    assert [parameter for parameter, _ in layer.named_parameters()] == ["query"]


@pytest.mark.parametrize("name", NAMES)
def test_padding_reaches_nothing_and_an_empty_sequence_gives_zeros(name):
    layer, x, lengths = pool(name), sequence(3, 4), torch.tensor([4, 2, 0])
    inside = torch.arange(4) < lengths[:, None]
    gradients = []
    for filling in (0.0, torch.nan):
        for message in ({"lengths": lengths}, {"mask": overt.masks.from_padding(~inside)}):
            layer.zero_grad()
            output = layer(torch.where(inside[..., None], x, filling), **message)
            torch.testing.assert_close(output[1], layer(x[1, :2]))
            assert not output[2].any()
            output.square().sum().backward()
            gradients.append([parameter.grad for parameter in layer.parameters()])
    for result in gradients[1:]:
        torch.testing.assert_close(result, gradients[0])


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(name):
    layer, parameters = pool(name), dict(pool(name).named_parameters())

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(parameters, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (sequence(2, 3).requires_grad_(), *parameters.values()))


def test_a_state_dict_round_trip_gives_the_same():
    layer, x = pool(), sequence(2, 6)
    restored = AttentionPool(D).double()
    restored.load_state_dict(layer.state_dict())
    assert torch.equal(restored(x), layer(x))


def test_it_works_in_bfloat16():
    layer, x = pool(), sequence(2, 6)
    wanted = layer(x)
    torch.testing.assert_close(layer.bfloat16()(x.bfloat16()).double(), wanted, rtol=2e-2, atol=2e-2)


def test_another_width_is_refused_with_the_fix():
    with pytest.raises(InputError, match=r"x of AttentionPool as .* features = 5, got x \(2, 4\).*features=4"):
        pool()(torch.ones(2, 4).double())
