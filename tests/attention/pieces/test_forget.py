"""overt.biases.Forget: each score is lowered by the logarithms of the gates between its key and its query."""

import pytest
import torch

import overt
from compare import GRADIENT, KERNELS, OUTPUT, close
from overt.attention.biases import Forget, LineBias
from overt.errors import InputError, KindError


def drawn(heads, queries, keys, strength=1.0, dtype=torch.float64, width=8, seed=0):
    """Query, key and value (2, heads, …) and gates' logarithms (2, heads, K), about −strength each."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (2, heads, queries, width), (2, heads, keys, width), (2, heads, keys, 5)
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    gates = -strength * torch.rand(2, heads, keys, generator=generator) * 2
    return [tensor.to(dtype).requires_grad_() for tensor in (*tensors, gates)]


def bias_of(gates, queries):
    """bias_ij = Σ_{j<t≤i} log f_t, summed pair by pair, and which keys are not after the query: (..., Q, K)."""
    keys = gates.shape[-1]
    between = torch.zeros(queries, keys, keys, dtype=gates.dtype)
    for row in range(queries):
        for column in range(row + keys - queries + 1):
            between[row, column, column + 1 : row + keys - queries + 1] = 1
    return torch.einsum("qkt,...t->...qk", between, gates), torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def by_definition(query, key, value, gates, sink=None, temperature=1.0):
    bias, allowed = bias_of(gates, query.shape[-2])
    groups = query.shape[-3] // key.shape[-3]
    key, value = (tensor.repeat_interleave(groups, -3) for tensor in (key, value))
    scores = ((query @ key.mT / query.shape[-1] ** 0.5 + bias) / temperature).masked_fill(~allowed, -torch.inf)
    columns = [scores] if sink is None else [scores, sink[:, None, None].expand(*scores.shape[:-1], 1)]
    lse = torch.logsumexp(torch.cat(columns, -1), -1)
    return torch.exp(scores - lse[..., None]) @ value, lse


def compared(inputs, results, wanted, dtype, seed=7):
    generator = torch.Generator().manual_seed(seed)
    upstream = [torch.randn(result.shape, generator=generator).to(result.dtype) for result in results]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = wanted(*exact)
    gradients = torch.autograd.grad(results, inputs, upstream)
    numbers = torch.autograd.grad(expected, exact, [tensor.double() for tensor in upstream])
    for name, one, other in zip(("output", "lse"), results, expected, strict=False):
        close(one.detach().double(), other.detach(), OUTPUT[dtype], name)
    for index, (one, other) in enumerate(zip(gradients, numbers, strict=True)):
        close(one.double(), other, GRADIENT[dtype], f"gradient {index}")


@pytest.mark.parametrize("path", [KERNELS, "blocked"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("queries", "keys"), [(1, 33), (31, 31), (65, 70)])
@pytest.mark.each_pair
def test_output_and_gradients_are_those_of_the_definition(path, dtype, queries, keys):
    inputs = drawn(3, queries, keys, dtype=dtype)
    with overt.use_path(path):
        output = overt.attend(*inputs[:3], mask="causal", bias=Forget(inputs[3]))
    compared(inputs, [output], lambda *tensors: by_definition(*tensors)[:1], dtype)


@pytest.mark.parametrize("path", [KERNELS, "blocked"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_sink_a_temperature_and_the_log_sum_exp_have_their_gradients(path, dtype):
    query, key, value, gates = drawn(4, 20, 24, dtype=dtype)
    sink = torch.randn(4, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
    key, value = (tensor[:, :2].detach().requires_grad_() for tensor in (key, value))
    with overt.use_path(path):
        results = overt.attend(
            query, key, value, mask="causal", bias=Forget(gates), normalizer=overt.Softmax(1.3, sink), return_lse=True
        )
    compared([query, key, value, gates, sink], results, lambda *t: by_definition(*t[:4], sink=t[4], temperature=1.3), dtype)


@pytest.mark.parametrize("strength", [5.0, 60.0])
def test_sums_of_thousands_lose_no_digits(strength):
    query, key, value, gates = drawn(1, 700, 700, strength, torch.float32)
    output = overt.attend(query, key, value, mask="causal", bias=Forget(gates))
    exact = [tensor.detach().double() for tensor in (query, key, value, gates)]
    sums = exact[3].cumsum(-1)
    scores = exact[0] @ exact[1].mT / 8**0.5 + sums[..., None] - sums[..., None, :]
    weights = torch.softmax(scores.masked_fill(~torch.ones(700, 700, dtype=torch.bool).tril(), -torch.inf), -1)
    assert float(sums.min()) < -3000
    close(output.detach().double(), weights @ exact[2], OUTPUT[torch.float32], "output")


@pytest.mark.parametrize("length", [65, 200])
def test_a_nan_of_a_faded_key_reaches_the_queries_that_may_attend_to_it_and_no_others(length):
    query, key, value, gates = (tensor.detach() for tensor in drawn(1, length, length, 20.0, torch.float32, width=16))
    for tensor, column in ((key, 3), (value, 3), (key, length - 1), (value, 64)):
        changed = tensor.clone()
        changed[..., column, :] = torch.nan
        inputs = [changed if other is tensor else other for other in (query, key, value)]
        output = overt.attend(*inputs, mask="causal", bias=Forget(gates))
        assert output[..., :column, :].isfinite().all()
        assert output[..., column:, :].isnan().all()
        short = overt.attend(*inputs, mask=overt.Causal() & overt.Lengths(column), bias=Forget(gates))
        assert short.isfinite().all()


def test_infinite_numbers_of_masked_keys_change_nothing():
    query, key, value, _ = (tensor.detach() for tensor in drawn(1, 130, 130, dtype=torch.float32, width=16))
    of_queries, of_keys = torch.rand(130), torch.randn(130)
    mask = overt.Causal() & overt.Lengths(128)
    plain = overt.attend(query, key, value, mask=mask, bias=LineBias(of_queries, of_keys))
    of_keys[128:] = torch.inf
    assert torch.equal(overt.attend(query, key, value, mask=mask, bias=LineBias(of_queries, of_keys)), plain)


def test_a_decoders_steps_give_what_the_whole_sequence_gives():
    query, key, value, gates = (tensor.detach() for tensor in drawn(2, 12, 12))
    whole = overt.attend(query, key, value, mask="causal", bias=Forget(gates))
    for step in range(12):
        stop = step + 1
        one = overt.attend(query[:, :, step:stop], key[:, :, :stop], value[:, :, :stop], bias=Forget(gates[..., :stop]))
        torch.testing.assert_close(one, whole[:, :, step:stop])


def test_it_adds_to_other_biases_in_the_native_core():
    query, key, value, gates = drawn(2, 20, 20)
    slopes = torch.tensor([0.5, 0.1]).double()
    both = overt.biases.sum_of(Forget(gates), overt.ALiBi(slopes))
    assert overt.plan(query, key, value, mask="causal", bias=both).path == KERNELS
    distance = (torch.arange(20)[:, None] - torch.arange(20)).abs()
    dense = bias_of(gates, 20)[0] - slopes[:, None, None] * distance
    for one, other in zip(
        *(
            torch.autograd.grad(
                overt.attend(query, key, value, mask="causal", bias=bias).square().sum(), [query, key, value, gates]
            )
            for bias in (both, dense)
        ),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_second_derivatives_and_transforms_reach_the_gates():
    inputs = [tensor.detach()[:1, :1, :4].requires_grad_() for tensor in drawn(1, 4, 4, width=2)]

    def attended(query, key, value, gates):
        return overt.attend(query, key, value, mask="causal", bias=Forget(-gates.abs() - 0.1))

    assert torch.autograd.gradcheck(attended, inputs)
    assert torch.autograd.gradgradcheck(attended, inputs)
    direct = torch.autograd.grad(attended(*inputs).square().sum(), inputs[3])[0]
    mapped = torch.func.vmap(torch.func.grad(lambda *t: attended(*t).square().sum(), argnums=3))(*(t.detach() for t in inputs))
    torch.testing.assert_close(mapped, direct)


def test_numbers_of_queries_and_keys_are_added_as_they_are():
    query, key, value, _ = drawn(2, 9, 11)
    of_queries, of_keys = (torch.randn(2, length).double().requires_grad_() for length in (9, 11))
    dense = of_queries[..., None] + of_keys[..., None, :]
    for options in ({}, {"normalizer": "sigmoid"}, {"score": overt.Cosine(2.0)}):
        results = [
            torch.autograd.grad(
                overt.attend(query, key, value, bias=bias, **options).square().sum(), [query, of_queries, of_keys]
            )
            for bias in (LineBias(of_queries, of_keys), dense[None])
        ]
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)


def test_summaries_and_recordings_know_gates(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x, mask="causal", bias=Forget(gates))

    gates, x, model = -torch.rand(2, 9), torch.randn(1, 2, 9, 4), Model()
    wanted = overt.steps(x, x, x, mask="causal", bias=bias_of(gates, 9)[0]).weights
    with overt.lens.record(model) as recording:
        model(x)
    recording.save(tmp_path / "gates.safetensors")
    for of in (recording, overt.lens.load(tmp_path / "gates.safetensors")):
        torch.testing.assert_close(of[0, 1].weights()[0], wanted[0, 1])
    summary = overt.summarize(x, x, value=x, mask="causal", bias=Forget(gates))
    torch.testing.assert_close(summary.received, wanted.mean(-2))
    torch.testing.assert_close(summary.output, model(x))
    torch.testing.assert_close(summary.lse, overt.attend(x, x, x, mask="causal", bias=Forget(gates), return_lse=True)[1])


X = torch.randn(4, 3)
BAD = {
    "logarithms of gates above 0 and at most 1, got numbers from -1 to 0.5": lambda: Forget(torch.tensor([-1.0, 0.5])),
    "at most 1, got numbers from nan to nan. Fix: pass torch.nn.functional.logsigmoid": lambda: Forget(
        torch.tensor([torch.nan])
    ),
    "at most 1, got numbers from -inf to 0": lambda: Forget(torch.tensor([0.0, -torch.inf])),
    "log_gates of overt.biases.Forget to be a floating-point tensor": lambda: Forget([0.0]),  # type: ignore[arg-type]
    r"log_gates of overt.biases.Forget \(..., K\), got \(\)": lambda: Forget(torch.tensor(0.0)),
    r"log_gates \(..., 4\) .* got \(5,\) for 4 queries and 4 keys": lambda: overt.attend(X, X, X, bias=Forget(-torch.ones(5))),
    r"no more queries than keys, got \(2,\) for 4 queries and 2 keys": lambda: overt.attend(
        X, X[:2], X[:2], bias=Forget(-torch.ones(2))
    ),
    r"of_queries \(..., 4\) and of_keys \(..., 4\)": lambda: overt.attend(X, X, X, bias=LineBias(torch.ones(3), torch.ones(4))),
    r"overt.LineBias \(2, 4, 4\)|\(2, 4, 4\)": lambda: overt.attend(X, X, X, bias=Forget(-torch.ones(2, 4))),
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_input_is_refused_in_a_sentence(sentence):
    with pytest.raises((InputError, KindError), match=sentence):
        BAD[sentence]()
