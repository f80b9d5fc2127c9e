"""attend(…, return_lse=True): the output and each row's log-sum-exp, both differentiable, so that parts merge."""

import numpy as np
import pytest
import torch

import overt
from compare import GRADIENT, KERNELS, OUTPUT, close
from overt.errors import InputError, KindError

PATHS = [KERNELS, "blocked"]


def tensors(*shapes, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def by_definition(query, key, value, *, allowed=None, bias=0.0, sink=None, temperature=1.0):
    """Output and log-sum-exp of dot products in the dtype of the tensors, all pairs at once."""
    groups = query.shape[-3] // key.shape[-3]
    key, value = (tensor.repeat_interleave(groups, dim=-3) for tensor in (key, value))
    scores = (query @ key.mT / query.shape[-1] ** 0.5 + bias) / temperature
    scores = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
    columns = [scores] if sink is None else [scores, sink[:, None, None].expand(*scores.shape[:-1], 1)]
    lse = torch.logsumexp(torch.cat(columns, dim=-1), dim=-1)
    return torch.exp(scores - lse[..., None]) @ value, lse


def compared(leaves, results, wanted, dtype, seed=3):
    """Refuse results and gradients that are not those of the definition in float64, with upstream gradients for both results."""
    upstream = tensors(*(tuple(result.shape) for result in results), dtype=dtype, seed=seed)
    gradients = torch.autograd.grad(
        results, list(leaves.values()), [part.to(r.dtype) for part, r in zip(upstream, results, strict=True)]
    )
    doubles = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    expected = wanted(doubles)
    exact = torch.autograd.grad(expected, list(doubles.values()), [part.detach().double() for part in upstream])
    for name, result, number in zip(("output", "lse"), results, expected, strict=True):
        close(result.detach().double(), number.detach(), OUTPUT[dtype], name)
    for name, gradient, number in zip(leaves, gradients, exact, strict=True):
        close(gradient.double(), number, GRADIENT[dtype], f"gradient of {name}")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 17, 65])
def test_output_log_sum_exp_and_all_gradients_are_those_of_the_definition(path, dtype, length):
    query, key, value = tensors((2, 4, length, 8), (2, 2, 33, 8), (2, 2, 33, 5), dtype=dtype)
    bias, sink = tensors((4, length, 33), (4,), seed=1)
    allowed = torch.rand(2, 1, length, 33, generator=torch.Generator().manual_seed(2)) < 0.7
    leaves = {"query": query, "key": key, "value": value, "bias": bias, "sink": sink}
    leaves = {name: leaf.detach().to(dtype).requires_grad_() for name, leaf in leaves.items()}
    with overt.use_path(path):
        results = overt.attend(
            leaves["query"], leaves["key"], leaves["value"], mask=allowed, bias=leaves["bias"],
            normalizer=overt.Softmax(sink=leaves["sink"], temperature=1.3), return_lse=True,
        )  # fmt: skip
    assert results[0].dtype == dtype
    assert results[1].dtype == torch.promote_types(dtype, torch.float32)

    def same(of):
        return by_definition(
            of["query"], of["key"], of["value"], allowed=allowed, bias=of["bias"], sink=of["sink"], temperature=1.3
        )

    compared(leaves, results, same, dtype)


@pytest.mark.parametrize("path", PATHS)
def test_a_log_sum_exp_alone_has_gradients_and_a_learned_temperature_too(path):
    query, key, value, temperature = (*tensors((2, 9, 4), (2, 11, 4), (2, 11, 3)), torch.tensor(1.7).double().requires_grad_())
    with overt.use_path(path):
        lse = overt.attend(query, key, value, normalizer=overt.Softmax(temperature), return_lse=True)[1]
    result = torch.autograd.grad(lse.square().sum(), [query, key, temperature])
    scores = query @ key.mT / 2 / temperature
    wanted = torch.autograd.grad(torch.logsumexp(scores, -1).square().sum(), [query, key, temperature])
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("path", PATHS)
def test_a_row_without_keys_has_minus_infinity_and_no_gradients(path):
    query, key, value = tensors((3, 4), (5, 4), (5, 2))
    allowed = torch.tensor([[True] * 5, [False] * 5, [True] * 5])
    with overt.use_path(path):
        output, lse = overt.attend(query, key, value, mask=allowed, return_lse=True)
    assert lse[1] == -torch.inf
    assert not output[1].any()
    gradients = torch.autograd.grad((output.sum() + lse.sum()), [query, key, value])
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert not gradients[0][1].any()


@pytest.mark.parametrize(
    "score", [overt.Additive(torch.tensor([1.0, -2.0, 60.0]).double()), overt.Cosine(3.0), lambda q, k: -torch.cdist(q, k)]
)
def test_every_score_has_a_log_sum_exp(score):
    query, key, value = tensors((2, 9, 3), (2, 11, 3), (2, 11, 2))
    results = overt.attend(query, key, value, score=score, mask="causal", return_lse=True)
    steps = overt.steps(query, key, value, score=score, mask="causal")
    wanted = steps.output, torch.logsumexp(steps.masked, -1)
    upstream = tensors(results[0].shape, results[1].shape, seed=4)
    for one, other in zip(results, wanted, strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(*(torch.autograd.grad(of, [query, key, value], upstream) for of in (results, wanted)), strict=True):
        torch.testing.assert_close(one, other)


def test_second_derivatives_and_transforms_see_both_results():
    inputs = tensors((3, 2), (4, 2), (4, 2))

    def results(*tensors):
        return overt.attend(*tensors, return_lse=True)

    assert torch.autograd.gradcheck(results, inputs)
    assert torch.autograd.gradgradcheck(results, inputs)
    direct = torch.autograd.grad(results(*inputs)[1].square().sum(), inputs[0])[0]
    transformed = torch.func.grad(lambda query: results(query, *inputs[1:])[1].square().sum())(inputs[0].detach())
    torch.testing.assert_close(transformed, direct)


def test_parts_merge_to_the_whole():
    query, key, value = tensors((2, 3, 7, 4), (2, 3, 20, 4), (2, 3, 20, 6))
    whole, total = overt.attend(query, key, value, return_lse=True)
    parts = [overt.attend(query, k, v, return_lse=True) for k, v in zip(key.split(6, -2), value.split(6, -2), strict=True)]
    merged = torch.logsumexp(torch.stack([lse for _, lse in parts]), 0)
    output = sum(output * torch.exp(lse - merged)[..., None] for output, lse in parts)
    torch.testing.assert_close(merged, total)
    torch.testing.assert_close(output, whole)
    upstream = torch.randn_like(whole)
    for one, other in zip(*(torch.autograd.grad(of, [query, key, value], upstream) for of in (output, whole)), strict=True):
        torch.testing.assert_close(one, other)


def test_the_output_is_the_one_without_it_under_dropout_too():
    query, key, value = tensors((2, 9, 4), (2, 11, 4), (2, 11, 3))
    torch.manual_seed(5)
    alone = overt.attend(query, key, value, dropout=0.4)
    torch.manual_seed(5)
    output, lse = overt.attend(query, key, value, dropout=0.4, return_lse=True)
    assert torch.equal(output, alone)
    torch.testing.assert_close(lse, overt.summarize(query, key).lse)


def test_arrays_come_back_as_they_came():
    x = np.random.default_rng(0).normal(size=(5, 3))
    output, lse = overt.attend(x, x, x, return_lse=True)
    assert isinstance(output, np.ndarray)
    np.testing.assert_allclose(lse, np.log(np.exp(x @ x.T / np.sqrt(3)).sum(-1)))


def test_a_compiled_call_gives_both_with_gradients():
    query, key, value = tensors((5, 4), (6, 4), (6, 4))
    eager = overt.attend(query, key, value, return_lse=True)
    compiled = torch.compile(lambda *tensors: overt.attend(*tensors, return_lse=True), backend="aot_eager", fullgraph=True)(
        query, key, value
    )
    for one, other in zip(compiled, eager, strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(*(torch.autograd.grad(of[1].sum(), [query, key]) for of in (compiled, eager)), strict=True):
        torch.testing.assert_close(one, other)


def test_a_recorder_sees_the_call_as_any_other():
    class Model(torch.nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x, return_lse=True)[0]

    x, model = torch.randn(1, 2, 5, 4), Model()
    with overt.lens.record(model) as recording:
        model(x)
    torch.testing.assert_close(recording[0, 1].weights()[0], overt.steps(x, x, x).weights[0, 1])


def test_other_normalizers_are_refused():
    x = torch.randn(4, 3)
    with pytest.raises(KindError, match="a softmax with return_lse=True.*got the normalizer Entmax. Fix: leave return_lse out"):
        overt.attend(x, x, x, normalizer="entmax", return_lse=True)
    with overt.use_path("torch"), pytest.raises(InputError, match="torch's kernels return no log-sum-exp"):
        overt.attend(x, x, x, return_lse=True)
