"""The straight way of a plain call: it gives what the whole way gives, serves what `plan` says is native, and leaves the rest alone."""

import os
import sys
from typing import Any

import pytest
import torch

import overt
from overt.attention.kernels.call import Call
from overt.attention.kernels.plain import plain
from overt.attention.mechanism import compute
from overt.errors import OvertError

pytestmark = pytest.mark.skipif(overt.native.why_not() is not None, reason="there is no native core here")


def tensors(query=(2, 6, 9, 8), key=(2, 6, 9, 8), value=None, dtype=torch.float32) -> list[Any]:
    value = key if value is None else value
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in (query, key, value)]


SHAPES = [
    {},
    {"query": (2, 6, 9, 8), "key": (2, 3, 12, 8), "value": (2, 3, 12, 5)},
    {"query": (2, 6, 9, 8), "key": (12, 8)},
    {"query": (2, 6, 9, 8), "key": (1, 6, 12, 8)},
    {"query": (9, 8), "key": (7, 8)},
    {"query": (3, 1, 8), "key": (3, 17, 8)},
    {"query": (2, 0, 8), "key": (2, 4, 8)},
    {"query": (2, 4, 8), "key": (2, 0, 8)},
    {"dtype": torch.float64},
]
MASKS = [None, overt.Causal(), overt.Causal(offset=2), overt.Window(3, 1), overt.Window(2, 0, offset=-1)]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("score", [None, overt.Dot(0.7, 5.0)], ids=str)
def test_both_ways_give_the_same_bits_forward_and_backward(shapes, mask, score):
    inputs = tensors(**shapes)
    straight = plain(*inputs, score, mask)
    whole = compute(Call.checked(*inputs, score, mask))
    assert straight is not None
    assert torch.equal(straight, whole)
    upstream = torch.randn_like(whole)
    for one, other in zip(*(torch.autograd.grad(output, inputs, upstream) for output in (straight, whole)), strict=True):
        assert torch.equal(one, other)
    with torch.no_grad():
        assert torch.equal(overt.attend(*inputs, score=score, mask=mask), whole)
    assert overt.plan(*inputs, score=score, mask=mask).path == "native"


def test_upstream_gradients_of_any_layout_are_read():
    inputs = tensors()
    output = plain(*inputs)
    upstream = torch.randn(2, 6, 8, 9).mT
    (gradient,) = torch.autograd.grad(output, inputs[0], upstream, retain_graph=True)
    assert torch.equal(gradient, torch.autograd.grad(output, inputs[0], upstream.contiguous(), retain_graph=True)[0])
    negative = torch._C._VariableFunctions._neg_view(upstream.contiguous())
    torch.testing.assert_close(torch.autograd.grad(output, inputs[0], negative)[0], -gradient)


def test_second_derivatives_are_those_of_the_formula():
    inputs = tensors(query=(2, 3, 2), key=(2, 4, 2), dtype=torch.float64)
    assert torch.autograd.gradgradcheck(lambda *each: plain(*each, mask=overt.Causal()), inputs)


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda x: x.half(), {}),
        (lambda x: x.mT, {}),
        (lambda x: torch._C._VariableFunctions._neg_view(x), {}),
        (lambda x: x.to("meta"), {}),
        (lambda x: x[0, 0, 0], {}),
        (lambda x: x.numpy(), {}),
        (lambda x: None, {}),
        (lambda x: x, {"score": overt.Dot(torch.tensor(0.5))}),
        (lambda x: x, {"score": overt.Cosine()}),
        (lambda x: x, {"mask": overt.Lengths(3)}),
        (lambda x: x, {"mask": torch.ones(8, 8, dtype=torch.bool)}),
        (lambda x: x, {"mask": overt.Causal(offset=torch.tensor([1, 2]))}),
        (lambda x: x, {"normalizer": overt.Softmax(2.0)}),
        (lambda x: x, {"normalizer": overt.Softmax(sink=torch.tensor(0.0))}),
        (lambda x: x, {"normalizer": overt.Entmax(torch.tensor(1.5))}),
        (lambda x: x, {"bias": torch.zeros(8, 8)}),
        (lambda x: x, {"dropout": 0.5}),
    ],
)
def test_what_is_not_plain_goes_the_whole_way(change, options):
    x = change(torch.randn(2, 6, 8, 8))
    assert plain(x, x, x, **options) is None


def test_modes_and_other_paths_go_the_whole_way():
    x = torch.randn(2, 8, 8)

    def taken(*contexts):
        if not contexts:
            return plain(x, x, x) is not None
        with contexts[0]:
            return taken(*contexts[1:])

    assert taken()
    assert taken(overt.use_path("native"))
    assert taken(torch.inference_mode())
    assert not taken(overt.use_path("blocked"))
    assert not taken(torch.autocast("cpu", dtype=torch.bfloat16))
    assert not taken(torch.autograd.forward_ad.dual_level())
    assert not taken(torch.device("meta"))
    mapped = []
    torch.func.vmap(lambda each: mapped.append(plain(each, each, each)) or each)(x)
    assert mapped == [None]


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 8), (2, 4, 8), (2, 5, 8)),
        ((2, 3, 8), (2, 4, 7), (2, 4, 8)),
        ((2, 3, 8), (3, 4, 8), (3, 4, 8)),
        ((8,), (8,), (8,)),
    ],
)
def test_bad_shapes_are_refused_by_the_whole_way(shapes):
    inputs: list[Any] = [torch.randn(shape) for shape in shapes]
    with pytest.raises(OvertError) as straight:
        overt.attend(*inputs)
    with pytest.raises(OvertError) as whole:
        Call.checked(*inputs)
    assert str(straight.value) == str(whole.value)


@pytest.mark.parametrize("options", [{}, {"mask": "causal"}, {"mask": overt.Window(4, 0), "score": overt.Dot(0.5)}], ids=str)
def test_a_plain_call_enters_at_most_seven_files_and_returns_at_most_six_times(options):
    x = torch.randn(2, 4, 8, 8)
    package = os.path.dirname(overt.__file__)
    entered: list[str] = []  # the file of each function of the package, in the order of the calls

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(package):
            entered.append(frame.f_code.co_filename)

    overt.attend(x, x, x, **options)  # the ranges of a mask are computed once for all calls of a size
    sys.setprofile(note)
    try:
        overt.attend(x, x, x, **options)
    finally:
        sys.setprofile(None)
    moves = [name for name, before in zip(entered, [None, *entered], strict=False) if name != before]
    assert len(set(moves)) <= 7
    assert len(moves) - len(set(moves)) <= 6
