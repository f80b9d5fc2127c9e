"""summarize: the statistics of the weights are those of the weights."""

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
import torch

import overt
from compare import KERNELS
from overt.attention.kernels import blocked
from overt.attention.kernels.flat import summary as flat_summary
from overt.errors import InputError


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocked, "BLOCK", 1)


def tensors(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((2, 4, 21, 8), (2, 2, 33, 8), (2, 2, 33, 5))]


CALLS = {
    "dot": {},
    "causal": {"mask": overt.Causal()},
    "some queries see nothing": {"mask": overt.Lengths(torch.tensor([0, 20]), queries=torch.tensor([21, 7]))},
    "additive": {"score": overt.Additive(torch.linspace(-1, 1, 8, dtype=torch.float64))},
    "alibi": {"bias": overt.ALiBi(torch.ones(4)), "mask": overt.Window(5, 0)},
    "sink": {"normalizer": overt.Softmax(temperature=2.0, sink=torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64))},
    "sparse": {"normalizer": overt.Entmax()},
    "capped": {"score": overt.Dot(scale=torch.rand(4, 1, 1), softcap=2.0), "mask": overt.Causal()},
    "cosine": {"score": overt.Cosine(torch.tensor(3.0))},
    "bilinear": {"score": overt.Bilinear(torch.linspace(-1, 1, 256, dtype=torch.float64).reshape(4, 8, 8))},
    "temperature a head": {"normalizer": overt.Softmax(temperature=torch.rand(4, 1, 1) + 0.5), "bias": torch.rand(21, 1)},
    "hungry sink": {
        "mask": overt.Lengths(torch.tensor([0, 20])),
        "normalizer": overt.Softmax(sink=torch.tensor(2.0, dtype=torch.float64)),
    },
}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.each_value
def test_every_statistic_is_that_of_the_weights(name, native):
    query, key, value = tensors()
    options = CALLS[name]
    with overt.use_path("blocked"):
        steps = overt.steps(query, key, value, **options)
    weights, alive = steps.weights, (steps.masked > -torch.inf).any(-1)
    with overt.use_path("blocked", *([KERNELS] if native else [])):
        result = overt.summarize(query, key, value=value, top=40, map_size=(4, 7), **options)
    total = weights.sum(-1, keepdim=True).clamp(min=1e-300)
    torch.testing.assert_close(result.entropy, -torch.xlogy(weights / total, weights / total).sum(-1))
    torch.testing.assert_close(result.received, weights.sum(-2) / alive.sum(-1, keepdim=True).clamp(min=1))
    torch.testing.assert_close(result.output, steps.output)
    ordered = weights.sort(-1, descending=True).values
    torch.testing.assert_close(result.top_weights, ordered)
    assert result.top_keys.dtype == torch.int32
    barred = steps.masked == -torch.inf
    assert torch.equal((result.top_keys == -1).sum(-1), barred.sum(-1))
    gathered = weights.gather(-1, result.top_keys.long().clamp(min=0))
    torch.testing.assert_close(gathered.where(result.top_keys >= 0, 0), result.top_weights)


def test_the_native_kernel_and_the_blocks_say_the_same_where_nothing_may_be_attended_to():
    query, key, value = tensors()
    summaries = []
    for paths in ([KERNELS, "blocked"], ["blocked"]):
        with overt.use_path(*paths):
            summaries.append(overt.summarize(query, key, value=value, map_size=5, **CALLS["hungry sink"]))
    for field in fields(overt.Summary):
        result, wanted = (getattr(each, field.name) for each in summaries)
        if field.name != "top_keys":  # keys of equal weight may stand in either order
            torch.testing.assert_close(result, wanted, msg=field.name)


@pytest.mark.parametrize(
    "name", ["dot", "causal", "additive", "alibi", "sink", "capped", "cosine", "bilinear", "temperature a head"]
)
def test_dot_products_and_additive_scores_under_a_softmax_take_the_native_kernel_unless_it_is_forbidden(name, monkeypatch):
    query, key, _ = tensors()
    calls, kernel = [], flat_summary.summarized
    monkeypatch.setattr(flat_summary, "summarized", lambda *inputs: calls.append(inputs) or kernel(*inputs))
    overt.summarize(query, key, **CALLS[name])
    assert len(calls) == 1
    with overt.use_path("torch", "blocked"):
        overt.summarize(query, key, **CALLS[name])
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["dot", "causal", "additive", "sink"])
def test_weights_come_back_from_scores_and_log_sum_exp(name):
    query, key, value = tensors()
    steps = overt.steps(query, key, value, **CALLS[name])
    result = overt.summarize(query, key, **CALLS[name])
    temperature = 2.0 if name == "sink" else 1.0
    torch.testing.assert_close(torch.exp(steps.masked / temperature - result.lse[..., None]), steps.weights)
    if name == "sink":
        torch.testing.assert_close(result.sink, 1 - steps.weights.sum(-1))
    else:
        assert result.sink is None


@pytest.mark.parametrize("size", [1, 4, (3, 7), (21, 33), 1000])
def test_the_map_pools_near_equal_cells(size):
    query, key, value = tensors()
    weights = overt.steps(query, key, value, mask=overt.Causal()).weights
    result = overt.summarize(query, key, mask=overt.Causal(), map_size=size)
    rows, keys = result.row_edges.tolist(), result.key_edges.tolist()
    assert (rows[0], rows[-1], keys[0], keys[-1]) == (0, 21, 0, 33)
    for edges in (rows, keys):
        widths = np.diff(edges)
        assert widths.max() - widths.min() <= 1
        assert widths.min() >= 1
    for r, (top, bottom) in enumerate(pairwise(rows)):
        for c, (left, right) in enumerate(pairwise(keys)):
            cell = weights[..., top:bottom, left:right]
            torch.testing.assert_close(result.map_mean[..., r, c], cell.mean((-1, -2)))
            torch.testing.assert_close(result.map_max[..., r, c], cell.amax((-1, -2)))


def test_log_sum_exp_is_given_for_the_softmax_only_and_entropy_not_for_negative_weights():
    query, key, _ = tensors()
    assert overt.summarize(query, key, normalizer=overt.Sparsemax()).lse is None
    assert overt.summarize(query, key, normalizer=overt.normalizers.Sum()).entropy.isnan().any()


def test_masked_values_that_hold_nan_do_not_reach_the_output():
    query, key, value = tensors()
    wanted = overt.summarize(query, key, value=value, mask=overt.Lengths(30)).output
    value[..., 30:, :] = torch.nan
    torch.testing.assert_close(overt.summarize(query, key, value=value, mask=overt.Lengths(30)).output, wanted)


def test_half_precision_is_summarised_in_float32():
    query, key, _ = tensors(torch.bfloat16)
    result = overt.summarize(query, key)
    assert result.entropy.dtype == torch.float32
    wanted = overt.summarize(query.double(), key.double())
    torch.testing.assert_close(result.lse.double(), wanted.lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"top": 0}, {"top": 2.5}, {"map_size": 0}, {"map_size": (3, 4, 5)}])
def test_sizes_that_are_none_are_refused(options):
    query, key, _ = tensors()
    with pytest.raises(InputError, match=f"{next(iter(options))} to be a"):
        overt.summarize(query, key, **options)
