"""MultiHeadAttention with a KVCache: a token or a chunk at a time gives what the whole sequence gives."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import overt
from overt.attention.masks import Keys
from overt.errors import InputError, KindError
from overt.layers import KVCache, LearnedPositions, MultiHeadAttention, RelativePositions

WIDTH, HEADS = 16, 4
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def layer(positions=None, dtype=torch.float64, causal=True, **options):
    torch.manual_seed(0)
    made = MultiHeadAttention(WIDTH, HEADS, positions=positions, causal=causal, **options)
    if isinstance(made.positions, RelativePositions):
        torch.nn.init.normal_(made.positions.table)
    return made.to(dtype)


def normal(*shape, seed=1, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def close(result, wanted):
    tolerance = TOLERANCE[wanted.dtype]
    torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance)


@st.composite
def histories(draw):
    """How many tokens of its own each row has in each chunk, (chunks, B)."""
    rows = draw(st.integers(1, 3))
    return draw(st.lists(st.lists(st.integers(0, 4), min_size=rows, max_size=rows), min_size=1, max_size=5))


@settings(max_examples=60)
@given(
    history=histories(),
    positions=st.sampled_from([None, "rotary", "alibi", "sinusoidal", "relative"]),
    kv_heads=st.sampled_from([1, 2, 4]),
    window=st.sampled_from([None, 0, 2]),
    extra=st.booleans(),
    dtype=st.sampled_from(list(TOLERANCE)),
    recording=st.booleans(),
)
def test_cached_equals_uncached(history, positions, kv_heads, window, extra, dtype, recording):
    attention = layer(positions, dtype, kv_heads=kv_heads, window=window, extra_key=extra, zero_key=extra)
    rows = [sum(counts) for counts in zip(*history, strict=True)]
    x = normal(len(rows), max(rows), WIDTH, dtype=dtype)
    cache, observed = KVCache(None if window is None else window + 1), [0] * len(rows)
    for counts in history:
        chunk = torch.full((len(rows), max(counts), WIDTH), torch.nan, dtype=dtype)
        for row, count in enumerate(counts):
            chunk[row, :count] = x[row, observed[row] : observed[row] + count]
        ragged = len(set(counts)) > 1
        with torch.set_grad_enabled(recording):
            output = attention(chunk, cache=cache, lengths=torch.tensor(counts) if ragged else None)
        for row, count in enumerate(counts):
            stop = observed[row] + count
            close(output[row, :count], attention(x[row, :stop])[observed[row] :])
            assert (output[row, count:] == 0).all()
            observed[row] = stop
    assert cache.lengths.tolist() == rows


def test_learned_positions_go_on_where_the_cache_stands():
    attention, x, cache = layer(LearnedPositions(8, WIDTH)), normal(2, 8, WIDTH), KVCache()
    close(torch.cat([attention(x[:, i : i + 1], cache=cache) for i in range(8)], dim=1), attention(x))
    with pytest.raises(InputError, match="positions from 0 to 7, .*, got positions 8 to 8"):
        attention(x[:, :1], cache=cache)


def test_one_sequence_without_a_batch_has_a_cache_too():
    attention, x, cache = layer("rotary"), normal(6, WIDTH), KVCache()
    close(torch.cat([attention(x[i : i + 2], cache=cache) for i in range(0, 6, 2)]), attention(x))


def test_weights_and_steps_take_the_step():
    attention, x, cache = layer("alibi", extra_key=True), normal(2, 6, WIDTH), KVCache()
    attention(x[:, :4], cache=cache)
    close(attention.weights(x[:, 4:5], cache=cache), attention.weights(x[:, :5])[:, :, 4:])
    close(attention.steps(x[:, 5:], cache=cache).output, attention.steps(x).output[:, :, 5:])
    assert len(cache) == 6


def ragged(attention):
    """A cache of rows that hold 4 and 2 tokens, and what comes next."""
    x, cache = normal(2, 6, WIDTH), KVCache()
    attention(x[:, :4], cache=cache, lengths=torch.tensor([4, 2]))
    return x, torch.stack([x[0, 4:6], x[1, 2:4]]), cache


def test_a_mask_of_the_call_is_aligned_with_each_row():
    attention = layer(causal=False)
    x, chunk, cache = ragged(attention)
    output = attention(chunk, cache=cache, mask=overt.Causal() & ~overt.Window(1, 1))
    for row, observed in enumerate((4, 2)):
        alone = attention(x[row, : observed + 2], mask=overt.Causal() & ~overt.Window(1, 1))
        close(output[row], alone[observed:])


@pytest.mark.parametrize("positions", [None, "relative"])
def test_a_bias_of_the_call_is_aligned_with_each_row(positions):
    attention, bias = layer(positions), overt.ALiBi(torch.tensor([1.0, 0.5, 0.25, 0.125]).double())
    x, chunk, cache = ragged(attention)
    output = attention(chunk, cache=cache, bias=bias)
    for row, observed in enumerate((4, 2)):
        close(output[row], attention(x[row, : observed + 2], bias=bias)[observed:])


def test_a_mask_by_key_is_for_all_that_the_cache_holds():
    attention, x, cache = layer(), normal(2, 6, WIDTH), KVCache()
    visible = torch.tensor([[True, False, True, True, True, True], [True, True, True, True, False, True]])
    attention(x[:, :4], cache=cache, mask=Keys(visible[:, :4]))
    close(attention(x[:, 4:], cache=cache, mask=Keys(visible)), attention(x, mask=Keys(visible))[:, 4:])


def test_beams_go_on_from_the_rows_they_come_from():
    attention, x, cache = layer("rotary"), normal(2, 6, WIDTH), KVCache()
    attention(x[:, :5], cache=cache)
    cache.reorder(torch.tensor([1, 1, 0]))
    order = torch.tensor([1, 1, 0])
    close(attention(x[order, 5:], cache=cache), attention(x)[order, 5:])


def test_what_is_taken_back_can_be_asked_anew():
    attention, x, cache = layer("sinusoidal"), normal(2, 6, WIDTH), KVCache()
    attention(normal(2, 6, WIDTH, seed=2), cache=cache)
    cache.rewind(6)
    attention(x[:, :4], cache=cache)
    close(attention(x[:, 4:], cache=cache), attention(x)[:, 4:])


def test_gradients_through_the_cache_are_those_of_the_whole_sequence():
    attention, x = layer("relative", kv_heads=2), normal(2, 6, WIDTH).requires_grad_()
    cache, leaves = KVCache(), [x, *attention.parameters()]
    chunks = torch.cat([attention(x[:, i : i + 2], cache=cache) for i in range(0, 6, 2)], dim=1)
    result, wanted = (torch.autograd.grad(output.square().sum(), leaves) for output in (chunks, attention(x)))
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_memory_is_bounded_under_a_window():
    attention, cache, most = layer("rotary", window=3), KVCache(window=4), 0
    with torch.no_grad():
        for index in range(40):
            attention(normal(1, 1, WIDTH, seed=index), cache=cache)
            most = max(most, cache.bytes)
    assert most <= 4 * 5 * 2 * WIDTH * 8


@pytest.mark.parametrize(
    ("options", "window", "fix"),
    [
        ({}, 8, r"for window=None\. Fix: use KVCache\(\)\."),
        ({"window": 4}, 4, r"for window=4\. Fix: use KVCache\(window=5\), which counts the query's own token"),
        ({"window": (4, 0)}, 4, r"for window=\(4, 0\)\. Fix: use KVCache\(window=5\)"),
        ({"window": (None, 0)}, 4, r"for window=\(None, 0\)\. Fix: use KVCache\(\)\."),
    ],
)
def test_a_cache_that_forgets_what_the_layer_sees_is_refused(options, window, fix):
    with pytest.raises(
        InputError,
        match=rf"a cache that keeps all tokens that the layer's window reaches, got KVCache\(window={window}\) " + fix,
    ):
        layer(**options)(normal(2, 1, WIDTH), cache=KVCache(window=window))


def test_a_cache_is_for_tokens_that_ask_themselves():
    attention, x = layer(), normal(2, 3, WIDTH)
    with pytest.raises(
        InputError,
        match=r"no key beside cache=, which continues the sequence of the queries themselves, got a key of another sequence",
    ):
        attention(x, normal(2, 4, WIDTH), cache=KVCache())
    with pytest.raises(InputError, match="they have their values and lengths, and need no cache, got cache"):
        layer(causal=False)(x, layer(causal=False).prepare(x), cache=KVCache())
    close(attention(x, x, x, cache=KVCache()), attention(x))


def test_a_call_that_is_refused_leaves_the_cache_as_it_was():
    attention, x, cache = layer(), normal(2, 3, WIDTH), KVCache()
    for options in ({"mask": torch.ones(2, 3, 3, dtype=torch.bool)}, {"lengths": torch.tensor([4, 1])}):
        with pytest.raises(InputError):
            attention(x, cache=cache, **options)
    assert len(cache) == 0


@pytest.mark.parametrize("ask", [MultiHeadAttention.forward, MultiHeadAttention.weights], ids=["forward", "weights"])
@pytest.mark.parametrize("recording", [True, False])
def test_after_a_call_that_attend_refuses_the_same_tokens_can_be_asked_again(ask, recording):
    attention, x, cache = layer("rotary", window=3), normal(2, 9, WIDTH), KVCache(window=4)
    with torch.set_grad_enabled(recording):
        attention(x[:, :6], cache=cache)
        with pytest.raises(InputError, match=r"mask to broadcast, aligned right"):
            ask(attention, x[:, 6:], cache=cache, mask=torch.ones(7, 5, dtype=torch.bool))
        close(attention(x[:, 6:], cache=cache), attention(x)[:, 6:])


def test_another_kind_of_cache_is_refused():
    with pytest.raises(KindError, match=r"cache as an overt.layers.KVCache, one for each layer, got dict\. Fix: make one"):
        layer()(normal(2, 3, WIDTH), cache={})


def test_a_cache_with_tokens_of_another_layer_is_refused():
    first, second, x, cache = layer(), layer(), normal(2, 4, WIDTH), KVCache()
    first(x[:, :3], cache=cache)
    with pytest.raises(
        InputError,
        match=r"Expected a cache of this layer, got one with 3 tokens of another\. Fix: make one KVCache\(\) for each layer\.",
    ):
        second(x[:, 3:], cache=cache)
    close(first(x[:, 3:], cache=cache), first(x)[:, 3:])


@pytest.mark.parametrize("empty", [KVCache.clear, lambda cache: cache.rewind(3)], ids=["cleared", "rewound"])
def test_without_tokens_a_cache_may_be_another_layers(empty):
    first, second, x, cache = layer(), layer(), normal(2, 4, WIDTH), KVCache()
    first(x[:, :3], cache=cache)
    empty(cache)
    close(second(x, cache=cache), second(x))


@pytest.mark.parametrize("change", [lambda cache: cache.reorder([1, 0]), lambda cache: None], ids=["reordered", "copied"])
def test_a_reordered_or_copied_cache_is_still_its_layers(change):
    first, second, x, cache = layer(), layer(), normal(2, 4, WIDTH), KVCache()
    with torch.no_grad():
        first(x[:, :3], cache=cache)
        change(cache)
        branch = copy.deepcopy(cache)
        with pytest.raises(InputError, match="Expected a cache of this layer"):
            second(x[:, 3:], cache=branch)
        first(x[:, 3:], cache=branch)
    assert (len(cache), len(branch)) == (3, 4)


def test_a_layer_that_is_copied_with_its_cache_goes_on_with_it():
    first, x, cache = layer(), normal(2, 4, WIDTH), KVCache()
    with torch.no_grad():
        first(x[:, :3], cache=cache)
        copied, branch = copy.deepcopy((first, cache))
        close(copied(x[:, 3:], cache=branch), first(x)[:, 3:])


def test_a_pickled_cache_goes_on_with_the_layer_that_continues_it():
    first, x, cache = layer(), normal(2, 4, WIDTH), KVCache()
    with torch.no_grad():
        first(x[:, :3], cache=cache)
        copied, branch = pickle.loads(pickle.dumps((first, cache)))
        close(copied(x[:, 3:], cache=branch), first(x)[:, 3:])


@pytest.mark.parametrize("mask", [None, Keys(torch.ones(6, dtype=torch.bool))], ids=["no mask", "a mask of keys"])
@pytest.mark.parametrize("window", [None, 2])
def test_without_a_causal_mask_several_tokens_that_follow_others_are_refused(window, mask):
    attention, x, cache = layer(causal=False, window=window), normal(2, 6, WIDTH), KVCache()
    attention(x[:, :4], cache=cache)
    message = (
        r"Expected a causal layer for several tokens that follow those of a cache, .* got 2 tokens after 4 in a layer that is not "
        r"causal\. Fix: build the layer with causal=True, or pass mask=overt.Causal\(\)\."
    )
    with pytest.raises(InputError, match=message):
        attention(x[:, 4:], cache=cache, mask=mask)
    assert len(cache) == 4


def test_a_prefix_is_read_both_ways_and_then_a_token_at_a_time():
    attention, x, cache = layer(causal=False), normal(2, 6, WIDTH), KVCache()
    close(attention(x[:, :5], cache=cache), attention(x[:, :5]))
    close(attention(x[:, 5:], cache=cache), attention(x)[:, 5:])


def test_a_window_without_later_tokens_is_causal_enough_for_chunks():
    attention, x, cache = layer(causal=False, window=(3, 0)), normal(2, 6, WIDTH), KVCache()
    close(torch.cat([attention(chunk, cache=cache) for chunk in x.split(2, dim=1)], dim=1), attention(x))
