"""Normalizers of a caller's own run in the native core with the score, where they treat each score by itself; the blocks compute the others."""

import pytest
import torch
from torch.nn import functional

import overt
from compare import GRADIENT, OUTPUT, close


class Power(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.power = torch.nn.Parameter(torch.tensor(1.3))

    def forward(self, scores, allowed):
        return shares(functional.softplus(scores) ** self.power)


def shares(numbers):
    return numbers / numbers.sum(-1, keepdim=True)


def rectified(numbers):
    return numbers / numbers.sum(-1, keepdim=True).clamp(min=1e-9)


TRACED = {
    "relu²": lambda scores, allowed: torch.relu(scores).square(),
    "relu² of a few": lambda scores, allowed: torch.where(allowed, torch.relu(scores) ** 2, 0) / 10,
    "masked_fill": lambda scores, allowed: torch.relu(scores).masked_fill(~allowed, 0),
    "times allowed": lambda scores, allowed: torch.sigmoid(scores) * allowed,
    "softplus": lambda scores, allowed: shares(functional.softplus(scores)),
    "softplus twice": lambda scores, allowed: (
        functional.softplus(scores) / functional.softplus(scores).sum(dim=-1, keepdim=True)
    ),
    "exponentials": lambda scores, allowed: shares(scores.exp()),
    "absolute values": lambda scores, allowed: shares(torch.where(allowed, scores.abs() + 0.1, 0)),
    "an epsilon": lambda scores, allowed: torch.relu(scores) / (torch.relu(scores).sum(-1, keepdim=True) + 1e-6),
    "one more than the sum": lambda scores, allowed: scores.exp() / (1 + scores.exp().sum(-1, keepdim=True)),
    "a clamped sum": lambda scores, allowed: rectified(torch.where(allowed, scores, 0).clamp(min=0).square()),
    "the sum's root": lambda scores, allowed: scores.exp() / scores.exp().sum(-1, keepdim=True).sqrt(),
    "elu": lambda scores, allowed: shares(functional.elu(scores) + 1),
    "a module": Power(),
}
BLOCKS = {
    "softmax": (lambda scores, allowed: scores.softmax(-1), "amax over queries or keys"),
    "shifted": (lambda scores, allowed: (scores - scores.amax(-1, keepdim=True)).exp(), "amax over queries or keys"),
    "a sum in the numerator": (lambda scores, allowed: scores.exp() * scores.sum(-1, keepdim=True), "sum over queries or keys"),
    "another sum": (
        lambda scores, allowed: scores.exp() / (2 * scores.exp()).sum(-1, keepdim=True),
        "its weights are divided by the sum of something else",
    ),
    "masked keys have a share": (
        lambda scores, allowed: shares(torch.where(allowed, scores.abs(), 0) + 0.1),
        "the program's numbers are not the score's",
    ),
    "random": (lambda scores, allowed: torch.nn.functional.dropout(scores.exp()), "it draws random numbers"),
}
SCORES = {
    "dot": None,
    "additive": overt.Additive(torch.tensor([0.5, -1.0, 0.2, 0.7, 0.1, -0.3]).double()),
    "manhattan": lambda query, key: -(query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1),
}


def leaves(queries, keys, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    sizes = (2, 3, queries, 6), (2, 3, keys, 6), (2, 3, keys, 4)
    return [torch.randn(size, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for size in sizes]


def attended(path, inputs, parameters=(), **options):
    with overt.use_path(path):
        output = overt.attend(*inputs, **options)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(output.dtype)
    return output.detach(), torch.autograd.grad(output, [*inputs, *parameters], upstream)


@pytest.mark.each_pair
@pytest.mark.parametrize("mask", [None, "causal", overt.Lengths(torch.tensor([17, 1]))], ids=["all", "causal", "lengths"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", TRACED)
def test_weights_of_each_score_by_itself_run_natively_and_are_those_of_the_blocks(level, name, score, mask):
    inputs, normalizer = leaves(33, 50), TRACED[name]
    parameters = list(normalizer.parameters()) if isinstance(normalizer, torch.nn.Module) else []
    options = {"score": SCORES[score], "normalizer": normalizer, "mask": mask}
    results = [attended(path, inputs, parameters, **options) for path in ("native", "blocked")]
    (output, gradients), (wanted, wanted_gradients) = results
    close(output, wanted, 1e-11, "output")
    for index, pair in enumerate(zip(gradients, wanted_gradients, strict=True)):
        close(*pair, 1e-8, f"gradient {index}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes_are_near_float64(level, dtype):
    inputs = leaves(70, 300, dtype)
    wanted, gradients = attended(
        "blocked", [one.detach().double().requires_grad_() for one in inputs], normalizer=TRACED["softplus"]
    )
    output, actual = attended("native", inputs, normalizer=TRACED["softplus"])
    close(output.double(), wanted, OUTPUT[dtype], "output")
    for index, (one, other) in enumerate(zip(actual, gradients, strict=True)):
        close(one.double(), other, GRADIENT[dtype], f"gradient {index}")


@pytest.mark.parametrize("name", BLOCKS)
def test_other_normalizers_take_the_blocks_with_the_reason(name):
    normalizer, reason = BLOCKS[name]
    inputs = leaves(9, 12)
    plan = overt.plan(*inputs, normalizer=normalizer)
    assert plan.path == "blocked"
    assert reason in plan.refused["native"]


def test_rows_without_keys_and_dropout_are_those_of_the_blocks():
    inputs = leaves(9, 12)
    options = {"normalizer": TRACED["softplus"], "mask": overt.Lengths(torch.tensor([0, 5]))}
    (output, gradients), (wanted, wanted_gradients) = (attended(path, inputs, **options) for path in ("native", "blocked"))
    assert not output[0].any()
    close(output, wanted, 1e-12, "output")
    for pair in zip(gradients, wanted_gradients, strict=True):
        close(*pair, 1e-10, "gradient")
    torch.manual_seed(0)
    with overt.use_path("native"):
        mean = torch.stack([overt.attend(*inputs, **options, dropout=0.3) for _ in range(2000)]).mean(0)
    close(mean.detach(), wanted, 0.1, "mean over dropout")


def test_a_bias_and_dropout_under_other_divisors_take_the_blocks():
    inputs = leaves(9, 12)
    plan = overt.plan(*inputs, bias=torch.zeros(9, 12).double(), normalizer=TRACED["softplus"])
    assert plan.refused["native"] == "the normalizer is one's own, which takes the scores with their bias"
    plan = overt.plan(*inputs, dropout=0.1, normalizer=TRACED["an epsilon"])
    assert plan.refused["native"] == "under dropout, a normalizer of one's own divides by nothing or by the row's sum"


def test_second_derivatives_are_those_of_finite_differences():
    inputs = [one[:1, :1].detach().requires_grad_() for one in leaves(2, 3)]

    def attention(*inputs):
        with overt.use_path("native"):
            return overt.attend(*inputs, normalizer=TRACED["softplus"])

    assert torch.autograd.gradgradcheck(attention, inputs)


def test_the_plan_says_what_runs():
    plan = overt.plan(*leaves(9, 12), normalizer=TRACED["relu²"])
    assert plan.reason.startswith(
        "traced score, 4 operations a pair and 0 a pair and feature under a normalizer of one's own, fused"
    )
