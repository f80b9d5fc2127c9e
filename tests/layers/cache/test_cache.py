"""KVCache: what is computed a chunk at a time is what is computed at once."""

import copy
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

import overt
from overt.errors import InputError, KindError
from overt.layers.kv_cache import KVCache

ROWS, HEADS, SHARED, WIDTH, VALUE_WIDTH = 2, 4, 2, 6, 5
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}

chunkings = some.lists(some.integers(0, 6), min_size=1, max_size=8)
windows = some.none() | some.integers(1, 7)


def tokens(count, rows=ROWS, dtype=torch.float64, seed=0):
    """Query, key and value heads of a sequence: fewer key heads than query heads, values of another width than keys."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(rows, HEADS, count, WIDTH), (rows, SHARED, count, WIDTH), (rows, SHARED, count, VALUE_WIDTH)]
    return [torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes]


def part(sequence, first, stop):
    return [tensor[..., first:stop, :] for tensor in sequence]


def joined(*sequences):
    return [torch.cat(tensors, dim=-2) for tensors in zip(*sequences, strict=True)]


def reach(window, offset=None):
    return overt.Causal(offset) if window is None else overt.Window(window - 1, 0, offset)


def at_once(sequence, window=None):
    """Attention over the whole sequence, without a cache."""
    return overt.attend(*sequence, mask=reach(window))


def step(cache, chunk, lengths=None):
    """One chunk through the cache."""
    query, key, value = chunk
    stored = cache.extend(key, value, lengths)
    mask = reach(cache.window, stored.offset)
    mask = mask if stored.lengths is None else mask & overt.Lengths(stored.lengths)
    return overt.attend(query, stored.key, stored.value, mask=mask)


def in_chunks(cache, sequence, sizes):
    outputs, first = [], 0
    for size in sizes:
        outputs.append(step(cache, part(sequence, first, first + size)))
        first += size
    return torch.cat(outputs, dim=-2)


def close(result, wanted, dtype=torch.float64):
    torch.testing.assert_close(result, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.fixture(params=[False, True], ids=["no_grad", "grad"])
def recording(request):
    """In place, as in generation, and out of place, as autograd needs it."""
    with torch.set_grad_enabled(request.param):
        yield request.param


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("record", [False, True])
@settings(max_examples=40)
@given(sizes=chunkings, window=windows, spare=some.integers(0, 3))
def test_cached_equals_uncached_in_any_chunks(dtype, record, sizes, window, spare):
    sequence = tokens(sum(sizes), dtype=dtype)
    with torch.set_grad_enabled(record):
        result = in_chunks(KVCache(window, spare), sequence, sizes)
    close(result, at_once(sequence, window), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("record", [False, True])
@settings(max_examples=40)
@given(sizes=some.lists(some.tuples(some.integers(0, 5), some.integers(0, 5), some.integers(0, 5)), max_size=6), window=windows)
def test_rows_of_different_lengths_equal_each_row_alone(dtype, record, sizes, window):
    rows = [tokens(sum(row), rows=1, dtype=dtype, seed=i) for i, row in enumerate(zip(*sizes, strict=True))] if sizes else []
    cache, result, observed = KVCache(window), [[] for _ in rows], [0] * len(rows)
    with torch.set_grad_enabled(record):
        for lengths in sizes:
            output = step(cache, padded(rows, observed, lengths), torch.tensor(lengths))
            for i, length in enumerate(lengths):
                result[i].append(output[i : i + 1, :, :length])
            observed = [have + more for have, more in zip(observed, lengths, strict=True)]
    assert cache.lengths.tolist() == observed
    for row, outputs in zip(rows, result, strict=True):
        close(torch.cat(outputs, dim=-2), at_once(row, window), dtype)


def padded(rows, first, lengths):
    """The next tokens of each row as one chunk; the padding behind a shorter row's own is NaN."""
    chunk = []
    for tensors in zip(*rows, strict=True):
        widths = torch.full(
            (len(rows), tensors[0].shape[1], max(lengths), tensors[0].shape[-1]), torch.nan, dtype=tensors[0].dtype
        )
        for i, (tensor, start, length) in enumerate(zip(tensors, first, lengths, strict=True)):
            widths[i, :, :length] = tensor[0, :, start : start + length]
        chunk.append(widths)
    chunk[0] = chunk[0].nan_to_num()  # queries at padding ask for nothing that is compared
    return chunk


def test_padding_reaches_nobody_whatever_it_holds(recording):
    outputs, gradients = [], []
    for filling in (0.0, torch.nan, torch.inf):
        query, key, value = (tensor.requires_grad_(recording) for tensor in tokens(4))
        valid = (torch.arange(4) < torch.tensor([4, 1])[:, None])[:, None, :, None]
        cache = KVCache()
        cache.extend(torch.where(valid, key, filling), torch.where(valid, value, filling), [4, 1])
        outputs.append(step(cache, part([query, key, value], 0, 2)))
        if recording:
            gradients.append(torch.autograd.grad(outputs[-1].sum(), [key, value]))
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0], rtol=0, atol=0)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=0, atol=0)


def test_nothing_but_zeros_is_stored_where_no_row_has_a_token(recording):
    _, key, value = tokens(4)
    cache = KVCache()
    cache.extend(key, torch.full_like(value, torch.nan), lengths=[0, 0])
    stored = cache.extend(key, value, lengths=[1, 3])
    stored = cache.extend(key[:, :, :1], value[:, :, :1])
    assert stored.lengths.tolist() == [2, 4]
    assert not stored.key[0, :, 2:].any()
    assert not stored.value[0, :, 2:].any()


def test_a_bias_from_positions_meets_rows_of_different_lengths():
    rows, slopes, cache = [tokens(6, rows=1, seed=1), tokens(3, rows=1, seed=2)], torch.rand(HEADS).double(), KVCache()
    step(cache, padded(rows, [0, 0], [4, 1]), [4, 1])
    query, key, value = padded(rows, [4, 1], [2, 2])
    stored = cache.extend(key, value)
    mask = overt.Causal(stored.offset) & overt.Lengths(stored.lengths)
    result = overt.attend(query, stored.key, stored.value, mask=mask, bias=overt.ALiBi(slopes, stored.offset))
    for i, row in enumerate(rows):
        close(result[i], overt.attend(*row, mask=overt.Causal(), bias=overt.ALiBi(slopes))[0, :, -2:])


def test_gradients_are_those_without_a_cache():
    for window in (None, 3):
        sequence = [tensor.requires_grad_() for tensor in tokens(9)]
        result = torch.autograd.grad(in_chunks(KVCache(window), sequence, [2, 1, 4, 1, 1]).square().sum(), sequence)
        wanted = torch.autograd.grad(at_once(sequence, window).square().sum(), sequence)
        for one, other in zip(result, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_gradients_of_rows_of_different_lengths_are_those_of_each_row_alone():
    rows = [[tensor.requires_grad_() for tensor in tokens(count, rows=1, seed=count)] for count in (6, 3)]
    cache = KVCache(window=3)
    first, then = step(cache, padded(rows, [0, 0], [4, 1]), [4, 1]), step(cache, padded(rows, [4, 1], [2, 2]))
    for i, (row, length) in enumerate(zip(rows, (4, 1), strict=True)):
        output = torch.cat([first[i, :, :length], then[i]], dim=-2)
        result = torch.autograd.grad(output.square().sum(), row, retain_graph=True)
        wanted = torch.autograd.grad(at_once(row, 3).square().sum(), row)
        for one, other in zip(result, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_queries_alone_may_be_trained():
    query, key, value = torch.randn(3, 1, 2, 6, 4, dtype=torch.float64)
    query.requires_grad_()
    result = torch.autograd.grad(in_chunks(KVCache(), [query, key, value], [1] * 6).sum(), query)
    torch.testing.assert_close(result, torch.autograd.grad(at_once([query, key, value]).sum(), query))


def test_a_chunk_without_gradients_loses_none_of_those_before_it():
    query, key, value = (tensor.requires_grad_() for tensor in tokens(6))
    cache = KVCache()
    cache.extend(key[:, :, :2], value[:, :, :2])
    between = key[:, :, 2:4], value[:, :, 2:4]
    with torch.no_grad():
        cache.extend(*between)
    output = step(cache, part([query, key, value], 4, 6))
    result = torch.autograd.grad(output.sum(), key)[0]
    middle = torch.zeros(6, dtype=torch.bool)
    middle[2:4] = True
    remaining = torch.where(middle[:, None], key.detach(), key), torch.where(middle[:, None], value.detach(), value)
    wanted = overt.attend(query, *remaining, mask=overt.Causal())[:, :, 4:]
    torch.testing.assert_close(result, torch.autograd.grad(wanted.sum(), key)[0])
    assert result[:, :, :2].abs().min() > 0


def test_a_prompt_read_in_inference_mode_may_be_followed_outside_it():
    sequence, cache = tokens(5), KVCache()
    with torch.inference_mode():
        first = in_chunks(cache, sequence, [2, 1])
    with torch.no_grad():
        then = step(cache, part(sequence, 3, 5))
    close(torch.cat([first, then], dim=-2), at_once(sequence))


def test_a_window_bounds_the_memory_whatever_the_length():
    cache, chunk = KVCache(window=16, spare=4), part(tokens(3, dtype=torch.float32), 0, 3)
    token = ROWS * SHARED * (WIDTH + VALUE_WIDTH) * 4  # bytes
    with torch.no_grad():
        for length in [1, 2, 3] * 340:
            cache.extend(*part(chunk, 0, length)[1:])
            assert cache.bytes <= (2 * (16 + 4) + 3) * token
    assert len(cache) == 2040


def test_a_long_prompt_under_a_window_is_forgotten_at_the_next_token():
    cache, (_, key, value) = KVCache(window=16), tokens(2000)
    with torch.no_grad():
        cache.extend(key, value)
        cache.extend(key[:, :, :1], value[:, :, :1])
    assert cache.bytes <= 2 * 17 * ROWS * SHARED * (WIDTH + VALUE_WIDTH) * 8


def test_without_a_window_storage_doubles_so_that_few_tokens_are_copied():
    cache, (_, key, value), sizes = KVCache(), tokens(1), set()
    with torch.no_grad():
        for _ in range(500):
            cache.extend(key, value)
            sizes.add(cache.bytes)
    assert len(sizes) <= 10
    assert cache.bytes <= 2 * 500 * ROWS * SHARED * (WIDTH + VALUE_WIDTH) * 8


def test_under_a_window_only_what_the_chunk_may_see_is_held(recording):
    cache, (_, key, value) = KVCache(window=4), tokens(12)
    for i in range(12):
        stored, low = cache.extend(key[:, :, i : i + 1], value[:, :, i : i + 1]), max(i - 3, 0)
        assert torch.equal(stored.key, key[:, :, low : i + 1])
        assert torch.equal(stored.value, value[:, :, low : i + 1])
        assert (stored.offset, stored.lengths, stored.first) == (i - low, None, low)


def test_what_is_held_says_where_each_row_stands():
    cache, (_, key, value) = KVCache(), tokens(3)
    stored = cache.extend(key, value, lengths=[3, 1])
    assert stored.offset == 0
    assert stored.lengths.tolist() == [3, 1]
    stored = cache.extend(key, value)
    assert stored.offset.tolist() == [3, 1]
    assert stored.lengths.tolist() == [6, 4]
    assert stored.first == 0
    stored = cache.extend(key[:, :, :2], value[:, :, :2], lengths=torch.tensor([0, 2]))
    assert stored.offset.tolist() == [6, 4]
    assert stored.lengths is None


def test_places_go_on_from_what_each_row_has_seen(recording):
    cache, (_, key, value) = KVCache(window=2), tokens(9)
    assert cache.positions(3).tolist() == [0, 1, 2]
    cache.extend(key, value)
    cache.extend(key, value)
    assert cache.positions(2).tolist() == [18, 19]
    cache.extend(key, value, lengths=[9, 1])
    assert cache.positions(2).tolist() == [[27, 28], [19, 20]]
    assert cache.lengths.tolist() == [27, 19]
    assert len(cache) == 27


@settings(max_examples=40)
@given(
    data=some.data(),
    record=some.booleans(),
    window=windows,
    lengths=some.lists(some.integers(0, 6), min_size=1, max_size=4),
    beams=some.integers(1, 5),
)
def test_reordered_rows_go_on_from_the_row_they_were_taken_from(data, record, window, lengths, beams):
    indices = data.draw(some.lists(some.integers(0, len(lengths) - 1), min_size=beams, max_size=beams))
    start, middle, then = tokens(6, rows=len(lengths)), tokens(2, rows=len(lengths), seed=1), tokens(5, rows=beams, seed=2)
    cache = KVCache(window)
    with torch.set_grad_enabled(record):
        cache.extend(*start[1:], lengths=lengths)
        cache.extend(*middle[1:])
        cache.reorder(torch.tensor(indices))
        assert cache.lengths.tolist() == [lengths[row] + 2 for row in indices]
        result = in_chunks(cache, then, [1, 3, 1])
    for beam, row in enumerate(indices):
        valid = part([tensor[row : row + 1] for tensor in start], 0, lengths[row])
        path = joined(valid, [tensor[row : row + 1] for tensor in middle], [tensor[beam : beam + 1] for tensor in then])
        close(result[beam : beam + 1], at_once(path, window)[:, :, lengths[row] + 2 :])


@pytest.mark.parametrize("record", [True, False])
def test_reordered_rows_keep_their_gradients(record):
    sequence, then = [tensor.requires_grad_() for tensor in tokens(4)], tokens(2, seed=1)
    cache = KVCache()
    cache.extend(*sequence[1:])
    with torch.set_grad_enabled(record):
        cache.reorder([1, 0])
    result = torch.autograd.grad(step(cache, then).square().sum(), sequence[1:])
    path = joined([tensor[[1, 0]] for tensor in sequence], then)
    wanted = torch.autograd.grad(at_once(path)[:, :, 4:].square().sum(), sequence[1:])
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one, other)


@settings(max_examples=40)
@given(
    record=some.booleans(),
    window=windows,
    sizes=chunkings,
    counts=some.tuples(some.integers(0, 5), some.integers(0, 5)),
    sizes_after=chunkings,
)
def test_after_a_rewind_other_tokens_go_on_as_if_taken_from_the_start(record, window, sizes, counts, sizes_after):
    start, then = tokens(sum(sizes)), tokens(sum(sizes_after), seed=1)
    counts = [min(count, sum(sizes)) for count in counts]
    cache = KVCache(window, spare=5)
    with torch.set_grad_enabled(record):
        in_chunks(cache, start, sizes)
        cache.rewind(torch.tensor(counts))
        result = in_chunks(cache, then, sizes_after)
    for row, count in enumerate(counts):
        path = joined(part([t[row : row + 1] for t in start], 0, sum(sizes) - count), [t[row : row + 1] for t in then])
        close(result[row : row + 1], at_once(path, window)[:, :, sum(sizes) - count :])


def test_a_rewind_in_the_midst_of_training_spoils_no_gradient():
    start, then = ([tensor.requires_grad_() for tensor in tokens(4, seed=seed)] for seed in (0, 1))
    cache = KVCache()
    before = step(cache, start)
    cache.rewind(2)
    after = step(cache, then)
    result = torch.autograd.grad((before.sum() + after.sum()), start)
    path = at_once(joined(part(start, 0, 2), then))[:, :, 2:]
    for one, other in zip(result, torch.autograd.grad(at_once(start).sum() + path.sum(), start), strict=True):
        torch.testing.assert_close(one, other)


def test_what_was_taken_back_reaches_nobody_even_where_it_was_nan():
    sequence = tokens(3)
    cache = KVCache()
    with torch.no_grad():
        step(cache, sequence)
        cache.extend(*(torch.full_like(tensor, torch.nan) for tensor in sequence[1:]))
        cache.rewind(torch.tensor([3, 0]))
        output = step(cache, part(sequence, 0, 1))
    close(output[:1], at_once(joined(sequence, part(sequence, 0, 1)))[:1, :, 3:])


@pytest.mark.parametrize("count", [6, torch.tensor([0, 6]), -1])
def test_beyond_its_start_a_cache_cannot_be_rewound_and_stays_as_it_was(count):
    cache, sequence = KVCache(), tokens(5)
    cache.extend(*sequence[1:])
    with pytest.raises(InputError) as error:
        cache.rewind(count)
    row, wanted = (1, 6) if isinstance(count, torch.Tensor) else (0, count)
    assert str(error.value) == (
        f"Expected a count of tokens that are still stored, got {wanted} for row {row}, which has 5. Fix: remove fewer tokens."
    )
    assert cache.lengths.tolist() == [5, 5]


def test_under_a_window_a_rewind_beyond_what_is_spare_is_refused_and_changes_nothing():
    cache, sequence = KVCache(window=4, spare=2), tokens(30)
    with torch.no_grad():
        result = [in_chunks(cache, part(sequence, 0, 20), [1] * 20)]
        with pytest.raises(
            InputError, match=r"still stored, got 15 for row 0, which has \d+\. .*KVCache\(window=4, spare=15\)"
        ):
            cache.rewind(15)
        result.append(in_chunks(cache, part(sequence, 20, 30), [4, 6]))
    close(torch.cat(result, dim=-2), at_once(sequence, 4))


@pytest.mark.parametrize("length", [18, 19, 20])
def test_a_rewind_under_a_window_is_refused_or_right(length, recording):
    cache, sequence, refused = KVCache(window=4, spare=2), tokens(length), []
    in_chunks(cache, sequence, [1] * length)
    for count in range(length + 1):
        branch = copy.deepcopy(cache)
        try:
            branch.rewind(count)
        except InputError:
            refused.append(count)
        else:
            close(step(branch, part(sequence, 0, 1)), at_once(path_after(sequence, count), 4)[:, :, -1:])
    assert refused == list(range(refused[0], length + 1))
    assert refused[0] > 2


def path_after(sequence, count):
    """The sequence without its last tokens, and then its first one again."""
    return joined(part(sequence, 0, sequence[0].shape[-2] - count), part(sequence, 0, 1))


@pytest.mark.parametrize("spare", [0, 1, 5])
def test_what_is_spare_can_always_be_taken_back(spare, recording):
    cache, (_, key, value) = KVCache(window=3, spare=spare), tokens(1)
    for _ in range(40):
        cache.extend(key, value)
        before = len(cache)
        cache.rewind(min(spare, before))
        for _ in range(min(spare, before)):
            cache.extend(key, value)
    assert len(cache) == 40


def test_a_cleared_cache_begins_anew_with_another_batch_and_dtype():
    cache = KVCache()
    step(cache, tokens(3))
    cache.clear()
    assert (len(cache), cache.bytes, cache.lengths.tolist()) == (0, 0, [])
    sequence = tokens(4, rows=3, dtype=torch.float32)
    close(in_chunks(cache, sequence, [3, 1]), at_once(sequence), torch.float32)


def test_a_copy_goes_its_own_way():
    sequence, other, cache = tokens(5), tokens(5, seed=1), KVCache()
    with torch.no_grad():
        step(cache, part(sequence, 0, 3))
        branch = copy.deepcopy(cache)
        step(branch, part(other, 3, 5))
        result = step(cache, part(sequence, 3, 5))
    close(result, at_once(sequence)[:, :, 3:])


def test_an_empty_cache_is_still_a_cache_and_says_what_it_holds():
    assert KVCache()
    assert repr(KVCache()) == "KVCache(0 rows of 0 tokens, 0 bytes)"
    cache = KVCache(window=8)
    cache.extend(*tokens(3)[1:], lengths=[3, 1])
    assert repr(cache) == "KVCache(2 rows of 1 to 3 tokens, 1056 bytes, window=8, spare=0)"


KEY, VALUE = tokens(3)[1:]


@pytest.mark.parametrize(
    ("key", "value", "lengths", "kind", "text"),
    [
        (
            KEY[0],
            VALUE[0],
            None,
            InputError,
            "key (B, Hk, n, D) and value (B, Hk, n, E) for a cache, got key (2, 3, 6), value",
        ),
        (
            KEY[:, :, :2],
            VALUE,
            None,
            InputError,
            "key (B, Hk, n, D) and value (B, Hk, n, E) for a cache, got key (2, 2, 2, 6)",
        ),
        (KEY.long(), VALUE, None, KindError, "floating-point tensors as key and value of a cache, got key of torch.int64"),
        (KEY, [1.0], None, KindError, "floating-point tensors as key and value of a cache, got value of list"),
        (
            KEY,
            VALUE.float(),
            None,
            KindError,
            "key and value of a cache to have one dtype and device, got key torch.float64 on cpu",
        ),
        (
            KEY[:1],
            VALUE[:1],
            None,
            InputError,
            "key (2, 2, n, 6), as the cache has it, got",
        ),
        (KEY[:, :1], VALUE[:, :1], None, InputError, "key (2, 2, n, "),
        (
            KEY,
            VALUE[..., :1],
            None,
            InputError,
            "value (2, 2, n, 5), as the cache has it",
        ),
        (
            KEY.float(),
            VALUE.float(),
            None,
            KindError,
            "of torch.float64 on cpu, as the cache has it",
        ),
        (
            KEY.to("meta"),
            VALUE.to("meta"),
            None,
            KindError,
            "of torch.float64 on cpu, as the cache has it",
        ),
        (KEY, VALUE, [4, 1], InputError, "lengths from 0 to 3, the number of positions, got 1 to 4"),
        (KEY, VALUE, [1], InputError, "one length for each sequence, (B,), got lengths (1,)"),
        (KEY, VALUE, [1.0, 2.0], KindError, "lengths as whole numbers, one for each sequence, got a torch.float32 tensor"),
    ],
)
def test_a_chunk_that_does_not_fit_is_refused_and_nothing_is_lost(key, value, lengths, kind, text):
    cache, sequence = KVCache(), tokens(6)
    before = step(cache, part(sequence, 0, 3))
    with pytest.raises(kind, match=re.escape(text)):
        cache.extend(key, value, lengths)
    close(torch.cat([before, step(cache, part(sequence, 3, 6))], dim=-2), at_once(sequence))


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda cache: cache.reorder([0, 2]), InputError, "rows of the cache as indices, 0 to 1, got [0, 2]"),
        (lambda cache: cache.reorder(torch.tensor([-1])), InputError, "rows of the cache as indices, 0 to 1, got [-1]"),
        (
            lambda cache: cache.reorder(torch.tensor([0.0])),
            KindError,
            "indices of a cache as whole numbers (B,), one for each row, got",
        ),
        (
            lambda cache: cache.rewind([1]),
            InputError,
            "one count for all rows, or one for each, got 1 counts for 2 rows",
        ),
        (
            lambda cache: cache.rewind(1.0),
            KindError,
            "count of a cache as whole numbers (B,), one for each row, got a torch.float32",
        ),
        (lambda cache: KVCache().reorder([0]), InputError, "rows of the cache as indices, got [0] for an empty cache"),
        (lambda cache: KVCache(window=0), InputError, "window to be a whole number of at least 1, got 0"),
        (lambda cache: KVCache(4, spare=-1), InputError, "spare to be a whole number of at least 0, got -1"),
    ],
)
def test_what_a_cache_cannot_do_is_refused_and_nothing_is_lost(call, kind, text):
    cache, sequence = KVCache(), tokens(6)
    before = step(cache, part(sequence, 0, 3))
    with pytest.raises(kind, match=re.escape(text)):
        call(cache)
    close(torch.cat([before, step(cache, part(sequence, 3, 6))], dim=-2), at_once(sequence))
