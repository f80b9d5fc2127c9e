"""A replaced layer is torch's to everything outside: its attributes, its parameters, and the libraries that change it."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad
from torch.nn.utils import parametrizations, parametrize, prune

import overt
from overt.layers import ReplacedAttention, replace_multihead_attention

WIDTH, HEADS = 16, 4
LAYERS = {
    "plain": {},
    "no bias": {"bias": False},
    "length first": {"batch_first": False},
    "widths": {"kdim": 6, "vdim": 9},
    "extra keys": {"add_bias_kv": True, "add_zero_attn": True},
    "all": {"kdim": 6, "vdim": 9, "add_bias_kv": True, "add_zero_attn": True, "bias": False, "dropout": 0.25},
}


def pair(**options):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, **{"batch_first": True} | options).eval()
    return theirs, replace_multihead_attention(copy.deepcopy(theirs))


def inputs(layer, seed=0):
    torch.manual_seed(seed)
    return tuple(torch.randn(2, 5, width) for width in (WIDTH, layer.kdim, layer.vdim))


def assert_same(theirs, ours, atol=1e-5):
    values = [value.to(next(theirs.parameters()).dtype) for value in inputs(theirs)]
    for one, other in zip(ours(*values), theirs(*values), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return type(one) is type(other) if isinstance(one, nn.Module) else one == other


@pytest.mark.parametrize("options", LAYERS)
def test_every_attribute_is_torchs(options):
    theirs, ours = pair(**LAYERS[options])
    assert type(ours) is ReplacedAttention
    assert [*vars(ours)] == [*vars(theirs)]
    names = [name for name in dir(theirs) if not name.startswith("__") and not callable(getattr(theirs, name))]
    hooks = {"_forward_pre_hooks"}
    assert {"_qkv_same_embed_dim", "in_proj_weight", "bias_k", "kdim", "batch_first", "head_dim"} <= {*names}
    containers = {"_parameters", "_modules"}
    assert all(same(getattr(ours, name), getattr(theirs, name)) for name in {*names} - hooks - containers)
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    assert [*ours.state_dict()] == [*theirs.state_dict()]
    assert repr(ours) == repr(theirs).replace("MultiheadAttention", "ReplacedAttention")


@pytest.mark.parametrize("options", LAYERS)
def test_parameters_are_initialised_again_as_torch_does(options):
    layers = pair(**LAYERS[options])
    for layer in layers:
        torch.manual_seed(5)
        layer._reset_parameters()
    for one, other in zip(*(layer.parameters() for layer in layers), strict=True):
        assert torch.equal(one, other)


def test_a_whole_transformer_is_initialised_again():
    model = replace_multihead_attention(nn.Transformer(WIDTH, HEADS, 1, 1, 32, batch_first=True))
    before = model.encoder.layers[0].self_attn.in_proj_weight.clone()
    model._reset_parameters()
    for layer in model.modules():
        if isinstance(layer, nn.MultiheadAttention):
            layer._reset_parameters()
    assert not torch.equal(before, model.encoder.layers[0].self_attn.in_proj_weight)


@pytest.mark.parametrize(
    "name", ["in_proj_weight", "in_proj_bias", "bias_k", "out_proj.weight", "q_proj_weight", "k_proj_weight"]
)
@pytest.mark.parametrize("way", ["parametrize", "weight norm", "spectral norm", "prune", "prune for good", "weight norm, old"])
@pytest.mark.each_pair
def test_what_is_computed_of_a_parameter_is_used(name, way):
    options = {"kdim": 6, "vdim": 9} if name[:2] in ("q_", "k_") else {"add_bias_kv": True}
    layers, results = [layer.double() for layer in pair(**options)], []
    for layer in layers:
        owner, _, last = name.rpartition(".")
        module = layer.get_submodule(owner)
        torch.manual_seed(3)
        nn.init.normal_(getattr(module, last))
        if way == "parametrize":
            parametrize.register_parametrization(module, last, nn.Tanh())
        elif way == "weight norm":
            parametrizations.weight_norm(module, last)
            getattr(module.parametrizations, last).original0.data.mul_(3)
        elif way == "spectral norm":
            parametrizations.spectral_norm(module, last)
        elif way == "weight norm, old":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nn.utils.weight_norm(module, last)
            getattr(module, f"{last}_g").data.mul_(3)
        else:
            prune.l1_unstructured(module, last, amount=0.5)
            if way == "prune for good":
                prune.remove(module, last)
        results.append([*layer.parameters()])
    assert_same(*layers, 1e-12)
    assert [each.shape for each in results[0]] == [each.shape for each in results[1]]


@pytest.mark.parametrize("options", LAYERS)
def test_parameters_that_were_flattened_into_one_are_read_as_views(options):
    theirs, ours = pair(**LAYERS[options])
    names = [name for name, parameter in ours.named_parameters() if "." not in name]
    flat = nn.Parameter(torch.cat([getattr(ours, name).detach().flatten() for name in names]))
    start = 0
    for name in names:
        shape = getattr(ours, name).shape
        del ours._parameters[name]
        setattr(ours, name, flat[start : start + shape.numel()].view(shape))
        start += shape.numel()
    assert_same(theirs, ours)
    ours(*inputs(ours))[0].sum().backward()
    assert flat.grad.abs().sum() > 0


@pytest.mark.parametrize("options", LAYERS)
def test_functional_calls_and_their_gradients_are_torchs(options):
    theirs, ours = pair(**LAYERS[options])
    arguments = inputs(theirs)

    def loss(parameters, layer):
        return functional_call(layer, parameters, arguments)[0].square().sum()

    of_each = [
        grad(loss)({name: 2 * each.detach() for name, each in layer.named_parameters()}, layer) for layer in (theirs, ours)
    ]
    for name, wanted in of_each[0].items():
        torch.testing.assert_close(of_each[1][name], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("targets", [["self_attn"], ["out_proj"], ["linear1"], ["self_attn", "linear1"]])
def test_adapters_of_low_rank_are_those_of_torchs_layer(targets):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    plain = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True), 2)
    models, x = [], torch.randn(2, 5, WIDTH)
    for model in (plain, replace_multihead_attention(copy.deepcopy(plain))):
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models.append(peft.get_peft_model(model, peft.LoraConfig(target_modules=targets, r=2, init_lora_weights=False)))
    theirs, ours = models
    trained = [[name for name, each in model.named_parameters() if each.requires_grad] for model in models]
    assert trained[0] == trained[1]
    gradients, through_a_module = [], targets != ["out_proj"]  # torch reads the weight of out_proj, and does not call it
    for model in models:
        loss = model(x).square().sum()
        assert loss.requires_grad == through_a_module
        if through_a_module:
            loss.backward()
        gradients.append({name: each.grad for name, each in model.named_parameters() if each.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, wanted in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], wanted, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-4)
    torch.testing.assert_close(ours.merge_and_unload()(x), theirs.merge_and_unload()(x), rtol=0, atol=1e-4)


def test_linear_layers_next_to_it_are_quantised():
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True), 1).eval()
    x = torch.randn(2, 5, WIDTH)
    wanted = model(x).detach()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        result = torch.ao.quantization.quantize_dynamic(replace_multihead_attention(model), {nn.Linear}, dtype=torch.qint8)(x)
    assert not torch.equal(result, wanted)
    torch.testing.assert_close(result, wanted, rtol=0, atol=0.05)


def test_options_that_are_changed_later_count():
    theirs, ours = pair()
    for layer in (theirs, ours):
        layer.requires_grad_(False)
        layer.num_heads, layer.head_dim, layer.add_zero_attn = 2, 8, True
    assert_same(theirs, ours)
    for layer in (theirs, ours):  # as a library that separates the matrices does
        matrices = layer.in_proj_weight.detach().clone().chunk(3)
        layer.in_proj_weight, layer._qkv_same_embed_dim = None, False
        for name, matrix in zip("qkv", matrices, strict=True):
            setattr(layer, f"{name}_proj_weight", nn.Parameter(matrix))
    assert_same(theirs, ours)


def calls_of(run):
    calls = []
    token = overt.attention.mechanism.observers.set((lambda call, output: calls.append(call),))
    try:
        with torch.no_grad():
            run()
    finally:
        overt.attention.mechanism.observers.reset(token)
    return len(calls)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("way", ["whole", "attention", "copied", "loaded", "built of it"])
def test_torchs_fast_path_computes_nothing_however_the_layer_got_there(way, padded):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True).eval()
    replace_multihead_attention(layer.self_attn if way == "attention" else layer)
    if way == "loaded":
        layer.self_attn.__setstate__({**layer.self_attn.__dict__, "_forward_pre_hooks": type(layer._forward_pre_hooks)()})
    layer = copy.deepcopy(layer) if way == "copied" else layer
    if way == "built of it":
        with pytest.warns(UserWarning, match="use_nested_tensor is False"):
            layer = nn.TransformerEncoder(layer, 2).eval()
    masks = {"src_key_padding_mask": torch.arange(5) >= torch.tensor([5, 3])[:, None]} if padded else {}
    assert calls_of(lambda: layer(torch.randn(2, 5, WIDTH), **masks)) == (2 if way == "built of it" else 1)
