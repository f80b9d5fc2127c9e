"""Keywords that torch's layer takes and overt's do not: each error says what to write."""

import re

import pytest
import torch

from overt.errors import InputError, KindError
from overt.layers import AttentionPool, CrossAttention, MultiHeadAttention, SelfAttention

D = 8
X = torch.randn(2, 5, D, generator=torch.Generator().manual_seed(1))
LAYERS = {
    "MultiHeadAttention": (lambda **options: MultiHeadAttention(D, 2)(X, **options)),
    "SelfAttention": (lambda **options: SelfAttention(D)(X, **options)),
    "CrossAttention": (lambda **options: CrossAttention(D, D)(X, X, **options)),
    "AttentionPool": (lambda **options: AttentionPool(D)(X, **options)),
}
WEIGHTS = "call layer.weights(…), since the layer returns its output alone"
AVERAGE = "call layer.weights(…), and average the weights of several heads: .mean(-3)"


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    ("keyword", "value", "fix"),
    [
        ("need_weights", True, WEIGHTS),
        ("need_weights", False, "leave it out"),
        ("average_attn_weights", True, AVERAGE),
        ("is_causal", False, "leave it out"),
    ],
)
def test_a_keyword_of_torchs_layer_says_what_to_write(name, keyword, value, fix):
    with pytest.raises(KindError) as error:
        LAYERS[name](**{keyword: value})
    assert str(error.value) == f"Expected the arguments of {name}, got torch's {keyword}={value}. Fix: {fix}."


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("MultiHeadAttention", "build the layer with causal=True"),
        ("SelfAttention", "build the layer with causal=True"),
        ("CrossAttention", "pass mask=overt.Causal(offset=0)"),
        ("AttentionPool", "pass mask=overt.Causal(offset=0)"),
    ],
)
def test_is_causal_is_said_when_a_layer_is_built_or_by_its_mask(name, fix):
    with pytest.raises(KindError, match=re.escape(f"got torch's is_causal=True. Fix: {fix}.")):
        LAYERS[name](is_causal=True)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("keyword", ["key_padding_mask", "attn_mask"])
def test_a_mask_of_torch_is_refused_since_its_true_means_the_opposite(name, keyword):
    message = f"mask= of {name}, in which True means that a query may attend, got torch's {keyword}=, in which True means that it may not"
    with pytest.raises(InputError, match=re.escape(message)):
        LAYERS[name](**{keyword: torch.zeros(2, 5, dtype=torch.bool)})


@pytest.mark.parametrize("name", LAYERS)
def test_a_keyword_that_nobody_knows_is_pythons_error(name):
    with pytest.raises(TypeError, match=f"{name} got an unexpected keyword argument 'heads'"):
        LAYERS[name](heads=3)


@pytest.mark.parametrize("method", ["forward", "steps", "weights"])
@pytest.mark.parametrize(("layer", "inputs"), [(SelfAttention(D), (X,)), (CrossAttention(D, D), (X, X))], ids=["self", "cross"])
def test_steps_and_weights_refuse_them_too(layer, inputs, method):
    with pytest.raises(KindError, match="got torch's need_weights=True"):
        getattr(layer, method)(*inputs, need_weights=True)
