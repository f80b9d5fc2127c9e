"""Positions added to inputs or to scores are those of their papers, and what a layer is given is made into them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import overt
from overt.errors import InputError, KindError
from overt.layers.positions.base import Positions
from overt.layers.positions.named import ALiBiPositions, LearnedPositions, RelativePositions, Sinusoidal, named
from overt.layers.positions.rotary import Rotary

WIDTH = 6
ADDED = [Sinusoidal(WIDTH), LearnedPositions(50, WIDTH)]


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def name_of(made):
    return type(made).__name__


def biased(bias, queries, keys, heads=2):
    """What the bias adds to zero scores: (H, Q, K)."""
    query, key = torch.zeros(1, heads, queries, 2), torch.zeros(1, heads, keys, 2)
    return overt.steps(query, key, key, bias=bias).masked[0]


@pytest.mark.parametrize("width", [1, 6, 7])
@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_sinusoids_are_the_papers_also_where_the_width_is_odd(width, base):
    def feature(index, f):
        angle = index / base ** ((f - f % 2) / width)
        return math.cos(angle) if f % 2 else math.sin(angle)

    wanted = torch.tensor([[feature(index, f) for f in range(width)] for index in range(60)], dtype=torch.float64)
    result = Sinusoidal(width, base)(torch.zeros(60, width, dtype=torch.float64))
    torch.testing.assert_close(result, wanted, rtol=0, atol=1e-13)


def test_sinusoids_at_place_a_million_are_right_in_float32():
    result = Sinusoidal(4)(torch.zeros(1, 4), torch.tensor([1_000_000]))
    wanted = [math.sin(1e6), math.cos(1e6), math.sin(1e4), math.cos(1e4)]
    torch.testing.assert_close(result[0], torch.tensor(wanted), rtol=0, atol=1e-7)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_dot_product_of_two_sinusoids_depends_on_their_distance_alone(i, j, shift):
    vectors = Sinusoidal(8).vectors(torch.tensor([i, j, i + shift, j + shift]))
    torch.testing.assert_close(vectors[2] @ vectors[3], vectors[0] @ vectors[1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("positions", ADDED, ids=name_of)
def test_called_as_a_module_the_places_are_counted_from_zero(positions):
    x = normal(2, 5, WIDTH)
    torch.testing.assert_close(positions(x), x + positions.vectors(torch.arange(5)).to(x.dtype))
    assert torch.equal(positions(x), positions.inputs(x, torch.arange(5)))


@pytest.mark.parametrize("positions", ADDED, ids=name_of)
@pytest.mark.parametrize("shape", [(3, 5, WIDTH), (3, 2, 5, WIDTH)])
def test_each_row_of_a_batch_may_stand_elsewhere(positions, shape):
    x, indices = normal(*shape), torch.tensor([[0], [7], [40]]) + torch.arange(5)
    wanted = torch.stack([positions.inputs(row, row_positions) for row, row_positions in zip(x, indices, strict=True)])
    assert torch.equal(positions.inputs(x, indices), wanted)


@pytest.mark.parametrize("positions", ADDED, ids=name_of)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_sum_has_the_dtype_of_what_is_added_to(positions, dtype):
    assert positions(normal(5, WIDTH, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("positions", ADDED, ids=name_of)
def test_added_positions_compile_whole(positions):
    torch.compiler.reset()
    x, indices = normal(2, 5, WIDTH), torch.tensor([[0], [7]]) + torch.arange(5)
    compiled = torch.compile(positions, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, indices), positions(x, indices))


def test_sinusoids_keep_nothing_and_are_not_rounded_with_the_model():
    positions = Sinusoidal(WIDTH)
    assert positions.state_dict() == {}
    x = normal(2, 100, WIDTH)
    assert torch.equal(Sinusoidal(WIDTH).bfloat16()(x), positions(x))


def test_learned_positions_are_the_embedding_of_their_places():
    learned, x, indices = LearnedPositions(9, WIDTH), normal(2, 3, WIDTH), torch.tensor([8, 0, 8])
    embedding = nn.Embedding.from_pretrained(learned.table.detach().clone(), freeze=False)
    result, wanted = learned.inputs(x, indices), x + embedding(indices)
    torch.testing.assert_close(result, wanted)
    result.square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(learned.table.grad, embedding.weight.grad)


@pytest.mark.parametrize(
    ("call", "got"),
    [
        (lambda learned: learned(normal(5, WIDTH)), "got positions 0 to 4"),
        (lambda learned: learned.inputs(normal(2, WIDTH), torch.tensor([3, 4])), "got positions 3 to 4"),
        (lambda learned: learned.inputs(normal(2, WIDTH), torch.tensor([-1, 0])), "got positions -1 to 0"),
    ],
)
def test_a_place_beyond_the_table_is_refused(call, got):
    with pytest.raises(
        InputError, match=f"positions from 0 to 3, for which LearnedPositions has vectors, {got}. .* larger maximum"
    ):
        call(LearnedPositions(4, WIDTH))


def test_relative_positions_add_their_table_by_distance():
    relative = RelativePositions(2, buckets=5, kind="clip")
    nn.init.normal_(relative.table)
    result = biased(relative.bias(None), 2, 4)
    table = relative.table.detach()
    wanted = [[[table[h, max(min(j - (i + 2), 2), -2) + 2] for j in range(4)] for i in range(2)] for h in range(2)]
    torch.testing.assert_close(result, torch.tensor(wanted))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_positions_have_t5s_buckets(bidirectional):
    from transformers.models.t5.modeling_t5 import T5Attention

    relative = RelativePositions(2, buckets=8, bidirectional=bidirectional, max_distance=20)
    nn.init.normal_(relative.table)
    distances = torch.arange(30) - torch.arange(30)[:, None]
    buckets = T5Attention._relative_position_bucket(distances, bidirectional, 8, 20)
    torch.testing.assert_close(relative.bias(0).block(torch.arange(30), torch.arange(30)), relative.table[:, buckets])


def test_a_new_table_adds_nothing_and_learns():
    relative, x = RelativePositions(2), normal(1, 2, 6, 4)
    output = overt.attend(x, x, x, bias=relative.bias(None))
    torch.testing.assert_close(output, overt.attend(x, x, x))
    output.square().sum().backward()
    assert relative.table.grad.abs().sum() > 0


def test_alibi_positions_are_the_papers_slopes_by_distance():
    result = biased(ALiBiPositions(4).bias(3), 2, 5, heads=4)
    wanted = [[[-abs(j - (i + 3)) / 4**h for j in range(5)] for i in range(2)] for h in range(1, 5)]
    torch.testing.assert_close(result, torch.tensor(wanted))


def test_slopes_move_and_are_saved_with_the_layer():
    alibi = ALiBiPositions(2)
    assert set(alibi.state_dict()) == {"slopes"}
    assert alibi.double().bias(None).slopes.dtype == torch.float64


@pytest.mark.parametrize("positions", [ALiBiPositions(2), RelativePositions(2)], ids=name_of)
def test_positions_in_the_scores_leave_inputs_and_heads_alone(positions):
    x, indices = normal(2, 5, 4), torch.arange(5)
    assert positions.inputs(x, indices) is x
    assert positions.heads(x, indices) is x


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("sinusoidal", "Sinusoidal(32, base=10000.0)"),
        ("rotary", "Rotary(8, base=10000.0)"),
        ("relative", "RelativePositions(heads=4, buckets=32, kind='log', bidirectional=True)"),
        ("alibi", "ALiBiPositions(heads=4)"),
    ],
)
def test_a_name_makes_positions_for_the_layers_widths(name, made):
    assert repr(named(name, heads=4, head_width=8, width=32)) == made


@pytest.mark.parametrize("passed", [None, Positions(), Rotary(8)], ids=name_of)
def test_positions_that_are_made_already_are_kept(passed):
    assert named(passed, 4, 8, 32) is passed


def test_a_bias_becomes_positions_that_hold_its_tensors():
    positions = named(overt.RelativePositionBias(nn.Parameter(torch.arange(5.0))), 2, 8, 16)
    assert [tuple(table.shape) for table in positions.parameters()] == [(5,)]
    wanted = biased(overt.RelativePositionBias(torch.arange(5.0), offset=2), 2, 4)
    torch.testing.assert_close(biased(positions.bias(2), 2, 4), wanted)


def test_a_bias_with_an_offset_of_its_own_keeps_it():
    slopes = torch.ones(2)
    positions = named(overt.ALiBi(slopes, offset=1), 2, 8, 16)
    torch.testing.assert_close(biased(positions.bias(2), 2, 4), biased(overt.ALiBi(slopes, offset=1), 2, 4))


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: Sinusoidal(0), InputError, "width of Sinusoidal of at least 1, got 0"),
        (lambda: Sinusoidal(8, base=0), InputError, "base to be a number above 0, got 0"),
        (lambda: Sinusoidal(8)(normal(3, 4)), InputError, r"x of Sinusoidal as .* with width = 8, got .* with width=4"),
        (
            lambda: Sinusoidal(8)(normal(3, 8), torch.arange(2)),
            InputError,
            r"got positions \(2,\) for \(3, 8\). .* for each token",
        ),
        (
            lambda: Sinusoidal(8).inputs(normal(3, 8), torch.rand(3)),
            KindError,
            "positions as whole numbers, one for each token",
        ),
        (lambda: LearnedPositions(0, 8), InputError, "maximum of LearnedPositions of at least 1, got 0"),
        (lambda: RelativePositions(2, 6, "clip"), InputError, "an odd number of clipped buckets"),
        (lambda: RelativePositions(2, 32, "t5"), InputError, 'buckets to be "clip" or "log", got \'t5\''),
        (lambda: ALiBiPositions(0), InputError, "heads of ALiBiPositions of at least 1, got 0"),
        (
            lambda: named("learned", 4, 8, 32),
            InputError,
            r"positions that need no argument beside their name, got .learned., which need a maximum\. .*LearnedPositions\(maximum, width\)",
        ),
        (lambda: named("rope", 4, 8, 32), InputError, "alibi, got 'rope'. Fix: choose one, or pass a module"),
        (lambda: named(torch.ones(3), 4, 8, 32), KindError, "positions as a name, .*, got Tensor. .* passed as bias="),
    ],
)
def test_what_is_no_position_is_refused(make, kind, text):
    with pytest.raises(kind, match=text):
        make()
