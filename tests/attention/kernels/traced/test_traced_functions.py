"""The functions that programs are made of, to a few units in the last place, at every SIMD level."""

import pytest
import torch

import overt
from compare import close

EVERYWHERE = torch.cat(
    [torch.linspace(-30, 30, 2401), torch.tensor([0.0, 1e-9, -1e-5, 0.34, -0.34, 0.9999, 1.0001, 2.4143, 80.0, -80.0])]
)
FUNCTIONS = {
    "sin": torch.sin, "cos": torch.cos, "atan": torch.atan, "erf": torch.erf, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "exp": lambda x: torch.exp(x / 10), "expm1": lambda x: torch.expm1(x / 10), "log": lambda x: torch.log(x.abs() + 1e-3),
    "log1p": lambda x: torch.log1p(x.abs()), "sqrt": lambda x: torch.sqrt(x.abs()), "pow": lambda x: (x.abs() + 0.1) ** 1.7,
}  # fmt: skip
UNITS = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


def by_the_core(function, x):
    """The function of each number, as the output of one key whose weight is the score itself."""
    one = torch.ones(1, 1, dtype=x.dtype)
    with overt.use_path("native"):
        return overt.attend(x[:, None], one, one, score=lambda q, k: function(q @ k.mT), normalizer=lambda scores, _: scores)[
            :, 0
        ]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_function_is_exact_to_a_few_units_in_the_last_place(level, name, dtype):
    x = EVERYWHERE.to(dtype)
    result, wanted = by_the_core(FUNCTIONS[name], x).double(), FUNCTIONS[name](x.double())
    absolute = 1.0 if name in ("sin", "cos", "log") else 1e-30  # where they cross 0 an argument's rounding is felt
    errors = (result - wanted).abs() / (UNITS[dtype] * wanted.abs().clamp(min=absolute))
    assert float(errors.max()) < 16, f"{float(errors.max()):.1f} units at {float(x[errors.argmax()])}"


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_far_from_zero_are_exact_too(level, name):
    x = torch.tensor([8191.5, 8200.0, -1e5, 123456.0, 3e7, 999999.0, 1e12]).repeat(3)
    for dtype in (torch.float32, torch.float64):
        close(by_the_core(FUNCTIONS[name], x.to(dtype)).double(), FUNCTIONS[name](x.to(dtype).double()), 4 * UNITS[dtype], name)


@pytest.mark.parametrize("name", ["sin", "cos", "atan", "erf", "tanh", "sigmoid"])
def test_numbers_that_are_not_finite_give_what_torch_gives(level, name):
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.5])
    result, wanted = by_the_core(FUNCTIONS[name], x), FUNCTIONS[name](x)
    assert torch.allclose(result, wanted, rtol=1e-6, equal_nan=True), f"{result} and {wanted}"
