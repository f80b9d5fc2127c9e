"""torch.func's transforms of attend, and forward mode in compiled code: through the native kernels, equal to the plain formula."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import overt
from compare import close

# torch 2.7 cannot compile forward mode in one graph.
WHOLE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 9)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


INPUTS = [normal(2, 5, 4), normal(2, 7, 4, seed=1), normal(2, 7, 3, seed=2)]
WEIGHT = normal(4, seed=3)
OPTIONS = {
    "causal": {"mask": "causal"},
    "bias, sink": {"bias": normal(5, 7, seed=4), "normalizer": overt.Softmax(1.3, torch.tensor([0.4, 0.1]).double())},
    "softcap": {"score": overt.Dot(softcap=1.2), "mask": torch.rand(5, 7, generator=torch.Generator().manual_seed(0)) < 0.7},
    "additive": {"score": overt.Additive(WEIGHT), "mask": "causal"},
}


def plain(query, key, value, options):
    """Attention as a formula that torch differentiates."""
    score = options.get("score", overt.Dot())
    allowed = options.get("mask", torch.ones(5, 7, dtype=torch.bool))
    allowed = torch.ones(5, 7, dtype=torch.bool).tril(2) if isinstance(allowed, str) else allowed
    normalizer = options.get("normalizer", overt.Softmax())
    scores = score(query, key) + options.get("bias", 0)
    return normalizer(torch.where(allowed, scores, -torch.inf), allowed.expand(scores.shape)) @ value


def both(name):
    """The call by the native kernels, and the plain formula."""

    def call(*inputs):
        with overt.use_path("native"):
            return overt.attend(*inputs, **OPTIONS[name])

    return call, lambda *inputs: plain(*inputs, OPTIONS[name])


def scalar(function):
    return lambda *inputs: function(*inputs).square().sum()


def same(result, wanted, tolerance=1e-11):
    for one, other in zip(torch.utils._pytree.tree_leaves(result), torch.utils._pytree.tree_leaves(wanted), strict=True):
        close(one, other, tolerance, "a derivative")


TOWARDS = [normal(*tensor.shape, seed=9 + index) for index, tensor in enumerate(INPUTS)]
TRANSFORMS = {
    "jvp": lambda f: jvp(f, tuple(INPUTS), tuple(TOWARDS)),
    "jvp of a value": lambda f: jvp(lambda value: f(*INPUTS[:2], value), (INPUTS[2],), (TOWARDS[2],)),
    "vjp": lambda f: vjp(f, *INPUTS)[1](torch.ones(2, 5, 3, dtype=torch.float64)),
    "grad": lambda f: grad(scalar(f), argnums=(0, 1, 2))(*INPUTS),
    "hessian": lambda f: hessian(scalar(f), argnums=(0, 2))(*INPUTS),
    "grad of grad": lambda f: jacrev(jacrev(scalar(f), argnums=1), argnums=(0, 1))(*INPUTS),
    "jvp of jvp": lambda f: jacfwd(jacfwd(scalar(f)), argnums=(0, 1))(*INPUTS),
    "grad of jvp": lambda f: grad(lambda q: jvp(lambda k: scalar(f)(q, k, INPUTS[2]), (INPUTS[1],), (TOWARDS[1],))[1])(INPUTS[0]),
    "jvp of grad": lambda f: jvp(grad(scalar(f), argnums=(0, 1, 2)), tuple(INPUTS), tuple(TOWARDS)),
    "vmap of jvp": lambda f: vmap(lambda towards: jvp(lambda q: f(q, *INPUTS[1:]), (INPUTS[0],), (towards,)))(
        torch.stack([TOWARDS[0], 2 * TOWARDS[0]])
    ),
    "vmap of jvp of grad": lambda f: vmap(lambda towards: jvp(grad(lambda q: scalar(f)(q, *INPUTS[1:])), (INPUTS[0],), (towards,))[1])(
        torch.stack([TOWARDS[0], 2 * TOWARDS[0]])
    ),
    "vmap of grad of entries": lambda f: vmap(grad(lambda v: f(*INPUTS[:2], v).sum()))(torch.stack([INPUTS[2], TOWARDS[2]])),
    "jvp of vmap": lambda f: jvp(
        lambda k: vmap(lambda q: f(q, k, INPUTS[2]))(torch.stack([INPUTS[0], TOWARDS[0]])), (INPUTS[1],), (TOWARDS[1],)
    ),
    "a third derivative": lambda f: grad(lambda q: hessian(lambda k: scalar(f)(q, k, INPUTS[2]))(INPUTS[1]).square().sum())(INPUTS[0]),
}  # fmt: skip


@pytest.mark.each_value
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", OPTIONS)
def test_transforms_pass_through_the_native_kernels_and_are_exact(name, transform):
    native, formula = both(name)
    same(TRANSFORMS[transform](native), TRANSFORMS[transform](formula))


def test_pieces_are_differentiated_in_the_tensors_that_they_hold():
    def loss(path, scale, slopes, temperature):
        pieces = {"score": overt.Dot(scale), "bias": overt.ALiBi(slopes), "normalizer": overt.Softmax(temperature)}
        with overt.use_path(path):
            return overt.attend(*INPUTS, **pieces).square().sum()

    parameters = torch.tensor(0.4).double(), normal(2, seed=6), torch.tensor(1.3).double()
    native, formula = (
        hessian(lambda *parameters: loss(path, *parameters), argnums=(0, 1, 2))(*parameters) for path in ("native", "blocked")
    )
    same(native, formula)


def test_the_plan_takes_the_native_kernels_under_transforms_and_in_forward_mode():
    plans = []

    def call(x, score=None):
        plans.append(overt.plan(x, *INPUTS[1:], score=score))
        return overt.attend(x, *INPUTS[1:], score=score).sum()

    hessian(call)(INPUTS[0])
    jvp(call, (INPUTS[0],), (TOWARDS[0],))
    with forward_ad.dual_level():
        call(forward_ad.make_dual(INPUTS[0], TOWARDS[0]))
    assert {plan.path for plan in plans} == {"native"}
    grad(lambda x: call(x, overt.Additive(WEIGHT)))(INPUTS[0])
    assert plans[-1].path == "native"
    assert plans[-1].reason.endswith("in linear memory")


def test_dropout_passes_through_transforms_of_gradients_and_not_through_vmap():
    plans = []

    def call(x):
        torch.manual_seed(3)
        plans.append(overt.plan(x, x, x, dropout=0.3))
        return overt.attend(x, x, x, dropout=0.3).sum()

    x = INPUTS[0]
    gradient = grad(call)(x)
    leaf = x.clone().requires_grad_()
    close(gradient, torch.autograd.grad(call(leaf), leaf)[0], 1e-12, "gradient")
    vmap(call, randomness="same")(x)
    assert plans[0].path == "native"
    assert plans[-1].refused["native"] == "one call of a native kernel has one seed of dropout, also under vmap"


def consistency_step(attention):
    """A step of a consistency model: the output, and its tangent along the trajectory, which is part of the target."""
    layer = torch.nn.Linear(4, 12)
    for index, parameter in enumerate(layer.parameters()):
        parameter.data = normal(*parameter.shape, seed=index, dtype=torch.float32) / 2

    def model(x, time):
        return attention(*(layer(x) * time).chunk(3, dim=-1))

    def loss(x, time, velocity):
        output, tangent = jvp(model, (x, time), (velocity, torch.ones_like(time)))
        return (output - (output - 0.1 * tangent).detach()).square().mean() + 0.1 * tangent.square().mean()

    return loss, list(layer.parameters())


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        pytest.param("eager", {}, marks=pytest.mark.slow),
        ("aot_eager", {}),
        ("aot_eager", {"score": overt.Additive(torch.ones(4))}),
        pytest.param("aot_eager", {"normalizer": overt.Sparsemax()}, marks=pytest.mark.slow),
    ],
    ids=["traced alone, dot", "dot", "additive", "sparsemax"],
)
def test_a_consistency_models_step_is_compiled_and_exact(backend, options):
    torch._dynamo.reset()
    x, velocity, time = normal(2, 9, 4).float(), normal(2, 9, 4, seed=1).float(), torch.tensor(0.7)

    def attention(query, key, value):
        return overt.attend(query, key, value, mask="causal", **options)

    loss, parameters = consistency_step(attention)
    exact, exact_parameters = consistency_step(lambda *inputs: in_blocks(attention, *inputs))
    compiled = torch.compile(loss, backend=backend, fullgraph=WHOLE)(x, time, velocity)
    wanted = exact(x, time, velocity)
    close(compiled.detach(), wanted.detach(), 1e-5, "loss")
    gradients = torch.autograd.grad(wanted, exact_parameters)
    same(torch.autograd.grad(compiled, parameters), gradients, 1e-4)
    same(torch.autograd.grad(loss(x, time, velocity), parameters), gradients, 1e-4)


def in_blocks(attention, *inputs):
    with overt.use_path("blocked"):
        return attention(*inputs)


def test_a_compiled_step_of_a_dot_product_runs_the_kernel_of_forward_mode():
    torch._dynamo.reset()
    called = []

    def backend(graph, inputs):
        called.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    loss, _ = consistency_step(lambda *inputs: overt.attend(*inputs))
    torch.compile(loss, backend=backend)(normal(2, 9, 4).float(), torch.tensor(0.7), normal(2, 9, 4, seed=1).float())
    assert any("overt.dot_tangent" in name for name in called)
