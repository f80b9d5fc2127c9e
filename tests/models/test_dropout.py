"""Dropout of the models: it thins out as torch's does, from torch's generator, and only in training."""

import pytest
import torch

from overt.errors import InputError
from overt.models.dropout import Dropout


def dropped(p, seed=0, count=200_000):
    torch.manual_seed(seed)
    return Dropout(p)(torch.ones(count))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_so_many_become_zero_and_the_mean_stays(p):
    output = dropped(p)
    deviation = (p * (1 - p) / output.numel()) ** 0.5
    assert abs((output == 0).float().mean().item() - p) < 5 * deviation
    assert abs(output.mean().item() - 1) < 5 * deviation / (1 - p)


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 8])
def test_places_are_dropped_apart_from_each_other(distance):
    gone = (dropped(0.5) == 0).float() - 0.5
    together = (gone[:-distance] * gone[distance:]).mean().item()  # 0 ± 1/4 / √n where they know nothing of each other
    assert abs(together) < 5 * 0.25 / gone.numel() ** 0.5


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 0, 4)])
def test_any_shape_keeps_its_shape(shape):
    assert Dropout(0.5)(torch.ones(shape)).shape == shape


def test_the_gradient_passes_where_the_number_passed():
    x = torch.ones(100, dtype=torch.float64, requires_grad=True)
    output = Dropout(0.25)(x)
    [gradient] = torch.autograd.grad(output.sum(), x)
    torch.testing.assert_close(gradient, output.detach())


def test_a_seed_repeats_it():
    assert torch.equal(dropped(0.3, seed=4), dropped(0.3, seed=4))
    assert not torch.equal(dropped(0.3, seed=4), dropped(0.3, seed=5))


def test_nothing_is_dropped_outside_training_or_with_p_of_0():
    x = torch.randn(10)
    assert Dropout(0.9).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_everything_is_dropped_with_p_of_1():
    assert (Dropout(1.0)(torch.ones(10)) == 0).all()


def test_other_than_a_probability_is_refused():
    with pytest.raises(InputError, match="dropout to be a probability, got 1.5"):
        Dropout(1.5)
