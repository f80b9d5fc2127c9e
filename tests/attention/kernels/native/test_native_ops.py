"""The native kernels as torch operators: derivatives, torch.compile, vmap, dropout, threads, and the plan that chooses them."""

import math
import threading
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import library
from torch._dynamo.backends.debugging import aot_eager
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

import flat_reference
import overt
from compare import close
from everyday import DIRECTIONS, everyday
from overt import native
from overt.attention.kernels.blocked import ready
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import call as flat_call
from overt.attention.kernels.flat.normalizer import NormalizerForm
from overt.errors import InputError

OPERATORS = torch.ops.overt
SUMMARIZE = overt.summarize  # loaded here: it brings the summary's operator


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def leaves(queries=9, keys=70, width=3, batch=(2, 3), dtype=torch.float64):
    """Query, key, value and weight that ask for gradients."""
    shapes = (*batch, queries, 4), (*batch, keys, 4), (*batch, keys, width), (4,)
    return [normal(*shape, seed=seed, dtype=dtype).requires_grad_() for seed, shape in enumerate(shapes)]


def attended(query, key, value, weight, activation="tanh", **options):
    with overt.use_path("native"):
        return overt.attend(query, key, value, score=overt.Additive(weight, activation), **options)


def flat(batch=(2, 3), masked=True, by_distance=False, dtype=torch.float64):
    """The operators' inputs, as `AdditiveInputs` has them."""
    query, key, value, weight = leaves(batch=batch, dtype=dtype)
    weight = weight.detach().to(torch.promote_types(dtype, torch.float32)).requires_grad_()
    rows = torch.arange(9)
    program, arrays = ([0, 1, 3, 5], [rows, rows + 30, normal(9, 70) > -1]) if masked else ([], [])
    bias = normal(78 if by_distance else 9, *(() if by_distance else (70,))).to(dtype).requires_grad_()
    sink = normal(*batch[-1:]).to(weight.dtype).requires_grad_()
    inverse_temperature = torch.tensor(0.7, dtype=torch.float64)
    return (
        query,
        key,
        value,
        weight,
        "tanh",
        list(batch),
        program,
        arrays,
        bias,
        by_distance,
        sink,
        inverse_temperature,
        *NormalizerForm(),
        0.0,
        None,
    )


OPTIONS = [{}, {"masked": False}, {"batch": (), "masked": False}, {"by_distance": True}, {"dtype": torch.bfloat16}]


@pytest.mark.parametrize(
    "options",
    everyday(OPTIONS, OPTIONS[0], OPTIONS[3]),
    ids=str,
)
@pytest.mark.slow
def test_torchs_own_check_of_operators_passes(options):
    arguments = flat(**options)
    library.opcheck(OPERATORS.additive.default, arguments)
    bare = [part.detach() if isinstance(part, torch.Tensor) else part for part in arguments]
    output, lse = OPERATORS.additive(*bare)
    library.opcheck(OPERATORS.additive_gradients.default, (*bare, output, lse, torch.randn_like(output), True))


@pytest.mark.parametrize("batch", [(2, 3), ()])
@pytest.mark.slow
def test_torchs_own_check_of_operators_passes_for_scores_and_summaries(batch):
    query, key, value, weight, _, batch, program, arrays, bias, by_distance, sink, inverse_temperature, *_ = flat(batch)
    library.opcheck(OPERATORS.additive_scores.default, (query, key, weight, "relu", batch))
    query, key, value, weight, bias, sink = (part.detach() for part in (query, key, value, weight, bias, sink))
    upstream = normal(*batch, 9, 70)
    library.opcheck(OPERATORS.additive_scores_gradients.default, (query, key, weight, "relu", batch, upstream))
    masked = (batch, program, arrays, bias, by_distance)
    softmax, entmax = (*masked, sink, inverse_temperature, 0, 0.0, None), (*masked, None, None, 3, 1.5, None)
    edges, no_sets = (torch.tensor([0, 4, 9]), torch.tensor([0, 30, 60, 70])), ([], [], None, None)
    library.opcheck(OPERATORS.summary.default, (query, key, value, weight, "tanh", None, 0.0, *softmax, 5, *edges, *no_sets))
    library.opcheck(OPERATORS.summary.default, (query, key, value, weight, "tanh", None, 0.0, *entmax, 5, *edges, *no_sets))
    scale, ends = torch.tensor(0.5, dtype=torch.float64), [torch.arange(9), torch.arange(9) + 5]
    library.opcheck(
        OPERATORS.summary.default,
        (query, key, value, None, "tanh", scale, 2.0, *softmax, 5, None, None, [False], ends, None, None),
    )


@pytest.mark.parametrize("batch", [(2, 3), ()])
def test_maps_that_are_not_asked_for_hold_nothing(batch):
    query, key, value, weight, _, batch, *masked = flat(batch)[:-5]
    arguments = (
        *(part.detach() for part in (query, key, value, weight)),
        "tanh",
        None,
        0.0,
        batch,
        *masked,
        0,
        0.0,
        None,
        5,
        None,
        None,
        [],
        [],
        None,
        None,
    )
    assert [each.numel() for each in OPERATORS.summary(*arguments)[5:7]] == [0, 0]


@pytest.mark.parametrize("activation", ["tanh", pytest.param("sigmoid", marks=pytest.mark.slow)])
@DIRECTIONS
def test_first_and_second_derivatives_are_those_of_finite_differences(activation, fast):
    inputs = leaves(2, 4, 1, (2,))
    slopes = torch.tensor([0.3, 0.5], dtype=torch.float64, requires_grad=True)
    bias, sink, temperature = (
        normal(2, 4).requires_grad_(),
        normal(2).requires_grad_(),
        torch.tensor(1.3).double().requires_grad_(),
    )

    def biased(q, k, v, w, bias, sink):
        return attended(q, k, v, w, activation, bias=bias, normalizer=overt.Softmax(1.3, sink), mask=overt.Causal())

    def heated(q, k, v, w, slopes, temperature):
        return attended(q, k, v, w, activation, bias=overt.ALiBi(slopes), normalizer=overt.Softmax(temperature))

    for call, followed in ((biased, (bias, sink)), (heated, (slopes, temperature))):
        assert gradcheck(call, (*inputs, *followed), fast_mode=fast)
        assert gradgradcheck(call, (*inputs, *followed), fast_mode=fast)


@pytest.mark.parametrize("activation", ["tanh", "leaky_relu"])
@DIRECTIONS
def test_scores_alone_have_their_derivatives(activation, fast):
    query, key, _, weight = leaves(3, 5, 2, (2,))

    def call(q, k, w):
        return overt.steps(q, k, k, score=overt.Additive(w, activation)).scores

    assert gradcheck(call, (query, key, weight), fast_mode=fast)
    assert gradgradcheck(call, (query, key, weight), fast_mode=fast)


@pytest.mark.parametrize("scores_alone", [False, True])
def test_a_tensor_that_is_query_key_and_value_at_once_has_its_second_derivatives(scores_alone):
    x, weight = normal(3, 2).requires_grad_(), normal(2).requires_grad_()

    def call(x, w):
        return overt.steps(x, x, x, score=overt.Additive(w)).scores if scores_alone else attended(x, x, x, w)

    assert gradgradcheck(call, (x, weight))


def test_grouped_heads_and_shared_inputs_have_second_derivatives():
    query, key, value = (
        normal(1, 4, 3, 2).requires_grad_(),
        normal(2, 2, 5, 2).requires_grad_(),
        normal(1, 1, 5, 2).requires_grad_(),
    )
    weight = normal(4, 2).requires_grad_()
    assert gradgradcheck(attended, (query, key, value, weight))


def test_only_the_gradients_that_are_asked_for_are_given():
    query, key, value, weight = (leaf.detach() for leaf in leaves())
    weight.requires_grad_()
    output = attended(query, key, value, weight)
    output.sum().backward()
    assert weight.grad is not None
    assert not attended(query, key, value, weight.detach()).requires_grad
    with torch.no_grad():
        assert not attended(query, key, value, weight).requires_grad


def test_gradients_of_half_precision_inputs_are_of_their_own_dtypes():
    query, key, value, weight = leaves(dtype=torch.bfloat16)
    weight = weight.detach().float().requires_grad_()
    output = attended(query, key, value, weight)
    assert output.dtype == torch.bfloat16
    gradients = torch.autograd.grad(output.sum(), (query, key, value, weight))
    assert [gradient.dtype for gradient in gradients] == [torch.bfloat16] * 3 + [torch.float32]


def test_under_autocast_the_inputs_are_rounded_and_the_rest_is_not():
    inputs = [leaf.detach() for leaf in leaves(dtype=torch.float32)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = attended(*inputs, bias=overt.ALiBi(torch.ones(3)))
    rounded = [tensor.bfloat16().double() for tensor in inputs[:3]]
    wanted = attended(*rounded, inputs[3].double(), bias=overt.ALiBi(torch.ones(3).double()))
    assert result.dtype == torch.bfloat16
    close(result.double(), wanted, 2e-2, "output")


def dropped(seed, value=None, dropout=0.4, **options):
    """The output for a value of one-hot rows: the weights that dropout left."""
    query, key, _, weight = (leaf.detach() for leaf in leaves(33, 130, batch=(2,)))
    torch.manual_seed(seed)
    return attended(query, key, torch.eye(130).double() if value is None else value, weight, dropout=dropout, **options)


def test_dropout_keeps_its_share_of_the_weights_and_scales_it():
    survived, weights = dropped(1), dropped(1, dropout=0.0)
    share = float((survived != 0).double().mean())
    assert abs(share - 0.6) < 5 * math.sqrt(0.24 / survived.numel())
    close(survived[survived != 0], weights[survived != 0] / 0.6, 1e-12, "weights")


def test_dropout_obeys_the_seed():
    assert torch.equal(dropped(1), dropped(1))
    assert not torch.equal(dropped(1), dropped(2))
    assert not torch.equal(dropped(1)[0] == 0, dropped(1)[1] == 0)


def test_dropout_of_everything_leaves_zeros_and_zero_gradients():
    value = torch.eye(130).double().requires_grad_()
    output = dropped(1, value, dropout=1.0)
    assert (output == 0).all()
    assert (torch.autograd.grad(output.sum(), value)[0] == 0).all()


def test_dropout_is_the_same_in_both_passes_and_in_the_second_derivative():
    query, key, value, weight = leaves(2, 6, 1, (2,))

    def call(q, k, v, w):
        torch.manual_seed(3)
        return attended(q, k, v, w, dropout=0.4)

    assert gradcheck(call, (query, key, value, weight))
    assert gradgradcheck(call, (query, key, value, weight))


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.99])
def test_the_plain_formula_keeps_the_weights_that_the_kernel_keeps(dropout):
    query, key, value, weight = (leaf.detach() for leaf in leaves(70, 130))
    arguments = (
        query,
        key,
        value,
        weight,
        "tanh",
        [2, 3],
        [],
        [],
        None,
        False,
        None,
        None,
        *NormalizerForm(),
        dropout,
        torch.tensor(2**61 + 12345),
    )
    close(flat_reference.additive(*arguments), OPERATORS.additive(*arguments)[0], 1e-12, "output")


@pytest.mark.parametrize("shape", [(70, 300), (1, 3000)], ids=str)
def test_the_same_call_gives_the_same_bits(shape):
    inputs = leaves(*shape, dtype=torch.float32)

    def bits():
        output = attended(*inputs, bias=overt.ALiBi(torch.ones(3)))
        return [output, *torch.autograd.grad(output.square().sum(), inputs)]

    first = bits()
    for _ in range(5):
        for result, wanted in zip(bits(), first, strict=True):
            assert torch.equal(result, wanted)


def test_several_threads_of_python_at_once_give_what_one_gives():
    inputs = [leaf.detach() for leaf in leaves(70, 300, dtype=torch.float32)]
    wanted, result = attended(*inputs), {}

    def work(name):
        copies = [tensor.clone().requires_grad_() for tensor in inputs]
        for _ in range(10):
            output = attended(*copies)
            output.sum().backward()
        result[name] = output.detach()

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [torch.equal(output, wanted) for output in result.values()] == [True] * 4


class Operators(TorchDispatchMode):
    """The names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(str(function))
        return function(*args, **(kwargs or {}))


def test_what_intercepts_operators_sees_the_kernel():
    with Operators() as operators:
        attended(*leaves()).sum().backward()
    assert {"overt.additive.default", "overt.additive_gradients.default"} <= operators.names


CALLS = {
    "plain": lambda w: {},
    "masked": lambda w: {"mask": overt.Causal() & overt.Lengths(torch.tensor([3, 70])) | overt.Window(1, 1)},
    "distances": lambda w: {"bias": overt.ALiBi(w[:3].square()), "mask": overt.Causal()},
    "pairs": lambda w: {"bias": w[0] * torch.ones(9, 1, dtype=w.dtype), "normalizer": overt.Softmax(1.3, w[:3])},
    "learned temperature": lambda w: {"normalizer": overt.Softmax(w[0] ** 2 + 1)},
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.few_cases(2)
def test_compiled_without_a_break_it_runs_the_kernel_and_gives_the_same_numbers(name):
    torch._dynamo.reset()
    inputs = leaves(dtype=torch.float32)

    def call(q, k, v, w):
        return overt.attend(q, k, v, score=overt.Additive(w), **CALLS[name](w))

    def backend(graph, arguments):
        operators.extend(str(node.target) for node in graph.graph.nodes)
        return aot_eager(graph, arguments)

    operators = []
    result = torch.compile(call, fullgraph=True, backend=backend)(*inputs)
    assert "overt.additive" in operators
    wanted = call(*inputs)
    close(result.detach(), wanted.detach(), 1e-6, "output")
    for a, b in zip(*(torch.autograd.grad(o.square().sum(), inputs) for o in (result, wanted)), strict=True):
        close(a, b, 1e-5, "gradient")


@pytest.mark.slow
def test_compiled_for_dynamic_shapes_it_gives_the_same_numbers_at_any_length():
    torch._dynamo.reset()
    weight = normal(4, dtype=torch.float32)

    def call(x):
        return overt.attend(
            x, x, x, score=overt.Additive(weight), mask=overt.Causal(), bias=overt.ALiBi(torch.ones(3)), dropout=0.0
        )

    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (9, 33, 70):
        x = normal(2, 3, length, 4, dtype=torch.float32)
        close(compiled(x), call(x), 1e-6, "output")


@pytest.mark.slow
def test_inductor_gives_the_same_numbers():
    torch._dynamo.reset()
    inputs = leaves(dtype=torch.float32)

    def call(q, k, v, w):
        return overt.attend(2 * q, k, v, score=overt.Additive(w), mask=overt.Causal()).square()

    result, wanted = torch.compile(call, fullgraph=True)(*inputs), call(*inputs)
    close(result.detach(), wanted.detach(), 1e-6, "output")
    for a, b in zip(*(torch.autograd.grad(o.sum(), inputs) for o in (result, wanted)), strict=True):
        close(a, b, 1e-5, "gradient")


VMAPPED = {
    "all": ((0, 0, 0, None), {}),
    "query alone": ((0, None, None, None), {"mask": overt.Causal()}),
    "weights": ((None, None, None, 0), {"bias": overt.ALiBi(torch.ones(2).double())}),
    "another dimension": ((2, 1, 1, None), {"mask": overt.Lengths(3)}),
}


@pytest.mark.parametrize("name", VMAPPED)
def test_vmap_is_one_call_that_gives_what_a_loop_gives(name):
    dims, options = VMAPPED[name]
    shapes = [(2, 5, 4), (2, 7, 4), (2, 7, 3), (4,)]
    inputs = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    inputs = [x if dim is None else torch.stack([x, 2 * x, -x], dim) for x, dim in zip(inputs, dims, strict=True)]
    with Operators() as operators:
        result = torch.func.vmap(lambda *x: attended(*x, **options), in_dims=dims)(*inputs)
    assert "overt.additive.default" in operators.names
    for i in range(3):
        one = [x if dim is None else x.select(dim, i) for x, dim in zip(inputs, dims, strict=True)]
        close(result[i], attended(*one, **options), 1e-12, "output")


def test_a_mask_and_a_bias_can_be_mapped_over():
    query, key, value, weight = (leaf.detach() for leaf in leaves(5, 7, 3, (2,)))
    lengths, bias = torch.tensor([[1, 7], [0, 4], [5, 2]]), normal(3, 5, 7)

    def call(lengths, bias):
        return attended(query, key, value, weight, mask=overt.Lengths(lengths), bias=bias)

    result = torch.func.vmap(call)(lengths, bias)
    for i in range(3):
        close(result[i], call(lengths[i], bias[i]), 1e-12, "output")


def test_gradients_can_be_batched():
    inputs = leaves(5, 7, 3, (2,))
    bias = normal(5, 7).requires_grad_()
    output = attended(*inputs, bias=bias)
    upstream = normal(3, *output.shape)
    result = torch.autograd.grad(output, (*inputs, bias), upstream, is_grads_batched=True, retain_graph=True)
    for i in range(3):
        for gradient, wanted in zip(
            result, torch.autograd.grad(output, (*inputs, bias), upstream[i], retain_graph=True), strict=True
        ):
            close(gradient[i], wanted, 1e-12, "gradient")


def test_tensors_that_are_only_traced_get_the_shape_of_the_answer():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(2, 3, 9, 4)
        assert attended(x, x, x[..., :3], torch.empty(4), mask=overt.Causal()).shape == (2, 3, 9, 3)


X, W = normal(2, 3, 9, 4), normal(4)
OTHERS = {
    "the score cannot be traced: amax over queries or keys": {"score": lambda query, key: (query @ key.mT).softmax(-1)},
    "the score's weight has other leading dimensions than the call": {"score": overt.Additive(normal(5, 1, 1, 4))},
    "the alpha is above 2": {"normalizer": overt.Entmax(2.5)},
    "the temperature differs between queries or keys": {"normalizer": overt.Softmax(torch.ones(9, 1))},
    "the temperature is learned, and multiplies a bias of Q × K numbers": {
        "normalizer": overt.Softmax(torch.ones((), requires_grad=True)),
        "bias": normal(9, 9),
    },
    "the sink has another number of heads than the call": {"normalizer": overt.Softmax(sink=torch.zeros(2))},
}


@pytest.mark.parametrize("reason", OTHERS)
def test_what_the_kernels_cannot_do_is_refused_with_the_reason(reason):
    assert overt.plan(X, X, X, **{"score": overt.Additive(W), **OTHERS[reason]}).refused["native"] == reason


def test_the_plan_takes_the_kernels_for_additive_scores():
    plan = overt.plan(X, X, X, score=overt.Additive(W), mask=overt.Causal(), bias=overt.ALiBi(torch.ones(3)), dropout=0.1)
    assert plan.path == "native"
    assert plan.reason == "additive attention under a softmax, fused with it in the native core, in linear memory"


def test_on_other_devices_the_blocks_serve():
    x = torch.empty(2, 9, 4, device="meta")
    plan = overt.plan(x, x, x, score=overt.Additive(torch.empty(4, device="meta")))
    assert (plan.path, plan.refused["native"]) == ("blocked", "native kernels run on the CPU")


def test_transforms_and_forward_mode_pass_through_the_kernels():
    result = []

    def loss(x):
        result.append(overt.plan(x, X, X, score=overt.Additive(W)).path)
        return overt.attend(x, X, X, score=overt.Additive(W)).sum()

    torch.func.grad(loss)(X)
    torch.func.vmap(loss)(X[None])
    with torch.autograd.forward_ad.dual_level():
        loss(torch.autograd.forward_ad.make_dual(X, X))
    assert result == ["native"] * 3


def test_dropout_under_vmap_goes_to_the_blocks():
    result = []
    torch.func.vmap(lambda x: result.append(overt.plan(x, x, x, score=overt.Additive(W), dropout=0.1).refused["native"]) or x)(
        X
    )
    assert result == ["one call of a native kernel has one seed of dropout, also under vmap"]


def test_an_exported_program_holds_the_plain_formula():
    class Attending(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", W)

        def forward(self, x):
            return overt.attend(x, x, x, score=overt.Additive(self.weight))

    exported = torch.export.export(Attending(), (X,), strict=False)
    assert not any("overt" in str(node.target) for node in exported.graph.nodes)
    close(exported.module()(X), attended(X, X, X, W), 1e-12, "output")


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_traced_program_holds_the_plain_formula_and_not_its_answer():
    traced = torch.jit.trace(lambda x: overt.attend(x, x, x, score=overt.Additive(W)), X)
    assert "^" not in str(traced.graph)  # no function of Python
    close(traced(2 * X), attended(2 * X, 2 * X, 2 * X, W), 1e-12, "output")


def test_without_the_native_core_the_blocks_serve_and_the_plan_says_why(monkeypatch):
    monkeypatch.setattr(flat_call, "MISSING", "it is on holiday")
    plan = overt.plan(X, X, X, score=overt.Additive(W))
    assert plan.path == "blocked"
    assert plan.refused["native"] == "the native core is not available: it is on holiday"
    with pytest.raises(InputError, match="native: the native core is not available: it is on holiday"):
        attended(X, X, X, W)


def test_without_the_native_core_that_is_said_once(monkeypatch):
    monkeypatch.setattr(flat_call, "MISSING", "it is on holiday")
    monkeypatch.setattr(native, "load", lambda: SimpleNamespace(module=None, why_not="it is on holiday"))
    native.warn_if_missing.cache_clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            overt.attend(X, X, X, score=overt.Additive(W))
        overt.attend(X, X, X)
    native.warn_if_missing.cache_clear()
    assert [str(warning.message) for warning in said] == [
        "overt computes this without its native core, slower: it is on holiday"
    ]


@pytest.mark.parametrize("normalizer", [overt.Entmax(2.5), lambda scores, allowed: torch.softmax(scores, -1)])
def test_other_normalizers_get_their_scores_from_the_kernel(normalizer):
    inputs = leaves()
    score = overt.Additive(inputs[3])
    message = "; the scores come from the native core"
    assert message in overt.plan(*inputs[:3], score=score, normalizer=normalizer).reason
    with Operators() as operators:
        result = overt.attend(*inputs[:3], score=score, normalizer=normalizer, mask=overt.Causal())
    assert "overt.additive_scores.default" in operators.names
    with overt.use_path("blocked"), Operators() as operators:
        assert message not in overt.plan(*inputs[:3], score=score, normalizer=normalizer).reason
        wanted = overt.attend(*inputs[:3], score=score, normalizer=normalizer, mask=overt.Causal())
    assert not any("overt" in name for name in operators.names)
    close(result.detach(), wanted.detach(), 1e-12, "output")
    gradients = (torch.autograd.grad(output.square().sum(), inputs) for output in (result, wanted))
    for gradient, other in zip(*gradients, strict=True):
        close(gradient, other, 1e-10, "gradient")


def test_scores_of_the_kernel_are_whole_scores():
    query, key, value, weight = (leaf.detach() for leaf in leaves())
    call = ready(Call.checked(query, key, value, overt.Additive(weight)))
    assert call.score.width(4) == 1
    close(call.score(query, key), overt.Additive(weight)(query, key), 1e-12, "scores")
