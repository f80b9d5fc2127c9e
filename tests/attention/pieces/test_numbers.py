"""The numbers that pieces and layers take and refuse: the tables of docs/reference/numbers.md, of which every value is tried."""

import re
import sys
from dataclasses import fields
from math import inf, nan
from pathlib import Path

import pytest
import torch

import overt
from overt import biases, masks
from overt.attention.pieces import registered
from overt.errors import InputError, KindError, OvertError

PAGE = (Path(__file__).parents[3] / "docs/reference/numbers.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| `")]
FIELDS = {tuple(name.strip("`") for name in row[:2]): row[3:] for row in ROWS if len(row) == 5}
ARGUMENTS = {tuple(name.strip("`") for name in row[:2]): row[3] for row in ROWS if len(row) == 4}

# A value of every field that has no default, for five queries and keys of four features in two heads.
REQUIRED = {
    "Bilinear": {"weight": torch.eye(4)},
    "Additive": {"weight": torch.ones(4)},
    "Gaussian": {"bandwidth": 1.0},
    "Window": {"before": 1, "after": 1},
    "Lengths": {"keys": 3},
    "Documents": {"key_ids": torch.tensor([0, 0, 1, 1, 1])},
    "Dense": {"allowed": torch.ones(5, 5, dtype=torch.bool)},
    "Keys": {"visible": torch.ones(5, dtype=torch.bool)},
    "Ranges": {"low": torch.zeros(5, dtype=torch.int64), "high": torch.arange(1, 6)},
    "Blocks": {"indices": torch.tensor([[0], [1], [2]]), "size": 2},
    "Both": {"left": overt.Causal(), "right": overt.Causal()},
    "Either": {"left": overt.Causal(), "right": overt.Causal()},
    "Not": {"inner": overt.Causal()},
    "ALiBi": {"slopes": torch.ones(2)},
    "RelativePositionBias": {"table": torch.ones(2, 5)},
    "Forget": {"log_gates": torch.zeros(5)},
    "LineBias": {"of_queries": torch.zeros(5), "of_keys": torch.zeros(5)},
    "SumOfBiases": {"first": torch.zeros(5, 5), "second": torch.zeros(5, 5)},
    "TensorBias": {"tensor": torch.zeros(5, 5)},
}
KINDS = {"scores": "score", "masks": "mask", "biases": "bias", "normalizers": "normalizer"}
CALLS = {
    "plan": overt.plan,
    "attend": overt.attend,
    "steps": overt.steps,
    "summarize": lambda query, key, value, **pieces: overt.summarize(query, key, value=value, **pieces),
}
X = torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(0))


def values(cell):
    names = {"torch": torch, "overt": overt, "nan": nan, "inf": inf}
    return [(code, eval(code, names)) for code in re.findall("`([^`]+)`", cell)]


def option(piece):
    """The argument of `attend` that a piece is."""
    return KINDS[registered[piece].__module__.split(".")[2]]


EXAMPLES = [
    pytest.param(*key, value, id=f"{'.'.join(key)}={code}") for key, row in FIELDS.items() for code, value in values(row[0])
]
REFUSED = [
    pytest.param(*key, value, id=f"{'.'.join(key)}={code}") for key, row in FIELDS.items() for code, value in values(row[1])
]
OF_LAYERS = [
    pytest.param(*key, value, id=f"{'.'.join(key)}={code}") for key, row in ARGUMENTS.items() for code, value in values(row)
]


def test_every_field_of_every_piece_has_a_row():
    overts = {name: kind for name, kind in registered.items() if kind.__module__.startswith("overt.attention.")}
    assert {(name, field.name) for name, kind in overts.items() for field in fields(kind)} == set(FIELDS)


def test_every_row_has_examples_and_refusals():
    for row in [*FIELDS.values(), *([cell, cell] for cell in ARGUMENTS.values())]:
        assert values(row[0])
        assert values(row[1])


@pytest.mark.parametrize(("piece", "field", "value"), EXAMPLES)
def test_what_a_field_takes_is_the_same_on_every_path(piece, field, value):
    made = {option(piece): registered[piece](**REQUIRED.get(piece, {}) | {field: value})}
    with overt.use_path("blocked"):
        expected = overt.attend(X, X, X, **made)
    assert expected.isfinite().all()
    for output in (
        overt.attend(X, X, X, **made),
        overt.steps(X, X, X, **made).output,
        overt.summarize(X, X, value=X, **made).output,
    ):
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("piece", "field", "value"), REFUSED)
def test_what_a_field_refuses_is_refused_in_one_sentence_everywhere(piece, field, value):
    sentences = set()
    for call in CALLS.values():
        with pytest.raises(OvertError, match=r"Expected .*, got .*\. Fix: ") as error:
            call(X, X, X, **{option(piece): registered[piece](**REQUIRED.get(piece, {}) | {field: value})})
        sentences.add(str(error.value))
    assert len(sentences) == 1


@pytest.mark.parametrize(("layer", "argument", "value"), OF_LAYERS)
def test_what_an_argument_of_a_layer_refuses_is_refused_in_a_sentence(layer, argument, value):
    call = layer.replace("…", f"{argument}=value")
    with pytest.raises(OvertError, match=r"Expected .*\. Fix: "):
        eval(call, vars(overt.layers) | {"value": value})


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: overt.Window(31), r"overt.Window\(before, after, offset=None\), got missing a required argument: 'after'"),
        (lambda: overt.Gaussian(), r"overt.Gaussian\(bandwidth\), got missing a required argument: 'bandwidth'"),
        (lambda: overt.Dot(scael=2.0), r"overt.Dot\(scale=None, softcap=None\), got .*unexpected keyword argument 'scael'"),
        (lambda: overt.Causal(1, 2), r"overt.Causal\(offset=None\), got too many positional arguments"),
    ],
)
def test_a_piece_that_is_made_with_wrong_arguments_says_what_it_takes(make, sentence):
    with pytest.raises(KindError, match=sentence):
        make()


def test_values_of_tensors_are_not_read_where_torch_compiles_or_transforms():
    temperature = torch.tensor(2.0)
    expected = overt.attend(X, X, X, normalizer=overt.Softmax(temperature))

    def attend(temperature):
        return overt.attend(X, X, X, normalizer=overt.Softmax(temperature), score=overt.Dot(temperature / 4))

    torch.testing.assert_close(torch.func.vmap(attend)(temperature[None])[0], expected)
    torch.testing.assert_close(torch.compile(attend, backend="eager", fullgraph=True)(temperature), expected)


@pytest.mark.parametrize("limit", [sys.maxsize, 2**63, 2**70, -sys.maxsize - 1, -(2**70)])
@pytest.mark.parametrize("queries", [1, 3, 9])
def test_whole_numbers_beyond_64_bits_mean_no_limit(limit, queries):
    query = X.repeat(1, 1, 2, 1)[:, :, :queries]
    none, all_keys = torch.zeros(queries, 5, dtype=torch.bool), torch.ones(queries, 5, dtype=torch.bool)
    made = {
        overt.Causal(limit): all_keys if limit > 0 else none,
        overt.Causal(torch.tensor([max(min(limit, sys.maxsize), -sys.maxsize - 1)])): all_keys if limit > 0 else none,
        overt.Window(0, abs(limit), offset=0): (torch.arange(5) >= torch.arange(queries)[:, None]),
        overt.Window(abs(limit), abs(limit)): all_keys,
        overt.Window(0, None, offset=limit): none if limit > 0 else all_keys,
        overt.Lengths(abs(limit), abs(limit)): all_keys,
    }
    for mask, allowed in made.items():
        expected = overt.steps(query, X, X, mask=allowed)
        for path in ("native", "blocked"):
            with overt.use_path(path):
                torch.testing.assert_close(overt.attend(query, X, X, mask=mask), expected.output)
        torch.testing.assert_close(overt.steps(query, X, X, mask=mask).weights, expected.weights)
        torch.testing.assert_close(overt.summarize(query, X, value=X, mask=mask).output, expected.output)


def grown(step, count):
    mask = overt.Causal()
    for index in range(count):
        mask = step(mask, overt.Window(index % 4, index % 3, offset=0))
    return mask


STEPS = {
    "and": lambda mask, other: mask & other,
    "or": lambda mask, other: mask | other,
    "and from the left": lambda mask, other: other & mask,
    "or from the left": lambda mask, other: other | mask,
    "not": lambda mask, other: ~mask,
    "neither": lambda mask, other: ~(~mask | other),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.few_cases(3)
def test_masks_in_a_chain_of_thousands_are_the_mask_that_they_come_to(step):
    mask, rows = grown(STEPS[step], 3000), torch.arange(5)
    few = grown(STEPS[step], 24).bind(2, 5, 5).block(rows, rows)  # 12 windows come again and again
    torch.testing.assert_close(mask.bind(2, 5, 5).block(rows, rows), few)
    for path in ("native", "blocked"):
        with overt.use_path(path):
            torch.testing.assert_close(overt.attend(X, X, X, mask=mask), overt.attend(X, X, X, mask=few))
    torch.testing.assert_close(overt.summarize(X, X, value=X, mask=mask).output, overt.steps(X, X, X, mask=few).output)
    assert len(torch.utils._pytree.tree_flatten(mask)[0]) == 0  # torch's transforms go through it too


@pytest.mark.parametrize("step", [lambda mask, other: ~(mask & other), lambda mask, other: (mask & other) | other])
def test_masks_that_alternate_beyond_a_hundred_are_refused(step):
    shallow, rows = grown(step, 30), torch.arange(5)
    expected = overt.attend(X, X, X, mask=shallow.bind(2, 5, 5).block(rows, rows))
    torch.testing.assert_close(overt.attend(X, X, X, mask=shallow), expected)
    with pytest.raises(InputError, match=r"masks at most 100 deep, where & \| ~ alternate, got 101"):
        grown(step, 2000)


def test_the_order_of_masks_in_a_chain_stays():
    leaves = [masks.Dense(torch.rand(5, 5) < 0.5) for _ in range(50)]
    joined = leaves[0]
    for leaf in leaves[1:]:
        joined = joined | leaf
    pending, leaves_in_order = [joined], []
    while pending:
        mask = pending.pop()
        if isinstance(mask, masks.Either):
            pending += [mask.right, mask.left]
        else:
            leaves_in_order.append(mask)
    assert leaves_in_order == leaves
    assert isinstance(biases.as_bias(torch.zeros(5, 5)), biases.Bias)
