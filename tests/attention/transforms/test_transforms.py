"""attend under torch's transforms: vmap, grad, forward mode, compile, autocast, second derivatives."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import overt
from everyday import everyday


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


OPTIONS = {
    "torch's kernel": lambda w, t: {},
    "causal": lambda w, t: {"mask": overt.Causal()},
    "torch's kernel, general": lambda w, t: {"score": overt.Bilinear(torch.outer(w, w))},
    "additive": lambda w, t: {"score": overt.Additive(w), "mask": overt.Causal(), "normalizer": overt.Softmax(temperature=t)},
    "additive, sigmoid": lambda w, t: {"score": overt.Additive(w), "bias": t, "normalizer": overt.normalizers.Sigmoid()},
    "general": lambda w, t: {"score": overt.Bilinear(torch.outer(w, w)), "bias": t},
    "gaussian": lambda w, t: {"score": overt.Gaussian(t), "normalizer": overt.Sparsemax()},
    "cosine": lambda w, t: {"score": overt.Cosine(t), "normalizer": overt.Entmax()},
}


# Torch's own kernel and each kind of ours: the native ones, and the plain formula.
EVERY_DAY = everyday(OPTIONS, "torch's kernel", "causal", "additive", "gaussian")


@pytest.mark.parametrize("name", EVERY_DAY)
@pytest.mark.few_cases(2)
def test_second_derivatives_and_forward_mode_are_exact(name):
    inputs = [normal(2, 2, 3, seed=seed).requires_grad_() for seed in range(3)]
    followed = [normal(3, seed=4).requires_grad_(), torch.tensor(1.3, dtype=torch.float64, requires_grad=True)]
    used = inputs

    def call(q, k, v, w=followed[0], t=followed[1]):
        return overt.attend(q, k, v, **OPTIONS[name](w, t))

    if name not in ("torch's kernel", "causal"):
        used = [*inputs, *followed]
        assert gradcheck(lambda *x: call(*x) + 0 * (x[3].sum() + x[4]), used, check_forward_ad=True)
        assert gradgradcheck(lambda *x: call(*x) + 0 * (x[3].square().sum() + x[4] ** 2), used)
    else:
        assert gradcheck(call, used, check_forward_ad=True)
        assert gradgradcheck(call, used)


@pytest.mark.parametrize("path", ["native", "torch", "blocked"])
def test_a_second_backward_through_a_freed_graph_is_torchs_own_error(path):
    x = normal(1, 2, 9, 4).requires_grad_()
    with overt.use_path(path):
        output = overt.attend(x, x, x)
    output.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        output.sum().backward()


@pytest.mark.parametrize("path", ["native", "torch", "blocked"])
def test_a_retained_graph_can_be_walked_twice(path):
    x = normal(1, 2, 9, 4).requires_grad_()
    with overt.use_path(path):
        output = overt.attend(x, x, x).square().sum()
    first = torch.autograd.grad(output, x, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(output, x), first)


@pytest.mark.parametrize("name", OPTIONS)
def test_vmap_and_grad_give_what_a_loop_gives(name):
    query, key, value = (normal(3, 2, 5, 4, seed=seed) for seed in range(3))
    w, t = normal(4, seed=4), torch.tensor(1.3, dtype=torch.float64)

    def loss(q, k, v, w, t):
        return overt.attend(q, k, v, **OPTIONS[name](w, t)).square().sum()

    result = torch.func.vmap(torch.func.grad(loss), in_dims=(0, 0, 0, None, None))(query, key, value, w, t)
    for i in range(3):
        leaf = query[i].clone().requires_grad_()
        (wanted,) = torch.autograd.grad(loss(leaf, key[i], value[i], w, t), leaf)
        torch.testing.assert_close(result[i], wanted)


def test_grad_differentiates_in_the_tensors_that_a_piece_holds():
    x, weight = normal(5, 4), normal(4, seed=1)
    result = torch.func.grad(lambda score: overt.attend(x, x, x, score=score).sum())(overt.Additive(weight))
    leaf = weight.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(overt.attend(x, x, x, score=overt.Additive(leaf)).sum(), leaf)
    torch.testing.assert_close(result.weight, wanted)


def test_forward_mode_passes_through_torchs_path_by_another():
    x = normal(2, 5, 4)
    with forward_ad.dual_level(), overt.use_path("torch", "blocked"):
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        assert overt.plan(dual, x, x).refused["torch"] == "torch's fused kernels have no forward-mode derivative"
        assert forward_ad.unpack_dual(overt.attend(dual, x, x)).tangent is not None


@pytest.mark.parametrize("name", EVERY_DAY)
@pytest.mark.few_cases(1)
def test_compiled_without_a_break_it_gives_the_same_numbers(name):
    torch._dynamo.reset()
    inputs = [normal(2, 3, 17, 4, seed=seed, dtype=torch.float32).requires_grad_() for seed in range(3)]
    w, t = normal(4, seed=4, dtype=torch.float32).requires_grad_(), torch.tensor(1.3, requires_grad=True)

    def call(q, k, v, w, t):
        return overt.attend(q, k, v, **OPTIONS[name](w, t))

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    leaves = [*inputs, w, t] if name in ("additive", "additive, sigmoid", "general") else inputs
    wanted, result = call(*inputs, w, t), compiled(*inputs, w, t)
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)
    for a, b in zip(*(torch.autograd.grad(output.square().sum(), leaves) for output in (result, wanted)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_compiled_call_is_compiled_again_when_a_path_is_forced():
    torch._dynamo.reset()
    observed = []

    def look(x):
        return overt.attend(x, x, x)

    def backend(graph, inputs):
        observed.append(any("overt.dot" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    compiled = torch.compile(look, fullgraph=True, backend=backend)
    x = normal(1, 2, 9, 4)
    wanted = compiled(x)
    with overt.use_path("blocked"):
        torch.testing.assert_close(compiled(x), wanted)
    assert observed == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_inductor_gives_the_same_numbers(name):
    torch._dynamo.reset()
    inputs = [normal(2, 3, 17, 4, seed=seed, dtype=torch.float32) for seed in range(3)]
    w, t = normal(4, seed=4, dtype=torch.float32), torch.tensor(1.3)

    def call(q, k, v, w, t):
        return overt.attend(q, k, v, **OPTIONS[name](w, t))

    torch.testing.assert_close(torch.compile(call, fullgraph=True)(*inputs, w, t), call(*inputs, w, t), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("score", [overt.Dot(), overt.Additive(torch.ones(64)), overt.Gaussian(1.0)])
def test_under_autocast_scores_and_softmax_stay_in_float32(score):
    query, key, value = (normal(2, 4, 33, 64, seed=seed, dtype=torch.float32) * 3 for seed in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = overt.attend(query, key, value, score=score)
    rounded = [tensor.bfloat16().double() for tensor in (query, key, value)]
    wanted = overt.attend(*rounded, score=score)
    assert result.dtype == torch.bfloat16
    assert float((result.double() - wanted).abs().max() / wanted.abs().max()) < 2e-2


def test_inference_mode_and_no_grad_work():
    x = normal(2, 3, 5, 4)
    with torch.inference_mode():
        torch.testing.assert_close(overt.attend(x, x, x, mask=overt.Causal()), overt.steps(x, x, x, mask=overt.Causal()).output)


def test_pieces_are_transparent_to_pytrees():
    mask = overt.Causal() & overt.Lengths(torch.tensor([1, 2]))
    leaves, tree = torch.utils._pytree.tree_flatten(mask)
    assert [leaf.tolist() for leaf in leaves] == [[1, 2]]
    rebuilt = torch.utils._pytree.tree_unflatten([torch.tensor([3, 4])], tree)
    assert rebuilt.right.keys.tolist() == [3, 4]
    assert rebuilt.left.offset is None


def test_tensors_without_data_get_the_shape_of_the_answer():
    x = torch.empty(2, 4, 9, 8, device="meta")
    assert overt.attend(x, x, x[..., :3], mask=overt.Causal(), score=overt.Gaussian(1.0)).shape == (2, 4, 9, 3)


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_module_gives_the_same_numbers(strict):
    class Two(torch.nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x, mask=overt.Causal()), overt.attend(x, x, x, score=overt.Gaussian(1.0))

    x = normal(2, 4, 9, 8)
    exported = torch.export.export(Two(), (x,), strict=strict).module()
    for result, wanted in zip(exported(x), Two()(x), strict=True):
        torch.testing.assert_close(result, wanted)


@pytest.mark.slow
def test_compiled_for_dynamic_shapes_it_gives_the_same_numbers_at_any_length():
    torch._dynamo.reset()

    def call(x):
        return overt.attend(x, x, x, mask=overt.Causal(), score=overt.Cosine(2.0), bias=overt.ALiBi(torch.ones(4)))

    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (9, 17, 33):
        x = normal(2, 4, length, 8, dtype=torch.float32)
        torch.testing.assert_close(compiled(x), call(x), rtol=1e-5, atol=1e-5)
