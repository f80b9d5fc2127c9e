"""Weights move between torch's nn.MultiheadAttention and MultiHeadAttention, both ways, and both then compute the same."""

import copy
import itertools

import pytest
import torch
from torch import nn

import overt
from overt.errors import InputError, KindError
from overt.layers import MultiHeadAttention, replace_multihead_attention, torch_state_dict

WIDTH, HEADS, B, Q, K = 12, 3, 2, 5, 7
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
NAMES = ("widths", "bias", "batch_first", "add_bias_kv", "add_zero_attn")
EVERY = list(itertools.product([False, True], repeat=len(NAMES)))


def layer(combination, dtype=torch.float64, **options):
    """torch's layer with every number drawn, none of its biases zero."""
    chosen = dict(zip(NAMES, combination, strict=True))
    widths = {"kdim": 8, "vdim": 10} if chosen.pop("widths") else {}
    torch.manual_seed(0)
    made = nn.MultiheadAttention(WIDTH, HEADS, **chosen, **widths, **options).to(dtype)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.4)
    return made


def inputs(theirs, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    sizes = (Q, WIDTH), (K, theirs.kdim), (K, theirs.vdim)
    return [torch.randn(B, *size, generator=generator, dtype=torch.float64).to(dtype) for size in sizes]


def in_order(theirs, tensors):
    return [x if theirs.batch_first else x.transpose(0, 1) for x in tensors]


def close(result, wanted, dtype):
    size = max(float(wanted.detach().abs().max()), 1)
    torch.testing.assert_close(result, wanted, rtol=0, atol=TOLERANCE[dtype] * size)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("combination", EVERY, ids=str)
@pytest.mark.each_value
def test_from_torch_gives_torchs_outputs_and_weights_of_each_head(combination, dtype):
    theirs = layer(combination, dtype)
    ours, arguments = MultiHeadAttention.from_torch(theirs), inputs(theirs, dtype)
    output, weights = theirs(*in_order(theirs, arguments), average_attn_weights=False)
    close(ours(*arguments), in_order(theirs, [output])[0], dtype)
    close(ours.weights(*arguments), weights, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("combination", EVERY, ids=str)
@pytest.mark.each_value
def test_gradients_are_torchs(combination, dtype):
    theirs = layer(combination, dtype)
    ours, arguments = MultiHeadAttention.from_torch(theirs), [x.requires_grad_() for x in inputs(theirs, dtype)]
    theirs(*in_order(theirs, arguments))[0].square().sum().backward()
    wanted = [x.grad for x in arguments]
    for x in arguments:
        x.grad = None
    ours(*arguments).square().sum().backward()
    for x, gradient in zip(arguments, wanted, strict=True):
        close(x.grad, gradient, dtype)
    of_gradients = copy.deepcopy(ours)
    for parameter, target in zip(of_gradients.parameters(), ours.parameters(), strict=True):
        parameter.data = target.grad
    for name, gradient in of_gradients.to_torch().state_dict().items():
        close(gradient, theirs.get_parameter(name).grad, dtype)


@pytest.mark.parametrize("combination", EVERY, ids=str)
def test_to_torch_gives_back_the_same_layer_batch_first(combination):
    theirs = layer(combination, dropout=0.25).eval()
    back = MultiHeadAttention.from_torch(theirs).to_torch()
    assert back.batch_first
    assert not back.training
    assert back.dropout == 0.25
    state = back.state_dict()
    assert state.keys() == theirs.state_dict().keys()
    assert all(torch.equal(state[name], wanted) for name, wanted in theirs.state_dict().items())


@pytest.mark.parametrize("way", [MultiHeadAttention.from_torch, lambda layer: MultiHeadAttention.from_torch(layer).to_torch()])
def test_weights_are_copies_of_the_same_dtype(way):
    theirs = layer((False, True, True, True, False), torch.bfloat16)
    made = way(theirs)
    assert {parameter.dtype for parameter in made.parameters()} == {torch.bfloat16}
    before = theirs.in_proj_weight.clone()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
    assert torch.equal(theirs.in_proj_weight, before)


def test_a_layer_moves_to_torchs_device():
    theirs = nn.MultiheadAttention(WIDTH, HEADS, device="meta")
    assert MultiHeadAttention.from_torch(theirs).query.weight.device.type == "meta"


class Model(nn.Module):
    """A model with attention somewhere inside, torch's or ours."""

    def __init__(self, attention):
        super().__init__()
        self.block = nn.ModuleDict({"attention": attention, "norm": nn.LayerNorm(WIDTH)})


@pytest.mark.parametrize("combination", EVERY, ids=str)
def test_a_larger_model_loads_torchs_state_dict_and_gives_it_back(combination):
    theirs = Model(layer(combination))
    ours = Model(MultiHeadAttention.from_torch(layer(combination)))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(1)
    ours.load_state_dict(theirs.state_dict())
    arguments = inputs(theirs.block["attention"])
    wanted = theirs.block["attention"](*in_order(theirs.block["attention"], arguments))[0]
    close(ours.block["attention"](*arguments), in_order(theirs.block["attention"], [wanted])[0], torch.float64)
    state = torch_state_dict(ours)
    assert state.keys() == theirs.state_dict().keys()
    assert all(torch.equal(state[name], wanted) for name, wanted in theirs.state_dict().items())


def test_a_shared_layer_has_torchs_names_wherever_it_stands():
    theirs = layer((False, True, True, False, False))
    ours = MultiHeadAttention.from_torch(theirs)
    wanted = nn.ModuleList([theirs, theirs]).state_dict()
    state = torch_state_dict(nn.ModuleList([ours, ours]))
    assert state.keys() == wanted.keys()
    assert all(torch.equal(state[name], wanted[name]) for name in wanted)


def test_a_state_dict_that_is_loaded_is_not_changed():
    state = layer((False, True, True, False, False)).state_dict()
    names = list(state)
    MultiHeadAttention(WIDTH, HEADS).load_state_dict(state)
    assert list(state) == names


def test_its_own_state_dict_loads_too():
    one, other = (MultiHeadAttention(WIDTH, HEADS, kv_heads=1, positions="relative", extra_key=True) for _ in range(2))
    other.load_state_dict(one.state_dict())
    x = torch.randn(B, Q, WIDTH)
    torch.testing.assert_close(other(x), one(x))


def test_torchs_state_dict_of_another_size_is_torchs_error():
    state = layer((False, True, True, False, False)).state_dict()
    with pytest.raises(RuntimeError, match=r"size mismatch for key.weight"):
        MultiHeadAttention(WIDTH, HEADS, kv_heads=1).load_state_dict(state)
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "extra_key", "extra_value"'):
        MultiHeadAttention(WIDTH, HEADS, extra_key=True).load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kv_heads": 1}, "kv_heads=1"),
        ({"head_width": 64}, "head_width=64"),
        ({"positions": "alibi"}, "positions"),
        ({"causal": True}, "causal or window, which torch takes at each call"),
        ({"window": 3}, "causal or window, which torch takes at each call"),
        ({"score": overt.Cosine()}, r"the score Cosine\(scale=1.0\)"),
        ({"score": overt.Dot(softcap=9.0)}, r"the score Dot\(scale=None, softcap=9.0\)"),
        ({"score": overt.Dot(scale=torch.ones(HEADS, 1, 1))}, "the score Dot"),
        ({"normalizer": overt.Softmax(temperature=torch.ones(HEADS, 1, 1))}, "the normalizer Softmax"),
        ({"normalizer": overt.Sparsemax()}, r"the normalizer Sparsemax\(\)"),
        ({"normalizer": overt.Softmax(sink=torch.zeros(HEADS))}, "the normalizer Softmax"),
    ],
)
def test_a_layer_that_torch_does_not_have_is_refused(options, named):
    ours = MultiHeadAttention(WIDTH, HEADS, **options)
    for way in (ours.to_torch, lambda: torch_state_dict(nn.Sequential(ours))):
        with pytest.raises(
            InputError,
            match=f"in heads that share the width evenly, as torch's MultiheadAttention computes them, got a layer with {named}",
        ):
            way()


def test_a_plain_score_and_softmax_that_are_given_are_torchs():
    ours = MultiHeadAttention(WIDTH, HEADS, score=overt.Dot(scale=0.5), normalizer=overt.Softmax())
    x = torch.randn(B, Q, WIDTH)
    assert ours.head_width**-0.5 == 0.5
    torch.testing.assert_close(ours.to_torch()(x, x, x)[0], ours(x))


def test_from_torch_reads_a_replaced_layer_too():
    theirs = layer((False, True, True, False, False))
    arguments = inputs(theirs)
    wanted = theirs(*arguments)[0]
    close(MultiHeadAttention.from_torch(replace_multihead_attention(theirs))(*arguments), wanted, torch.float64)


def test_a_class_with_a_forward_of_its_own_is_refused():
    class Custom(nn.MultiheadAttention):
        def forward(self, x):
            return x

    for other in (Custom(WIDTH, HEADS), nn.Linear(WIDTH, WIDTH)):
        with pytest.raises(KindError, match=f"may compute something else, got {type(other).__name__}"):
            MultiHeadAttention.from_torch(other)


def test_matrices_start_as_large_as_those_of_torchs_transformer():
    """With query, key and value √2 as large, norms behind the sublayers had perplexity 23 where they now have 9."""
    theirs = nn.Transformer(64, 4, 1, 1, 64, batch_first=True).encoder.layers[0].self_attn
    ours = MultiHeadAttention(64, 4)
    query, key, value = theirs.in_proj_weight.detach().chunk(3)
    pairs = (ours.query, query), (ours.key, key), (ours.value, value), (ours.output, theirs.out_proj.weight)
    for linear, wanted in pairs:
        torch.testing.assert_close(linear.weight.abs().max(), wanted.abs().max(), rtol=0.02, atol=0)
        torch.testing.assert_close(linear.weight.std(), wanted.std(), rtol=0.05, atol=0)


def test_matrices_of_other_widths_start_as_large_as_their_own_sizes_say():
    layer = MultiHeadAttention(64, 4, key_width=32)
    for linear in (layer.query, layer.key, layer.value, layer.output):
        limit = (6 / sum(linear.weight.shape)) ** 0.5
        assert 0.98 * limit < linear.weight.abs().max() <= limit
