"""Tensors of kinds that attention is not computed of, and masks that two dimensions fit: one sentence each, the same from every call."""

import re

import numpy
import pytest
import torch

import overt
from overt.errors import InputError, KindError
from overt.layers import CrossAttention, KVCache, MultiHeadAttention, SelfAttention

pytestmark = pytest.mark.filterwarnings("ignore:.*(beta|experimental|deprecated)")  # torch's shape, of some of these kinds
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(2, 2, 6, 8, generator=GENERATOR)
CALLS = {
    "plan": overt.plan,
    "attend": overt.attend,
    "steps": overt.steps,
    "summarize": lambda query, key, value, **pieces: overt.summarize(query, key, value=value, **pieces),
}
# What makes a tensor odd, and the fix.
ODD = {
    "float8_e4m3fn": (lambda x: x.to(torch.float8_e4m3fn), ".to(torch.bfloat16)"),
    "float8_e5m2": (lambda x: x.to(torch.float8_e5m2), ".to(torch.bfloat16)"),
    "float8_e8m0fnu": (lambda x: torch.empty(x.shape, dtype=torch.float8_e8m0fnu), ".to(torch.bfloat16)"),
    "complex": (lambda x: x.to(torch.complex64), ".real"),
    "complex half": (lambda x: torch.complex(x, x).to(torch.complex32), ".real"),
    "int": (lambda x: x.int(), ".float()"),
    "uint16": (lambda x: x.int().to(torch.uint16), ".float()"),
    "bool": (lambda x: x > 0, ".float()"),
    "coo": (lambda x: x.to_sparse(), ".to_dense()"),
    "hybrid coo": (lambda x: x.to_sparse(1), ".to_dense()"),
    "coo in half precision": (lambda x: x.half().to_sparse(), ".to_dense()"),
    "csr": (lambda x: x.to_sparse_csr(), ".to_dense()"),
    "csc": (lambda x: x.to_sparse_csc(), ".to_dense()"),
    "bsr": (lambda x: x.to_sparse_bsr((1, 1)), ".to_dense()"),
    "mkldnn": (lambda x: x.to_mkldnn(), ".to_dense()"),
    "quint8": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), ".dequantize()"),
    "qint32": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint32), ".dequantize()"),
}


def sentences(kind, **arguments):
    """The sentence of every call, each of which must refuse with the same one."""
    sentence_set = set()
    for call in CALLS.values():
        with pytest.raises(kind) as error:
            call(**{"query": X, "key": X, "value": X} | arguments)
        sentence_set.add(str(error.value))
    assert len(sentence_set) == 1, sentence_set
    return sentence_set.pop()


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("names", [("query",), ("key",), ("value",), ("key", "value"), ("query", "key", "value")], ids="-".join)
def test_inputs_of_another_kind_are_refused_with_the_cure(odd, names):
    make, fix = ODD[odd]
    sentence = sentences(KindError, **dict.fromkeys(names, make(X)))
    assert names[0] in sentence
    assert fix in sentence


@pytest.mark.parametrize("odd", ODD)
def test_biases_of_another_kind_are_refused_with_the_cure(odd):
    make, fix = ODD[odd]
    assert ("mask=" if odd == "bool" else fix) in sentences(KindError, bias=make(X[..., :6]))


@pytest.mark.parametrize("odd", [name for name in ODD if name != "bool"])
def test_masks_of_another_kind_are_refused(odd):
    make, fix = ODD[odd]
    sentence = sentences(KindError, mask=make(X[..., :6]))
    assert fix in sentence or "mask.bool()" in sentence or "bias=" in sentence
    if "dense" in fix:
        assert fix in sentences(KindError, mask=make((X[..., :6] > 0).float()).bool() if "coo" in odd else make(X[..., :6]))


def with_pieces(make):
    """A piece of every kind that holds a tensor, of a tensor that `make` makes odd."""
    return {
        "scale": lambda: {"score": overt.Dot(scale=make(torch.ones(2, 1, 1)))},
        "softcap": lambda: {"score": overt.Dot(softcap=make(torch.ones(2, 1, 1)))},
        "weight": lambda: {"score": overt.Additive(make(torch.ones(2, 8)))},
        "matrix": lambda: {"score": overt.Bilinear(make(torch.ones(8, 8)))},
        "cosine": lambda: {"score": overt.Cosine(make(torch.ones(2, 1, 1)))},
        "bandwidth": lambda: {"score": overt.Gaussian(make(torch.ones(2, 1, 1)))},
        "temperature": lambda: {"normalizer": overt.Softmax(make(torch.ones(2, 1, 1)))},
        "sink": lambda: {"normalizer": overt.Softmax(sink=make(torch.ones(2)))},
        "alpha": lambda: {"normalizer": overt.Entmax(make(torch.full((2, 1, 1), 1.5)))},
        "slopes": lambda: {"bias": overt.ALiBi(make(torch.ones(2)))},
        "table": lambda: {"bias": overt.RelativePositionBias(make(torch.ones(2, 3)))},
    }


@pytest.mark.parametrize(
    "odd", [name for name in ODD if name not in ("csr", "csc", "bsr")]
)  # these have two dimensions at least
@pytest.mark.parametrize("piece", with_pieces(None))
def test_tensors_of_another_kind_in_pieces_are_refused(piece, odd):
    make, _ = ODD[odd]
    with pytest.raises(KindError, match=r"Expected .*, got .*\. Fix: "):
        overt.attend(X, X, X, **with_pieces(make)[piece]())


@pytest.mark.parametrize(
    "make",
    [
        lambda ids: overt.Documents(ids),
        lambda ids: overt.masks.Keys(ids.bool()),
        lambda ids: overt.masks.Ranges(ids, ids),
        lambda ids: overt.Lengths(ids),
        lambda ids: overt.Causal(ids),
        lambda ids: overt.masks.Dense(ids.bool()),
        lambda ids: overt.masks.from_padding(ids.bool()),
        lambda ids: overt.masks.from_attention_mask(ids),
    ],
)
def test_sparse_tensors_in_masks_are_refused_with_the_cure(make):
    with pytest.raises(KindError, match=r"\.to_dense\(\)"):
        make(torch.ones(2, 6, dtype=torch.int64).to_sparse())


@pytest.mark.parametrize("odd", ["float8_e4m3fn", "coo", "csr", "mkldnn", "quint8", "complex"])
def test_layers_and_caches_refuse_them_too(odd):
    make, fix = ODD[odd]
    for layer in (SelfAttention(8), MultiHeadAttention(8, 2)):
        with pytest.raises(KindError, match=re.escape(fix)):
            layer(make(X[0]))
    with pytest.raises(KindError, match=re.escape(fix)):
        CrossAttention(8, 8)(X[0], make(X[0]))
    for key, value in ((make(X), X), (X, make(X))):
        with pytest.raises(KindError, match=re.escape(fix)):
            KVCache().extend(key, value)


def test_the_quick_way_of_small_calls_refuses_them_with_gradients_too():
    for make, fix in (ODD["coo"], ODD["mkldnn"], ODD["csr"]):
        for position in range(3):
            inputs = [X.clone().requires_grad_() for _ in range(3)]
            inputs[position] = make(X)
            with pytest.raises(KindError, match=re.escape(fix)):
                overt.attend(*inputs)


# Shapes of the weights' leading dimensions, of a mask's, and where these may stand: the fixes of the sentence.
TWO_WAYS = [
    ((2, 2), (2,), ["[:, None]", "[None]"]),
    ((6, 6), (6,), ["[:, None]", "[None]"]),  # as many heads as queries
    ((2, 3, 2), (2,), ["[:, None, None]", "[None, None]"]),
    ((2, 2, 2), (2,), ["[:, None, None]", "[None, :, None]", "[None, None]"]),
    ((3, 2, 2), (2,), ["[None, :, None]", "[None, None]"]),
    ((2, 2, 2), (2, 2), ["[:, :, None]", "[None]"]),
    ((2, 2, 3), (2, 1), ["[:, :, None]", "[None]"]),
]
ONE_WAY = [
    ((2, 3), (3,)),
    ((1, 3), (3,)),
    ((2, 2), (1,)),
    ((2, 2), (2, 2)),
    ((2, 2), (2, 1)),
    ((2, 2), ()),
    ((2,), (2,)),
    ((2, 3, 4), (3, 4)),
    ((2, 3, 4), (4,)),
]
AS = {
    "a bool tensor": lambda allowed: {"mask": allowed},
    "Dense": lambda allowed: {"mask": overt.masks.Dense(allowed)},
    "Dense in another": lambda allowed: {"mask": ~(overt.Causal() | ~overt.masks.Dense(allowed)) | overt.masks.Dense(allowed)},
    "a bias": lambda allowed: {"bias": torch.where(allowed, 0.0, -torch.inf)},
    "a bias in a sum": lambda allowed: {
        "bias": overt.biases.SumOfBiases(overt.ALiBi(torch.ones(1), offset=0), torch.where(allowed, 0.0, -1.0))
    },
}


@pytest.mark.parametrize("way", AS)
@pytest.mark.parametrize(("leading", "shape", "fixes"), TWO_WAYS, ids=str)
@pytest.mark.parametrize("pairs", [(6, 5), (1, 5), (6, 1)], ids=str)
def test_a_mask_that_fits_two_dimensions_is_refused_with_a_cure_for_each(leading, shape, fixes, pairs, way):
    query, key = torch.randn(*leading, 6, 4), torch.randn(*leading, 5, 4)
    allowed = torch.rand(*shape, *pairs) < 0.7
    sentence = sentences(InputError, query=query, key=key, value=key, **AS[way](allowed))
    name = "bias" if "bias" in way else "mask"
    for fix in fixes:
        assert f"{name}{fix} for" in sentence
        spelled = eval(f"allowed{fix}", {"allowed": allowed})
        overt.attend(query, key, key, **AS[way](spelled))  # each fix is taken
    assert sentence.count(f"{name}[") == len(fixes)


def test_the_two_cures_are_the_two_readings():
    allowed = torch.rand(2, 6, 6, generator=GENERATOR) < 0.6
    by_entry = torch.stack([overt.attend(X[b], X[b], X[b], mask=allowed[b]) for b in range(2)])
    by_head = torch.stack([overt.attend(X[:, h], X[:, h], X[:, h], mask=allowed[h]) for h in range(2)], dim=1)
    torch.testing.assert_close(overt.attend(X, X, X, mask=allowed[:, None]), by_entry)
    torch.testing.assert_close(overt.attend(X, X, X, mask=allowed[None]), by_head)


@pytest.mark.parametrize("way", AS)
@pytest.mark.parametrize(("leading", "shape"), ONE_WAY, ids=str)
def test_a_mask_that_fits_in_one_way_is_taken(leading, shape, way):
    query, key = torch.randn(*leading, 6, 4), torch.randn(*leading, 5, 4)
    allowed = torch.rand(*shape, 6, 5) < 0.7
    expected = overt.attend(query, key, key, **AS[way](allowed.expand(*leading, 6, 5)))
    torch.testing.assert_close(overt.attend(query, key, key, **AS[way](allowed)), expected)


def test_grouped_heads_count_the_heads_of_the_queries():
    query, key = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8)
    overt.attend(query, key, key, mask=torch.ones(4, 6, 6, dtype=torch.bool))
    with pytest.raises(InputError, match="to broadcast, aligned right"):
        overt.attend(query, key, key, mask=torch.ones(2, 6, 6, dtype=torch.bool))
    with pytest.raises(InputError, match=r"mask\[:, None\] for one a batch entry, mask\[None\] for one a head"):
        overt.attend(query.repeat(2, 1, 1, 1), key.repeat(2, 1, 1, 1), key.repeat(2, 1, 1, 1), mask=torch.ones(4, 6, 6).bool())


def test_arrays_are_refused_in_the_same_sentence():
    array = X.numpy()
    for name, value in (("mask", numpy.ones((2, 6, 6), dtype=bool)), ("bias", numpy.zeros((2, 6, 6), dtype="float32"))):
        tensor = sentences(InputError, **{name: torch.from_numpy(value)})
        assert sentences(InputError, query=array, key=array, value=array, **{name: value}) == tensor


def test_a_layers_own_refusal_is_the_same_sentence():
    layer, x, allowed = MultiHeadAttention(8, 2), torch.randn(2, 6, 8), torch.ones(2, 6, 6, dtype=torch.bool)
    with pytest.raises(InputError) as of_layer:
        layer(x, mask=allowed)
    assert str(of_layer.value).replace(" of MultiHeadAttention", "") == sentences(InputError, mask=allowed)


@pytest.mark.parametrize("name", ["mask", "bias"])
def test_a_model_of_torch_that_broadcasts_such_a_mask_is_recorded_as_it_ran(name):
    attn_mask = torch.rand(2, 6, 6) < 0.7
    attn_mask = attn_mask if name == "mask" else attn_mask.float()

    class Model(torch.nn.Module):
        def forward(self, x):
            heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
            return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=attn_mask)

    model, x = Model(), torch.randn(2, 6, 8)
    with overt.lens.record(model) as recording:
        model(x)
    assert not recording.missing
    assert recording.verify().holds
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    added = torch.where(attn_mask, 0.0, -torch.inf) if name == "mask" else attn_mask
    for head in range(2):
        right = (heads[:, head] @ heads[:, head].mT / 2 + added[head]).softmax(-1)  # one mask a head, as torch broadcasts
        torch.testing.assert_close(recording[0, head].weights(), right)
