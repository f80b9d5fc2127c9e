"""Masks as the native kernels read them: a program that allows what the mask allows, and attention under it that is the oracle's."""

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies

import flat_reference
import overt
from compare import KERNELS, check
from everyday import everyday_where_interpreted
from many_masks import MASKS, ON_GPUS, K, Q
from overt.attention.kernels.flat import mask_program


def blockwise(mask):
    """What the mask itself says: (2, 3, Q, K)."""
    return mask.bind(2, Q, K).block(torch.arange(Q), torch.arange(K)).expand(2, 3, Q, K)


def by_program(mask):
    program, arrays = mask_program.lowered(mask.bind(2, Q, K), Q, K, torch.device("cpu"))
    return flat_reference.allowed(program, arrays, torch.arange(Q), K).expand(2, 3, Q, K)


@pytest.mark.parametrize("name", MASKS)
def test_the_program_allows_what_the_mask_allows(name):
    assert torch.equal(by_program(MASKS[name]), blockwise(MASKS[name]))


@pytest.mark.parametrize(
    "name",
    everyday_where_interpreted(
        MASKS if KERNELS == "native" else ON_GPUS,
        "causal",
        "window",
        "pairs",
        "pairs and causal",
        "lengths of queries",
        "not causal",
    ),
)
def test_attention_under_each_mask_gives_the_oracles_numbers(name):
    random = np.random.default_rng(0)
    arrays = [random.normal(size=shape) for shape in ((2, 3, Q, 4), (2, 3, K, 4), (2, 3, K, 3))]
    params = {"weight": torch.tensor(random.normal(size=4)), "activation": "tanh"}
    with overt.use_path(KERNELS):
        check(arrays, score="additive", params=params, mask=MASKS[name], allowed=blockwise(MASKS[name]))


@pytest.mark.parametrize("name", ["causal", "padded and causal", "lengths of queries", "window"])
def test_a_conjunction_of_ranges_is_two_numbers_a_row(name):
    program, arrays = mask_program.lowered(MASKS[name].bind(2, Q, K), Q, K, torch.device("cpu"))
    assert program == [mask_program.RANGES]
    assert [array.shape[-1] for array in arrays] == [Q, Q]


def test_a_tensor_of_pairs_is_not_copied():
    _, (array,) = mask_program.lowered(MASKS["transposed pairs"].bind(2, Q, K), Q, K, torch.device("cpu"))
    assert array.data_ptr() == MASKS["transposed pairs"].allowed.data_ptr()


def leaves(batch, queries, keys):
    """Masks of one kind, of any size."""
    number = strategies.integers(-2, keys + 2)
    side = strategies.one_of(strategies.none(), strategies.integers(-1, 5))
    entries = strategies.lists(number, min_size=batch, max_size=batch).map(torch.tensor)
    length = strategies.integers(0, keys + 2)
    lengths = strategies.lists(length, min_size=batch, max_size=batch).map(torch.tensor)
    sides = strategies.tuples(side, side).filter(lambda sides: None in sides or sum(sides) >= 0)
    offset = strategies.one_of(strategies.none(), number, entries)
    seeds = strategies.integers(0, 99).map(lambda seed: torch.Generator().manual_seed(seed))
    return strategies.one_of(
        strategies.builds(overt.Causal, offset=offset),
        strategies.tuples(sides, offset).map(lambda drawn: overt.Window(*drawn[0], offset=drawn[1])),
        strategies.builds(overt.Lengths, strategies.one_of(length, lengths), strategies.one_of(strategies.none(), lengths)),
        seeds.map(lambda g: overt.masks.Keys(torch.rand(batch, keys, generator=g) < 0.5)),
        seeds.map(lambda g: overt.masks.Dense(torch.rand(batch, queries, keys, generator=g) < 0.5)),
        seeds.map(
            lambda g: overt.Documents(
                torch.randint(-1, 3, (keys,), generator=g), query_ids=torch.randint(-1, 3, (batch, queries), generator=g)
            )
        ),
    )


def combined(masks):
    pair = strategies.tuples(masks, masks)
    return strategies.one_of(
        pair.map(lambda both: both[0] & both[1]), pair.map(lambda both: both[0] | both[1]), masks.map(lambda m: ~m)
    )


@hypothesis.settings(max_examples=60 if KERNELS == "native" else 12)  # the interpreter takes a second or two for each
@hypothesis.given(strategies.data())
def test_any_combination_at_any_size_is_attended_under_as_the_oracle_does(data):
    batch, queries, keys = (data.draw(strategies.integers(1, most)) for most in (3, 40, 70))
    mask = data.draw(strategies.recursive(leaves(batch, queries, keys), combined, max_leaves=6))
    hypothesis.assume(mask_program.refusal(mask) is None)
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(batch, *shape)) for shape in ((queries, 3), (keys, 3), (keys, 2))]
    allowed = mask.bind(1, queries, keys).block(torch.arange(queries), torch.arange(keys)).expand(batch, queries, keys)
    with overt.use_path(KERNELS):
        check(arrays, score="additive", params={"weight": torch.ones(3), "activation": "sigmoid"}, mask=mask, allowed=allowed)


def refused(mask):
    x = torch.ones(2, 3, 9, 4)
    return overt.plan(x, x, x, score=overt.Additive(torch.ones(4)), mask=mask).refused.get(KERNELS)


def test_a_mask_of_ones_own_goes_to_the_blocks_with_the_reason():
    class Even:
        def block(self, rows, keys):
            return (rows[:, None] + keys) % 2 == 0

    assert refused(Even()) == "native kernels do not know the mask Even"
    assert refused(overt.Causal() & Even()) == "native kernels do not know the mask Even"


def test_a_mask_that_combines_too_many_goes_to_the_blocks_with_the_reason():
    deep = overt.Causal()
    for index in range(mask_program.MAX_PENDING - 1):
        deep = overt.Lengths(3) & deep if index % 2 else overt.Lengths(3) | deep
    assert refused(deep) is None
    more = overt.Lengths(3) & deep if mask_program.MAX_PENDING % 2 == 0 else overt.Lengths(3) | deep
    assert refused(more) == "the mask combines more than 7 others at once"


def test_a_long_chain_of_masks_needs_no_depth():
    chain = overt.masks.Dense(torch.ones(9, 9, dtype=torch.bool))
    for _ in range(20):
        chain = (chain & overt.masks.Dense(torch.ones(9, 9, dtype=torch.bool))) | overt.Causal()
    assert refused(chain) is None
