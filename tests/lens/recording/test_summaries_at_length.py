"""keep="summary" through the native kernel: the statistics of the weights, at any length and under any mask that is a run of keys."""

import math
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import overt
from families import FAMILIES, written
from overt.attention.kernels.flat import summary as flat_summary
from overt.attention.masks import Keys
from overt.errors import InputError
from overt.lens import load, record
from overt.lens.capture import ranges
from overt.lens.capture.ranges import in_ranges
from overt.lens.statistics import summarized

N = 70  # queries and keys: a tile of keys and some
WORDS = [["the", ",", "cat", "saw", "the", "dog", "."][index % 7] if index % 5 else f"word {index}" for index in range(N)]
DOCUMENTS = torch.tensor([[0] * 30 + [1] * 33 + [-1] * 7, [4] * 10 + [2] * 60])


class Custom(nn.Module):
    """overt's attention over given queries, keys and values."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, query, key, value):
        return overt.attend(query, key, value, **self.options)


def inputs(queries=N, keys=N, kv_heads=4, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    sizes = ((4, queries), (kv_heads, keys), (kv_heads, keys))
    return [torch.randn(2, heads, length, 16, generator=generator, dtype=dtype) for heads, length in sizes]


def both(run, arguments, model=None, mask=None, **options):
    """Summaries of the same run by the kernel, and by blocks of full weights."""
    model, masked = model or run, {} if mask is None else {"mask": mask}
    with record(model, keep="summary", **options) as kernel:
        run(*arguments, **masked)
    with record(model, keep="summary", **options) as blocks, overt.use_path("blocked"):
        run(*arguments, **masked)
    return kernel, blocks


def same(kernel, blocks, tolerance=1e-5):
    for one, other in zip(kernel.heads(), blocks.heads(), strict=True):
        first, second = one.captured.summary, other.captured.summary
        for name in ("lse", "entropy", "received", "top_weights", "map_mean", "map_max", "sink"):
            result, expected = getattr(first, name), getattr(second, name)
            assert (result is None) == (expected is None), name
            if result is not None:
                torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance, equal_nan=True, msg=name)
    for one, other in zip(kernel.roles(), blocks.roles(), strict=True):
        assert one.role == other.role
        assert one.scores == pytest.approx(other.scores, abs=10 * tolerance, nan_ok=True)
    assert kernel.verify().difference == pytest.approx(blocks.verify().difference, abs=tolerance)
    assert kernel.verify().holds


@pytest.fixture
def no_blocks(monkeypatch):
    """Blocks of full weights fail: what passes came from the kernel."""

    def refuse(*arguments):
        raise AssertionError("full weights were made")

    monkeypatch.setattr(summarized, "_by_blocks", refuse)


MASKS = {
    "none": {},
    "causal": {"mask": overt.Causal()},
    "window": {"mask": overt.Window(9, 3)},
    "right padding": {"mask": overt.Lengths(torch.tensor([50, 70]))},
    "left padding": {"mask": overt.Causal() & Keys(torch.arange(N) >= torch.tensor([[20], [0]]))},
    "documents": {"mask": overt.Documents(DOCUMENTS)},
    "causal documents": {"mask": overt.Causal() & overt.Documents(DOCUMENTS)},
    "a bool tensor": {"mask": torch.ones(N, N).tril().triu(-20).bool()},
    "queries that see nothing": {"mask": overt.Lengths(60, queries=40)},
    "alibi": {"mask": overt.Causal(), "bias": overt.ALiBi(torch.rand(4))},
    "relative positions": {"bias": overt.RelativePositionBias(torch.randn(4, 9))},
    "a small bias tensor": {"bias": torch.randn(4, N, N)},
    "softcap": {"score": overt.Dot(softcap=2.0)},
    "scale and sinks": {"score": overt.Dot(scale=0.7), "normalizer": overt.Softmax(sink=torch.randn(4))},
    "temperature": {"normalizer": overt.Softmax(temperature=3.0), "mask": overt.Causal()},
    "sigmoid": {"normalizer": overt.normalizers.Sigmoid(), "mask": overt.Causal()},
    "sum": {"normalizer": overt.normalizers.Sum(), "score": overt.Gaussian(3.0)},
    "a sum of scores of both signs": {"normalizer": overt.normalizers.Sum(), "bias": torch.full((N, 1), 3.0)},
    "sparsemax": {"normalizer": overt.Sparsemax(), "mask": overt.Lengths(torch.tensor([50, 70]))},
    "entmax by head": {"normalizer": overt.Entmax(torch.tensor([1.2, 1.5, 1.7, 2.0])[:, None, None]), "mask": overt.Causal()},
    "additive": {"score": overt.Additive(torch.randn(16)), "mask": overt.Causal()},
    "cosine": {"score": overt.Cosine(scale=5.0)},
    "bilinear": {"score": overt.Bilinear(torch.randn(16, 16) / 16)},
}


@pytest.mark.each_value
@pytest.mark.parametrize("words", [None, WORDS, [WORDS, WORDS[::-1]]], ids=["no words", "words", "words of each"])
@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS)
def test_the_kernel_finds_what_blocks_of_weights_find(options, words):
    same(*both(Custom(**options), inputs(), key_tokens=words))


@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS)
@pytest.mark.usefixtures("no_blocks")
def test_no_weights_are_made_for_what_the_kernel_knows(options):
    with record(model := Custom(**options), keep="summary", key_tokens=WORDS) as recording:
        model(*inputs())
    assert len(recording) == 1


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_heads_that_share_keys_are_summarised(kv_heads):
    same(*both(Custom(mask=overt.Causal()), inputs(kv_heads=kv_heads), key_tokens=WORDS))


@pytest.mark.parametrize("words", [None, WORDS])
def test_queries_that_continue_a_cache_are_summarised(words):
    same(*both(Custom(mask=overt.Causal()), inputs(queries=5), key_tokens=words))


@pytest.mark.parametrize("heads", [[2], [3, 0]])
@pytest.mark.parametrize("name", ["left padding", "causal documents", "alibi", "window"])
def test_some_heads_are_those_of_all(name, heads):
    model = Custom(**MASKS[name])
    with record(model, keep="summary", key_tokens=WORDS, map_size=35) as whole:
        model(*inputs())
    with record(model, keep="summary", key_tokens=WORDS, map_size=35, heads=heads) as some:
        model(*inputs())
    for head in heads:
        torch.testing.assert_close(some[0, head].entropy(), whole[0, head].entropy())
        torch.testing.assert_close(some[0, head].map(N // 2), whole[0, head].map(N // 2))
    scores = {role.head: role.scores for role in whole.roles()}
    assert all(role.scores == pytest.approx(scores[role.head], abs=1e-5) for role in some.roles())


def test_a_bool_mask_that_layers_share_is_read_once(monkeypatch):
    class Twice(nn.Module):
        def forward(self, query, key, value):
            return [overt.attend(query, key, value, mask=mask), overt.attend(query, key, value, mask=mask)]

    mask, reads = torch.ones(N, N, dtype=torch.bool).tril(), []
    read = ranges._in_ranges
    monkeypatch.setattr(ranges, "_in_ranges", lambda tensor: reads.append(1) or read(tensor))
    with record(model := Twice(), keep="summary") as recording:
        model(*inputs())
    assert (len(recording), len(reads)) == (2, 1)


def test_a_run_in_inference_mode_is_summarised():
    with record(model := Custom(**MASKS["causal documents"]), keep="summary") as recording, torch.inference_mode():
        model(*inputs())
    with record(model, keep="summary") as other:
        model(*inputs())
    assert torch.equal(recording[0, 3].entropy(), other[0, 3].entropy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_and_double_precision_are_summarised(dtype):
    kernel, blocks = both(Custom(mask=overt.Causal()), inputs(dtype=dtype))
    for one, other in zip(kernel.heads(), blocks.heads(), strict=True):
        torch.testing.assert_close(one.entropy(), other.entropy(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(one.map(64), other.map(64), rtol=1e-5, atol=1e-5)
    assert kernel.verify().holds


@pytest.mark.parametrize(
    "mask",
    [torch.rand(N, N) > 0.3, ~overt.Window(3, 3), overt.Documents(torch.arange(N) % 3)],
    ids=["holes", "not", "scattered"],
)
def test_masks_with_holes_go_through_blocks(mask):
    same(*both(Custom(mask=mask), inputs(), key_tokens=WORDS))


def test_a_bias_that_bars_keys_goes_through_blocks():
    bias = torch.zeros(N, N).masked_fill(torch.rand(N, N) > 0.7, -torch.inf)
    same(*both(Custom(bias=bias), inputs()))


@pytest.mark.parametrize("where", ["query", "key"])
@pytest.mark.parametrize("paths", [("native", "blocked"), ("blocked",)], ids=" ".join)
def test_nan_shows_in_the_rows_that_see_it_and_in_no_others(where, paths):
    query, key, value = inputs()
    (query if where == "query" else key)[0, 1, 40, 3] = math.nan
    model = Custom(mask=overt.Causal())
    with record(model, keep="summary", key_tokens=WORDS, map_size=10) as recording, overt.use_path(*paths):
        model(query, key, value)
    lost, entropy = torch.zeros(2, N, dtype=torch.bool), recording[0, 1].entropy()
    lost[0, 40 if where == "query" else slice(40, None)] = True
    assert torch.equal(entropy.isnan(), lost)
    largest = torch.stack([recording[0, 1].top(row).weights for row in range(N)], dim=1)
    assert torch.equal(largest.isnan().any(-1), lost)
    assert torch.equal(recording[0, 1].map(10).isnan().any(-1), lost.unflatten(-1, (10, 7)).any(-1))
    assert not recording[0, 0].entropy().isnan().any()
    assert [role.role == "NaN" for role in recording.roles()] == [False, True, False, False]


def test_map_and_top_are_of_the_sizes_asked_for(tmp_path):
    with record(model := Custom(), keep="summary", top=3, map_size=(35, 7)) as recording:
        model(*inputs())
    with record(model) as whole:
        model(*inputs())
    recording.save(tmp_path / "summary.safetensors")
    for each in (recording, load(tmp_path / "summary.safetensors")):
        head = each[0, 2]
        torch.testing.assert_close(head.map((35, 7)), whole[0, 2].map((35, 7)))
        torch.testing.assert_close(head.top(4).weights, whole[0, 2].top(4, 3).weights)
        with pytest.raises(
            InputError, match=r"k of at most 3, the largest weights that the summary has, got k=4\. .*record with top=4"
        ):
            head.top(4, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map_size": 0}, "map_size to be a whole number of at least 1, got 0"),
        ({"map_size": (3, 2, 1)}, r"map_size as a number of cells or \(rows, keys\), got \(3, 2, 1\)"),
        ({"map_size": "all"}, "got 'all'"),
        ({"top": 0}, "top to be a whole number of at least 1, got 0"),
        ({"keep": "qkv", "top": 3}, r"top and map_size with keep=\"summary\" only, got keep='qkv'\. .*head\.top\(row, k\)"),
    ],
)
def test_other_sizes_are_refused(options, message):
    with pytest.raises(InputError, match=message), record(Custom(), **({"keep": "summary"} | options)):
        pass


@pytest.mark.parametrize("name", ["causal", "left padding", "causal documents", "alibi", "relative positions"])
def test_a_head_of_copies_is_summarised_by_the_kernel(name, monkeypatch):
    model = Custom(**MASKS[name])
    with record(model, heads=[1, 3]) as recording:
        model(*inputs())
    calls = []
    kernel = flat_summary.summarized
    monkeypatch.setattr(flat_summary, "summarized", lambda *arguments: calls.append(1) or kernel(*arguments))
    for head in recording.heads():
        weights = head.weights()
        torch.testing.assert_close(head.entropy(), torch.special.entr(weights).sum(-1), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(head.map(10), weights.unflatten(-1, (10, 7)).unflatten(-3, (10, 7)).mean((-1, -3)))
    assert len(calls) == 4


@pytest.mark.parametrize(
    "mask", [overt.Causal(), overt.Window(4, 0), Keys(torch.rand(2, 9) > 0.5), overt.Documents(DOCUMENTS[:, 25:34])]
)
def test_runs_say_what_the_mask_says_or_nothing(mask):
    bound, positions = mask.bind(2, 9, 9), torch.arange(9)
    result = in_ranges(bound, 9, 9, positions.device)
    runs = (
        bound.block(positions, positions).int().diff(dim=-1).clamp(min=0).sum(-1) + bound.block(positions, positions)[..., 0]
    ) <= 1
    assert (result is None) == (not runs.all())
    if result is not None:
        allowed, expected = torch.broadcast_tensors(result.block(positions, positions), bound.block(positions, positions))
        assert torch.equal(allowed, expected)


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.few_cases(4)
def test_hugging_face_models_are_summarised_as_by_blocks(family, side):
    model, arguments = family.build("sdpa" if "sdpa" in family.paths else "eager"), family.inputs(side)

    def forward():
        with torch.no_grad():
            model(**arguments)

    same(*both(forward, (), model))


def test_packed_documents_of_a_hugging_face_model_are_runs(no_blocks):
    family = next(family for family in FAMILIES if family.name == "Llama")
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    with record(model := family.build("sdpa"), keep="summary") as recording, torch.no_grad():
        model(**{**family.inputs(batch=1), "position_ids": positions, "use_cache": False})
    result = recording[1, 2].map(9)[0]
    assert not result[4:, :4].any()
    assert recording[1, 2].top(4).keys[0].tolist()[:2] == [4, -1]
    assert recording.verify().holds


@pytest.mark.parametrize("name", ["GPT2", "Llama", "T5"])
@pytest.mark.few_cases(1)
def test_what_is_written_is_summarised_step_by_step(name):
    family = next(family for family in FAMILIES if family.name == name)
    model = family.build("sdpa" if "sdpa" in family.paths else "eager")
    kernel, blocks = both(lambda: written(model, family), (), model)
    assert len(kernel.passes) >= 4
    for one, other in zip(kernel.passes, blocks.passes, strict=True):
        same(one, other)


def test_a_layer_of_overts_with_packed_documents_is_summarised():
    layer = overt.layers.MultiHeadAttention(32, 4)
    x = torch.randn(2, N, 32, generator=torch.Generator().manual_seed(0))
    mask = overt.Causal() & overt.Documents(DOCUMENTS.clamp(min=0))
    same(*both(layer, (x,), mask=mask, key_tokens=WORDS))


def test_words_that_do_not_fit_a_loaded_recording_are_refused(tmp_path):
    with record(model := Custom(), keep="summary", key_tokens=WORDS) as recording:
        model(*inputs())
    recording.tokens = WORDS[1:]
    recording.save(tmp_path / "other.safetensors")
    loaded = load(tmp_path / "other.safetensors")
    for look in (loaded.roles, lambda: loaded[0, 0].key_tokens):
        with pytest.raises(InputError, match=rf"got \[{N - 1}\] tokens for {N} keys"):
            look()


MEMORY = """
import resource, torch, overt

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

def recorded(length):
    model, x = Model(), torch.randn(1, 1, length, 8)
    words = [str(place % 50) if place % 3 else "," for place in range(length)]
    with torch.no_grad(), overt.lens.record(model, keep="summary", key_tokens=words) as recording:
        model(x)
    return recording.verify().holds

recorded(512)
before = peak()
assert recorded(12288)
print(peak() - before)
"""


@pytest.mark.slow
def test_memory_stays_linear_where_weights_would_take_six_hundred_megabytes():
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, env=environment, check=True)
    assert float(result.stdout) < 120
