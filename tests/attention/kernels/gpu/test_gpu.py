"""The kernels for GPUs in float32, float16 and bfloat16, beside float64 on the processor: on a GPU where there is one, else interpreted.

`make test-gpu` runs these alone, on the GPU. Output, every gradient and every statistic, within the tolerances of each dtype.
"""

from dataclasses import fields, is_dataclass

import pytest
import torch

import overt
from compare import GRADIENT, OUTPUT, close
from everyday import everyday_where_interpreted
from many_masks import MASKS, ON_GPUS
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat.summary import KeySet
from overt.attention.kernels.sharded import flash
from overt.attention.kernels.sharded.partial import merge
from overt.attention.summary import with_masses
from overt.errors import InputError

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ACTIVATIONS = ["tanh", "sigmoid", "relu", "leaky_relu"]
NAN, INF = float("nan"), float("inf")
# In the interpreter test_native_attend.py and test_native_masks.py have the same cases in float64 every day.
also_in_float64 = pytest.mark.slow


def drawn(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def moved(sources, dtype, device):
    """Every floating tensor of options in a dtype, all on a device."""
    if isinstance(sources, torch.Tensor):
        return sources.to(device, dtype) if sources.is_floating_point() else sources.to(device)
    if isinstance(sources, dict):
        return {name: moved(each, dtype, device) for name, each in sources.items()}
    if is_dataclass(sources):
        return type(sources)(**{field.name: moved(getattr(sources, field.name), dtype, device) for field in fields(sources)})
    return sources


def attended(tensors, score, options, path):
    """Output and gradients of query, key, value, weight and a bias tensor."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in zip(("query", "key", "value"), tensors, strict=True)}
    leaves["weight"] = score.weight.clone().requires_grad_()
    if isinstance(options.get("bias"), torch.Tensor):
        options = options | {"bias": options["bias"].clone().requires_grad_()}
        leaves["bias"] = options["bias"]
    sources = overt.Additive(leaves["weight"], score.activation)
    with overt.use_path(path):
        output = overt.attend(leaves["query"], leaves["key"], leaves["value"], score=sources, **options)
    upstream = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).reshape(output.shape).to(output)
    result = torch.autograd.grad(output, list(leaves.values()), upstream)
    return {"output": output.detach()} | dict(zip(leaves, result, strict=True))


def against_float64(tensors, dtype, activation="tanh", weight=None, **options):
    """Compare with the blocks in float64, of inputs that are rounded to the dtype first."""
    features = tensors[0].shape[-1]
    score = overt.Additive(torch.linspace(-1, 1, features).double() if weight is None else weight, activation)
    rounded, sources = [tensor.to(dtype) for tensor in tensors], moved(score, dtype, "cpu")
    options = moved(options, dtype, "cpu")
    on_device = moved(dict(enumerate(rounded)), dtype, DEVICE)
    result = attended(list(on_device.values()), moved(sources, dtype, DEVICE), moved(options, dtype, DEVICE), "triton")
    wide = [tensor.double() for tensor in rounded]
    wanted = attended(wide, moved(sources, torch.float64, "cpu"), moved(options, torch.float64, "cpu"), "blocked")
    for name, number in wanted.items():
        close(result[name].double().cpu(), number, (OUTPUT if name == "output" else GRADIENT)[dtype], name)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_in_every_dtype(activation, dtype):
    against_float64(drawn((2, 33, 9), (2, 70, 9), (2, 70, 5)), dtype, activation)


@also_in_float64
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 300), (63, 65), (129, 257), (257, 31)])
def test_lengths_round_the_edges_of_blocks(queries, keys):
    against_float64(drawn((queries, 6), (keys, 6), (keys, 3)), torch.float32)


@also_in_float64
@pytest.mark.parametrize(("features", "width"), [(1, 1), (3, 130), (16, 17), (33, 64)])
def test_widths_of_features_and_values(features, width):
    against_float64(drawn((9, features), (40, features), (40, width)), torch.float32)


@also_in_float64
@pytest.mark.parametrize("name", ON_GPUS)
def test_each_mask(name):
    against_float64(drawn((2, 3, 37, 4), (2, 3, 70, 4), (2, 3, 70, 3)), torch.float32, mask=MASKS[name])


@pytest.mark.parametrize("name", sorted({*MASKS} - {*ON_GPUS}))
def test_a_mask_by_blocks_is_refused_with_the_reason(name):
    score = overt.Additive(torch.ones(4, device=DEVICE))
    query, key = torch.ones(2, 3, 37, 4, device=DEVICE), torch.ones(2, 3, 70, 4, device=DEVICE)
    with overt.use_path("triton"), pytest.raises(InputError, match="the kernels for GPUs know no masks by blocks"):
        overt.attend(query, key, key, score=score, mask=moved(MASKS[name], torch.float32, DEVICE))


BIASES = {
    "a tensor": torch.linspace(-2, 2, 9 * 40).reshape(9, 40),
    "a head's": torch.linspace(-2, 2, 3 * 40).reshape(3, 1, 40),
    "a row's": torch.linspace(-2, 2, 2 * 9).reshape(2, 1, 9, 1),
    "one number": torch.tensor(0.5),
    "slopes": overt.ALiBi(torch.tensor([0.5, 0.1, 0.0])),
    "a table": overt.RelativePositionBias(torch.linspace(-1, 1, 15).reshape(3, 5)),
}


@also_in_float64
@pytest.mark.parametrize("name", BIASES)
def test_each_bias_and_its_gradient(name):
    against_float64(drawn((2, 3, 9, 5), (2, 3, 40, 5), (2, 3, 40, 4)), torch.float32, bias=BIASES[name])


@also_in_float64
@pytest.mark.parametrize("normalizer", [overt.Softmax(1.7), overt.Softmax(0.6, torch.tensor([0.4, -2.0, 30.0]))])
def test_temperatures_and_sinks(normalizer):
    against_float64(drawn((2, 3, 9, 5), (2, 3, 40, 5), (2, 3, 40, 4)), torch.float32, normalizer=normalizer)


@also_in_float64
@pytest.mark.parametrize("shapes", [[(2, 6, 9, 4), (2, 2, 11, 4), (2, 2, 11, 4)], [(2, 1, 5, 4), (3, 7, 4), (2, 3, 7, 4)]])
def test_grouped_heads_and_leading_dimensions_that_broadcast(shapes):
    against_float64(drawn(*shapes), torch.float32)


@also_in_float64
def test_each_head_may_have_its_own_weight():
    weight = torch.linspace(-1, 1, 15).double().reshape(3, 5)
    against_float64(drawn((2, 3, 9, 5), (2, 3, 11, 5), (2, 3, 11, 4)), torch.float32, weight=weight)


@pytest.mark.each_value
@also_in_float64
@pytest.mark.parametrize("extreme", [(2.5, 2.5), (22.5, 22.5), (60.0, -58.0), (300.0, -299.0), (1e4, -1e4)], ids=str)
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_features_that_are_far_or_range_far(activation, extreme):
    query, key, value = drawn((7, 5), (9, 5), (9, 4))
    query, key = extreme[0] * (1 + 0.01 * query), extreme[1] * (1 + 0.01 * key)
    query[3], key[2] = 0.3, -0.2  # ordinary ones beside them
    against_float64([query, key, value], torch.float32, activation)


@pytest.mark.each_value
@also_in_float64
@pytest.mark.parametrize("nasty", [NAN, INF, -INF])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_masked_key_is_as_good_as_deleted_whatever_it_holds(activation, nasty):
    query, key, value = drawn((33, 5), (70, 5), (70, 4))
    key[50:], value[50:] = nasty, nasty
    score = overt.Additive(torch.ones(5, device=DEVICE), activation)
    leaves = [tensor.float().to(DEVICE).requires_grad_() for tensor in (query, key, value)]
    clean = [tensor.detach()[: min(50, len(tensor))].clone().requires_grad_() for tensor in leaves]
    with overt.use_path("triton"):
        output = overt.attend(*leaves, score=score, mask=overt.Lengths(50))
        wanted = overt.attend(*clean, score=score)
    close(output.detach().cpu(), wanted.detach().cpu(), 1e-6, "output")
    result, sought = (
        torch.autograd.grad(each.square().sum(), sources) for each, sources in ((output, leaves), (wanted, clean))
    )
    for gradient, other in zip(result, sought, strict=True):
        close(gradient[:50].cpu(), other.cpu(), 1e-5, "gradient")
        assert (gradient[50:] == 0).all()


def test_dropout_is_that_of_the_plain_formula_in_both_passes():
    leaves = [tensor.float().to(DEVICE).requires_grad_() for tensor in drawn((2, 33, 4), (2, 40, 4), (2, 40, 3))]
    result = []
    for create_graph in (False, True):  # gradients that have derivatives are those of the plain formula
        torch.manual_seed(3)
        with overt.use_path("triton"):
            output = overt.attend(*leaves, score=overt.Additive(torch.ones(4, device=DEVICE)), dropout=0.3)
        result.append([output, *torch.autograd.grad(output.square().sum(), leaves, create_graph=create_graph)])
    for on_device, other in zip(*result, strict=True):
        close(on_device.detach().cpu(), other.detach().cpu(), 1e-5, "output or gradient")


SUMMARIES = {
    "dot": {"score": overt.Dot(softcap=2.0), "mask": overt.Causal(), "map_size": (3, 7), "top": 5},
    "sink": {"normalizer": overt.Softmax(0.7, torch.tensor([0.3, -9.0])), "map_size": 11},
    "additive": {"score": overt.Additive(torch.linspace(-1, 1, 8)), "bias": overt.ALiBi(torch.ones(2)), "map_size": 2},
    "window": {"mask": overt.Window(20, 3), "map_size": (9, 1), "top": 3},
    "lengths": {"score": overt.Cosine(3.0), "mask": overt.Lengths(torch.tensor([[1], [20]])), "top": 40},
}


@pytest.mark.parametrize(
    "dtype", [torch.float32, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in DTYPES[1:])], ids=str
)
@pytest.mark.parametrize("name", everyday_where_interpreted(SUMMARIES, "sink", "dot"))
def test_summaries(name, dtype):
    tensors = [tensor.to(dtype) for tensor in drawn((2, 2, 140, 8), (2, 1, 145, 8), (2, 1, 145, 3))]
    options = moved(SUMMARIES[name], dtype, "cpu")
    (query, key, value), wide = (tensor.to(DEVICE) for tensor in tensors), [tensor.double() for tensor in tensors]
    with overt.use_path("triton"):
        result = overt.summarize(query, key, value=value, **moved(options, dtype, DEVICE))
    with overt.use_path("blocked"):
        wanted = overt.summarize(wide[0], wide[1], value=wide[2], **moved(options, torch.float64, "cpu"))
    for part in ("lse", "entropy", "received", "top_weights", "map_mean", "map_max", "sink", "output"):
        on_device, other = getattr(result, part), getattr(wanted, part)
        assert (on_device is None) == (other is None), part
        if on_device is not None:
            close(on_device.double().cpu(), other, OUTPUT[dtype], part)


def test_sets_of_keys_get_their_weights():
    query, key, value = (tensor.to(DEVICE, torch.float32) for tensor in drawn((2, 2, 40, 8), (2, 1, 45, 8), (2, 1, 45, 3)))
    at, ids = torch.arange(40, device=DEVICE), torch.arange(45, device=DEVICE) % 4
    call = Call.checked(
        query, key, value, None, overt.Causal() & overt.Lengths(43, queries=30), None,
        overt.Softmax(sink=torch.ones(2, device=DEVICE)),
    )  # fmt: skip
    sets = [KeySet(at - 1, at), KeySet(torch.zeros_like(at), at + 3, at % 4, ids)]
    summary, masses = with_masses(call, 2, sets)
    assert summary.output is not None
    weights = overt.steps(query, key, value, mask=call.mask, normalizer=call.normalizer).weights.double().cpu()
    i, j = torch.arange(40)[:, None], torch.arange(45)
    expected = torch.stack([(weights * (j == i - 1)).sum(-1), (weights * ((j % 4 == i % 4) & (j < i + 3))).sum(-1)], dim=-1)
    close(masses.double().cpu(), expected, OUTPUT[torch.float32], "masses")


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize(("heads", "features"), [((4, 4), 64), ((4, 2), 24), ((3, 1), 128)])
def test_parts_by_the_flash_kernel_of_torch(heads, features, dtype):
    """A process's own keys under a causal mask, then another's, all of which it sees; then the gradients of each."""
    length, more = 77, 40
    shapes = (2, heads[0], length, features), (2, heads[1], length + more, features), (2, heads[1], length + more, features)
    query, key, value = (tensor.to(DEVICE, dtype) for tensor in drawn(*shapes))
    keys, values = key.split((length, more), -2), value.split((length, more), -2)
    leaves = [tensor.clone().requires_grad_() for tensor in (query, *keys, *values)]
    calls = [
        Call.checked(leaves[0], k, v, mask=m) for k, v, m in zip(leaves[1:3], leaves[3:], (overt.Causal(), None), strict=True)
    ]
    assert [flash.refusal(call) for call in calls] == [None, None]
    with torch.no_grad():
        output, lse = merge(*flash.partial(calls[0]), *flash.partial(calls[1]))
    upstream = torch.linspace(-1, 1, output.numel(), device=DEVICE).reshape(output.shape)
    gradients = [torch.zeros_like(leaf, dtype=torch.float64) for leaf in leaves]
    for call in calls:
        result = torch.autograd.grad(flash.resumed(call, output, lse), leaves, upstream, allow_unused=True)
        gradients = [total if one is None else total + one.double() for total, one in zip(gradients, result, strict=True)]

    wide = [tensor.double().cpu().requires_grad_() for tensor in (query, key, value)]
    mask = torch.cat([torch.ones(length, length).tril(), torch.ones(length, more)], -1).bool()
    with overt.use_path("blocked"):
        wanted = overt.attend(*wide, mask=mask)
    of_query, of_key, of_value = torch.autograd.grad(wanted, wide, upstream.double().cpu())
    close(output.double().cpu(), wanted.detach(), OUTPUT[dtype], "output")
    joined = gradients[0], torch.cat(gradients[1:3], -2), torch.cat(gradients[3:], -2)
    for name, result, expected in zip(("query", "key", "value"), joined, (of_query, of_key, of_value), strict=True):
        close(result.cpu(), expected, GRADIENT[dtype], name)
