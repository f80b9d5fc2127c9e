"""A linear recurrence: its weights by the walk back, by one triangular system, in chunks, and its output by steps, are one thing."""

from dataclasses import replace

import pytest
import torch

from overt.errors import InputError, KindError
from overt.lens.linear import Recurrence
from overt.lens.linear.chunks import Chunks
from overt.lens.linear.rounding import rounding_bound

LENGTHS = [(1, 1), (5, 9), (70, 131), (129, 129), (1, 65), (3, 64)]


def random(queries: int, keys: int, *, decays=None, erases=False, reads="after", more=(), heads=(4, 2), seed=0) -> Recurrence:
    """A recurrence in float64 with a decay of 0 and one of 1 in it; two heads share their keys."""
    torch.manual_seed(seed)
    batch, features, width = 2, 5, 3
    many, few = heads

    def numbers(*shape):
        return torch.randn(batch, *shape, dtype=torch.float64)

    key = torch.nn.functional.normalize(numbers(few, keys, features), dim=-1)
    log_decay = None
    if decays is not None:
        log_decay = -numbers(many, keys, decays).abs()
        log_decay[:, 0, keys // 2] = -torch.inf
        log_decay[:, 1, keys // 3] = 0.0
    optional = {
        "diagonal": numbers(many, queries),
        "start": numbers(many, features, width),
        "normalizer": 1 + numbers(many, queries).abs(),
    }
    return Recurrence(
        numbers(few, queries, features),
        key,
        numbers(many, keys, width),
        log_decay,
        erase=-torch.rand(batch, few, keys, 1, dtype=torch.float64) * 2 * key if erases else None,
        probe=key if erases else None,
        reads=reads,
        **{name: optional[name] for name in more},
    )


CASES = [
    {"decays": decays, "erases": erases, "reads": reads, "more": more}
    for decays in (None, 1, 5)
    for erases in (False, True)
    for reads, more in (("after", ()), ("before", ("diagonal",)), ("after", ("start", "normalizer")))
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.few_cases(5)
def test_the_walk_back_the_triangular_system_and_the_chunks_give_the_same_weights(case):
    for queries, keys in LENGTHS:
        recurrence = random(queries, keys, **case)
        walked, chunks = recurrence.weights(), Chunks(recurrence)
        assert torch.allclose(recurrence.matrix(), walked, rtol=0, atol=1e-12)
        assert torch.allclose(torch.cat([block for _, block in chunks.blocks()], dim=2), walked, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.few_cases(5)
def test_steps_and_chunks_give_the_same_output_and_it_is_the_weights_times_the_values(case):
    for queries, keys in LENGTHS:
        recurrence = random(queries, keys, **case)
        stepped = recurrence.output()
        assert torch.allclose(Chunks(recurrence).output(), stepped, rtol=0, atol=1e-12)
        if recurrence.start is None:
            assert torch.allclose(recurrence.weights() @ recurrence.value, stepped, rtol=0, atol=1e-12)


def test_chosen_rows_and_heads_are_those_of_the_whole():
    recurrence = random(40, 70, decays=1, erases=True)
    whole = recurrence.weights()
    assert torch.equal(recurrence.weights([39, 0]), whole[:, :, [39, 0]])
    assert torch.allclose(Chunks(recurrence).weights([0, 7, 39]), whole[:, :, [0, 7, 39]], rtol=0, atol=1e-12)
    assert torch.equal(recurrence.of_heads([3, 1]).weights(), whole[:, [3, 1]])


def test_a_row_takes_nothing_from_what_it_cannot_read():
    after, before = (random(6, 9, decays=5, erases=True, reads=reads) for reads in ("after", "before"))
    for recurrence, diagonal in ((after, 3), (before, 2)):  # row 0 is position 3
        later = torch.ones(6, 9).triu(diagonal + 1).bool()
        for weights in (recurrence.weights(), recurrence.matrix(), Chunks(recurrence).weights(range(6))):
            assert bool((weights[..., later] == 0).all())
            assert bool((weights[..., ~later] != 0).any())


def test_a_decay_of_zero_forgets_all_before_it_and_one_of_one_nothing():
    recurrence = random(9, 9, decays=1)
    weights = recurrence.weights()
    assert bool((weights[:, 0, 4:, :4] == 0).all())  # the decay of head 0 at position 4 is 0
    everlasting = Recurrence(recurrence.query, recurrence.key, recurrence.value[:, :2], torch.zeros(2, 2, 9, 1).double())
    products = (everlasting.query @ everlasting.key.mT).tril()
    assert torch.allclose(everlasting.weights(), products, rtol=0, atol=1e-14)


@pytest.mark.parametrize("decays", [1, 5])
def test_a_decay_that_underflows_is_one_of_zero(decays):
    recurrence = random(70, 131, decays=decays)
    underflows = torch.where(recurrence.log_decay == -torch.inf, -1e30, recurrence.log_decay)
    tiny = replace(recurrence, log_decay=underflows)
    expected = recurrence.weights()
    assert torch.equal(tiny.weights(), expected)
    assert torch.allclose(tiny.matrix(), expected, rtol=0, atol=1e-12)
    assert torch.allclose(torch.cat([block for _, block in Chunks(tiny).blocks()], dim=2), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("decays", [1, 5])
@pytest.mark.parametrize("log", [-1e30, -1e308])
def test_the_rounding_bound_is_that_of_a_decay_of_zero(decays, log):
    recurrence = random(70, 131, decays=decays)
    rows, output = torch.arange(0, 70, 7), recurrence.output()[:, :, ::7]
    tiny = replace(recurrence, log_decay=torch.where(recurrence.log_decay == -torch.inf, log, recurrence.log_decay))
    bound, expected = (rounding_bound(each, rows, output, torch.float32) for each in (tiny, recurrence))
    assert bool((expected.isfinite() & (expected > 0)).all())
    assert torch.allclose(bound, expected, rtol=1e-12, atol=0)


def test_sums_are_in_single_precision_unless_a_tensor_is_double():
    half = torch.randn(1, 1, 4, 2, dtype=torch.bfloat16)
    assert Recurrence(half, half, half).weights().dtype == torch.float32
    assert Recurrence(half, half, half.double()).output().dtype == torch.float64


def test_a_recurrence_of_no_positions_or_no_rows_is_empty():
    empty = Recurrence(*(torch.zeros(2, 3, 0, 4),) * 3)
    assert empty.weights().shape == empty.matrix().shape == (2, 3, 0, 0)
    assert empty.output().shape == Chunks(empty).output().shape == (2, 3, 0, 4)
    assert random(3, 5).weights([]).shape == (2, 4, 0, 5)


def test_bad_input_is_refused_in_a_sentence():
    x = torch.ones(1, 4, 5, 2)
    with pytest.raises(
        InputError, match=r"Expected key of the shape \(1, 4, 5, 2\), or with fewer heads, a divisor of 4, got key \(1, 3, 5"
    ):
        Recurrence(x, x[:, :3], x)
    with pytest.raises(InputError, match="Expected erase and probe, both or neither"):
        Recurrence(x, x, x, erase=x)
    with pytest.raises(InputError, match="at most as many queries as keys"):
        Recurrence(x, x[:, :, :3], x[:, :, :3])
    with pytest.raises(InputError, match="tensors with batch and heads"):
        Recurrence(x[0], x, x)
    with pytest.raises(InputError, match='reads="after" or reads="before"'):
        Recurrence(x, x, x, reads="now")
    with pytest.raises(KindError, match="floating-point tensors in a recurrence, got key of torch.int64"):
        Recurrence(x, x.long(), x)
