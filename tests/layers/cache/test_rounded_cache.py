"""KVCache(store=…): older tokens in fewer bits, attention exactly with what is stored."""

import copy

import pytest
import torch

import overt
from compare import OUTPUT, close
from overt import native
from overt.attention.kernels import cpu
from overt.errors import InputError, OvertError
from overt.layers import KVCache, MultiHeadAttention
from overt.layers.parts.rounded import FIRST, NEWEST, RoundedTokens

STORES = ["int8", "bfloat16"]


def tokens(count, rows=1, heads=2, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, heads, count, 16, generator=generator).to(dtype) for _ in range(2)]


def rounded(tensor, store):
    """What a store makes of numbers, by its definition."""
    if store == "bfloat16":
        return tensor.bfloat16().to(tensor.dtype)
    scale = tensor.abs().amax(-1, keepdim=True) / 127
    return (tensor / scale).round() * scale


def filled(store, count, chunk, **options):
    cache, (key, value) = KVCache(store=store), tokens(count, **options)
    for start in range(0, count, chunk):
        slots = cache.extend(key[:, :, start : start + chunk], value[:, :, start : start + chunk])
    return cache, slots, (key, value)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("chunk", [1, 7, 150, 300])
def test_old_tokens_are_rounded_once_and_the_first_and_newest_stay_whole(store, chunk):
    _, slots, pair = filled(store, 300, chunk)
    for stored, tensor in zip((slots.key, slots.value), pair, strict=True):
        whole = (stored == tensor).all(-1)[0, 0]
        newest = max(NEWEST, min(chunk, 300))
        assert bool(whole[:FIRST].all())
        assert bool(whole[300 - newest :].all())
        old = ~whole
        assert int(old.sum()) >= 300 - FIRST - newest - NEWEST - chunk
        torch.testing.assert_close(stored[:, :, old], rounded(tensor, store)[:, :, old], rtol=1e-6, atol=1e-7)
        assert bool((stored - tensor).abs().amax() <= tensor.abs().amax() / 100)


@pytest.mark.parametrize("store", STORES)
def test_rows_of_different_lengths_reorder_and_rewind_as_without_a_store(store):
    (key, value), lengths = tokens(200, rows=2), torch.tensor([200, 170])
    cache, plain = KVCache(store=store), KVCache()
    with torch.no_grad():
        for each in (cache, plain):
            each.extend(key, value, lengths)
            for step in range(100):
                each.extend(*tokens(1, rows=2, seed=step))
            each.reorder([1, 0, 1])
            each.rewind(torch.tensor([60, 250, 0]))
            slots = each.extend(*tokens(3, rows=3, seed=999))
            if each is cache:
                result = slots
    assert torch.equal(cache.lengths, plain.lengths)
    assert torch.equal(result.offset, slots.offset)
    for row, length in enumerate(cache.lengths.tolist()):
        for one, other in ((result.key, slots.key), (result.value, slots.value)):
            difference = (one[row, :, :length] - other[row, :, :length]).abs()
            assert bool((difference <= other.abs().amax() / 100).all())
            assert not difference[:, -3:].any()


@pytest.mark.parametrize("store", STORES)
def test_a_layer_attends_exactly_to_what_is_stored(store):
    torch.manual_seed(0)
    layer = MultiHeadAttention(32, heads=2, causal=True).eval().requires_grad_(False)
    x, cache, whole = torch.randn(1, 260, 32), KVCache(store=store), KVCache()
    outputs = [layer(part, cache=cache) for part in (x[:, :250], *x[:, 250:].split(1, 1))]
    exact = [layer(part, cache=whole) for part in (x[:, :250], *x[:, 250:].split(1, 1))]
    assert torch.equal(outputs[0], exact[0])  # the newest chunk is whole
    difference = (torch.cat(outputs, 1) - torch.cat(exact, 1)).abs().max()
    assert 0 < difference < 0.02
    assert cache.bytes < whole.bytes


def test_int8_takes_a_third_of_float32():
    with torch.no_grad():
        cache, _, (key, value) = filled("int8", 4096, 1024)
        for step in range(200):
            cache.extend(*tokens(1, seed=step))
    used = cache._rounded
    rounded_bytes = sum(part[:, :, : used.length - FIRST].nbytes for parts in used.encoded for part in parts)
    assert rounded_bytes < (key.nbytes + value.nbytes) * 0.33


@pytest.mark.parametrize("store", STORES)
def test_the_error_is_that_of_rounding_what_is_still_whole(store):
    cache, _, (key, value) = filled(store, 50, 50)
    query = torch.randn(1, 4, 9, 16)
    output = overt.attend(query, key, value)
    changed = overt.attend(query, rounded(key, store), rounded(value, store)) - output
    wanted = (changed.square().sum((0, 2, 3)) / output.square().sum((0, 2, 3))).sqrt()
    torch.testing.assert_close(cache.error(query), wanted, rtol=1e-2, atol=1e-6)
    assert cache.error().shape == (2,)
    assert bool((cache.error() > 0).all())
    plain = KVCache()
    plain.extend(key, value)
    assert not plain.error().any()


def test_zeros_stay_zeros_and_what_is_not_finite_becomes_nan():
    key, value = tokens(200)
    key[:, :, 10], key[0, 0, 20, 3], key[0, 1, 30, 5] = 0, torch.inf, torch.nan
    cache = KVCache(store="int8")
    cache.extend(key, value)
    slots = cache.extend(*tokens(100, seed=1))
    assert not slots.key[:, :, 10].any()
    assert bool(slots.key[0, 0, 20].isnan().all())
    assert bool(slots.key[0, 1, 30].isnan().all())
    assert bool(slots.key[0, 0, 21].isfinite().all())


def test_a_copy_and_a_failed_chunk_leave_the_cache_as_it_was():
    cache, slots, _ = filled("int8", 300, 100)
    copied = copy.deepcopy(cache)
    with pytest.raises(InputError):
        cache.extend(*tokens(1, heads=3))
    one, other = (each.extend(*tokens(1, seed=5)).key for each in (cache, copied))
    assert torch.equal(one, other)
    assert torch.equal(one[:, :, :100], slots.key[:, :, :100])
    assert repr(cache).endswith("store='int8')")
    cache.clear()
    assert cache.bytes == 0


def test_bad_input_is_refused_in_a_sentence():
    with pytest.raises(InputError, match='store of a cache to be None, "int8" or "bfloat16", got \'int4\''):
        KVCache(store="int4")
    with pytest.raises(InputError, match="a window or a store, not both, got window=8, store='int8'"):
        KVCache(window=8, store="int8")
    with pytest.raises(
        InputError, match="no gradients through a cache that rounds.*store='int8'. Fix: call the layer under torch.no_grad"
    ):
        KVCache(store="int8").extend(*(tensor.requires_grad_() for tensor in tokens(3)))
    with pytest.raises(InputError, match="a cache with tokens that are still whole"):
        KVCache(store="int8").error()


@pytest.mark.parametrize("store", [None, *STORES])
@pytest.mark.parametrize(
    ("query", "key", "scale", "expected"),
    [
        (
            torch.ones(1, 3, 1, 16),
            torch.ones(1, 2, 1, 16),
            None,
            r"one token for a step.*H a multiple of Hk, got query \(1, 3, 1, 16\)",
        ),
        (torch.ones(1, 1, 1, 16), torch.ones(1, 2, 1, 16), None, r"H a multiple of Hk, got query \(1, 1, 1, 16\)"),
        (torch.ones(1, 2, 1, 9), torch.ones(1, 2, 1, 16), None, r"of one token for a step.*got query \(1, 2, 1, 9\)"),
        (torch.ones(2, 2, 1, 16), torch.ones(1, 2, 1, 16), None, r"of one token for a step.*got query \(2, 2, 1, 16\)"),
        (
            torch.ones(1, 2, 2, 16),
            torch.ones(1, 2, 2, 16),
            None,
            r"Fix: pass one token of each row, or use extend\(\) and attend",
        ),
        (torch.ones(2, 1, 16), torch.ones(1, 2, 1, 16), None, r"of one token for a step.*got query \(2, 1, 16\)"),
        (torch.ones(1, 2, 1, 16).half(), torch.ones(1, 2, 1, 16), None, "query, key and value to have one dtype"),
        ("token", torch.ones(1, 2, 1, 16), None, "got query of type str"),
        (
            torch.ones(1, 2, 1, 16),
            torch.ones(1, 2, 1, 16),
            "0.5",
            "scale of a step to be a number, or None, got '0.5' of type str",
        ),
    ],
)
@pytest.mark.each_value
def test_a_step_that_does_not_fit_is_refused_and_changes_nothing(store, query, key, scale, expected):
    cache, _, _ = filled(store, 200, 100)
    with pytest.raises(OvertError, match=expected):
        cache.step(query, key, key, scale)
    assert len(cache) == 200


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("count", "width"), [(140, 16), (331, 64), (1100, 24), (700, 128)])
@pytest.mark.each_value
def test_a_step_reads_codes_as_they_are_stored(dtype, count, width, monkeypatch):
    generator = torch.Generator().manual_seed(count)
    caches = [KVCache(store="int8"), KVCache(store="int8")]
    with torch.no_grad():
        pair = [torch.randn(2, 3, count, width, generator=generator).to(dtype) for _ in range(2)]
        for cache in caches:
            cache.extend(*pair)
            cache.extend(*(tensor[:, :, :70] for tensor in pair))
        for _ in range(3):
            query = torch.randn(2, 12, 1, width, generator=generator).to(dtype)
            key, value = (torch.randn(2, 3, 1, width, generator=generator).to(dtype) for _ in range(2))
            slots = caches[0].extend(key, value)
            with monkeypatch.context() as patch:
                patch.setattr(RoundedTokens, "decoded", None)  # nothing is decoded
                output = caches[1].step(query, key, value)
            expected = overt.attend(query.double(), slots.key.double(), slots.value.double())
            assert output.dtype == dtype
            close(output.double(), expected, max(OUTPUT[dtype], 1e-6), "output")


def test_a_step_with_rows_of_different_lengths_or_a_scale_is_that_of_the_slots():
    (key, value), lengths = tokens(300, rows=2), torch.tensor([300, 250])
    caches = [KVCache(store="int8"), KVCache(store="int8")]
    with torch.no_grad():
        for cache in caches:
            cache.extend(key, value, lengths)
            cache.extend(*tokens(100, rows=2))
        query, (key, value) = torch.randn(2, 4, 1, 16), tokens(1, rows=2, seed=9)
        slots = caches[0].extend(key, value)
        expected = overt.attend(query, slots.key, slots.value, score=overt.Dot(0.7), mask=overt.Lengths(slots.lengths))
        torch.testing.assert_close(caches[1].step(query, key, value, 0.7), expected)


@pytest.mark.parametrize("options", [{}, {"kv_heads": 1}, {"positions": "rotary"}, {"positions": "alibi"}, {"extra_key": True}])
def test_a_layer_steps_as_its_slots_do(options, monkeypatch):
    torch.manual_seed(0)
    layer = MultiHeadAttention(32, heads=2, causal=True, **options).eval().requires_grad_(False)
    x, cache, decoded = torch.randn(2, 400, 32), KVCache(store="int8"), KVCache(store="int8")
    parts = (x[:, :300], *x[:, 300:].split(1, 1))
    outputs = torch.cat([layer(part, cache=cache) for part in parts], 1)
    monkeypatch.setattr(RoundedTokens, "reads_codes", lambda self, query: False)
    expected = torch.cat([layer(part, cache=decoded) for part in parts], 1)
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-6)


def test_codes_that_are_nan_reach_the_output_and_gradients_take_the_slots():
    key, value = tokens(300)
    key[0, 1, 50, 3] = torch.nan
    cache = KVCache(store="int8")
    with torch.no_grad():
        cache.extend(key, value)
        cache.extend(*tokens(100))
        output = cache.step(torch.randn(1, 2, 1, 16), *tokens(1))
    assert bool(output[0, 0].isfinite().all())
    assert bool(output[0, 1].isnan().all())
    query = torch.randn(1, 2, 1, 16, requires_grad=True)
    (gradient,) = torch.autograd.grad(cache.step(query, *tokens(1))[0, 0].sum(), query)
    assert bool(gradient[0, 0].any())


def test_codes_in_the_order_of_a_unit_are_those_of_rows_after_chunks_of_every_size(monkeypatch):
    def slots_and_step(weaves):
        monkeypatch.setattr(cpu, "weaves_codes", weaves)
        generator, cache = torch.Generator().manual_seed(7), KVCache(store="int8")
        with torch.no_grad():
            for count, removed in ((100, 0), (67, 3), (150, 120), (1, 0), (129, 0), (64, 50), (90, 0)):
                slots = cache.extend(*(torch.randn(2, 2, count, width, generator=generator).bfloat16() for width in (64, 128)))
                cache.rewind(removed)
            cache = copy.deepcopy(cache)
            cache.reorder([1, 1, 0])
            query, key = torch.randn(3, 4, 1, 64, generator=generator).bfloat16(), torch.ones(3, 2, 1, 64).bfloat16()
            return cache._rounded.woven, slots, cache.step(query, key, torch.ones(3, 2, 1, 128).bfloat16())

    best, rows = slots_and_step(cpu.weaves_codes), slots_and_step(lambda *_: False)
    assert best[0] == (native.unit() == "avx512_bf16")
    assert torch.equal(best[1].key, rows[1].key)
    assert torch.equal(best[1].value, rows[1].value)
    torch.testing.assert_close(best[2], rows[2], rtol=1e-2, atol=4e-3)
