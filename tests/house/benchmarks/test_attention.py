"""Attention timed at length: other libraries and further kinds of work compute the same, and are bounded by their operations."""

import dataclasses
import json
from functools import partial

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.attention import additive_libraries, compare, dot_libraries, memory, normalizers, summaries
from gpu_output import GPU_LIMITS, output_on_gpu
from overt import native
from overt.attention.kernels.flat import call as flat_call
from overt.bench import cases, ceilings, comparison, timing
from overt.bench.cases import DOTS, Case, random_inputs
from overt.bench.ceilings import Ceilings
from overt.bench.comparison import Effort, Result
from overt.bench.contenders import additive, contender, dots
from overt.bench.contenders.contender import Contender
from overt.bench.gpu import device as gpu
from overt.bench.timing import RunTimes
from overt.bench.works import WORKS

TINY = Case("additive", (2,), 5, 7, 8)
TINY_SUMMARY = Case("summary", (1, 2), 9, 11, 4)
LIMITS = Ceilings(matmul=1e11, multiply_adds=4e10, divisions=4e9, copy=1e10, level="avx2")
GPU_SUMMARY = Case("summary", (1, 16), 32768, 32768, 128, dtype=torch.bfloat16)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """All kinds of work, as the benchmark has them, and tiny cases; `overt bench` gets its own back."""
    tables = [WORKS, comparison.MEASURES]
    before = [dict(table) for table in tables]
    monkeypatch.setattr(cases, "BACKWARD", set(cases.BACKWARD))
    monkeypatch.setattr(cases, "CASES", list(cases.CASES))
    monkeypatch.setattr(cases, "GPU_CASES", list(cases.GPU_CASES))
    compare.register()
    monkeypatch.setattr(cases, "CASES", [*cases.CASES, TINY, TINY_SUMMARY])
    monkeypatch.setattr(ceilings, "measured", lambda threads: LIMITS)
    monkeypatch.setattr(timing, "_PAUSE", 0)
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


def run(*args):
    return CliRunner().invoke(compare.app, ["--runs", "3", "--seconds", "1", *map(str, args)], env={"COLUMNS": "80"})


def join(monkeypatch, work, *contenders):
    monkeypatch.setitem(WORKS, work, dataclasses.replace(WORKS[work], contenders=list(contenders)))


def test_everything_is_listed():
    listed = run("--list").stdout
    for work in ("memory", "summary", "normalizers.entmax1.3.peaked.gradients", "additivederivativesquery", "scoresmanhattan"):
        assert f"\n{work}-" in listed


def test_an_unknown_case_is_refused():
    actual = run("--case", "additive-9")
    assert actual.exit_code == 2
    assert "overt: Expected the name of a case, got 'additive-9'" in actual.stderr


@pytest.mark.parametrize("work", normalizers.KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_normalizer_is_compared_and_timed(work, dtype):
    case = Case(work, (2, 4), 9, 9, 8)
    result = comparison.measure(case, Effort(dtype, 1, 1, 5.0))
    assert (result.wrong, result.unable) == ({}, {})
    assert set(result.times) == {"overt native", "overt native, a softmax", "PyTorch eager"}
    assert WORKS[work].bound(case, dtype, LIMITS).seconds > 0


@pytest.mark.parametrize(
    "work", ["derivatives", "derivativesquery", "derivativestangent", "additivederivatives", "additivederivativestangent"]
)
def test_derivatives_are_compared_and_timed(work):
    case = Case(work, (2,) if work.startswith("additive") else (1, 2), 9, 9, 8)
    result = comparison.measure(case, Effort(torch.float32, 1, 1, 5.0))
    assert (result.wrong, result.unable) == ({}, {})
    assert {"overt native", "PyTorch eager"} <= set(result.times)
    assert WORKS[work].bound(case, torch.float32, LIMITS).seconds > 0


def test_operations_are_counted_by_hand():
    def multiplies(work):
        return WORKS[work].operations(Case(work, (1, 2), 3, 5, 4)).multiplies

    pairs, terms = 2 * 3 * 5, 2 * 3 * 5 * 4
    assert multiplies("summary") == pairs * (4 + 11 + 3)
    assert multiplies("normalizers.sigmoid.gradients") == pairs * 8
    assert multiplies("derivativestangent") == pairs * (6 * 4 + 8)
    assert multiplies("scoresrectified") == terms + pairs * (4 + 8)
    assert multiplies("scoresrectifiedgradients") == terms + pairs * (4 + 8) + 3 * terms + pairs * (10 + 8)


def test_a_summary_reads_queries_and_keys_once():
    limit = WORKS["summary"].bound(TINY_SUMMARY, torch.float32, LIMITS)
    assert limit.memory == 4 * 2 * (9 + 11) * 4 / 1e10


def test_a_summary_without_native_kernels_says_why(monkeypatch):
    monkeypatch.setattr(native, "load", lambda: native.Loaded(None, "it was not compiled"))
    monkeypatch.setattr(flat_call, "MISSING", "it was not compiled")
    join(monkeypatch, "summary", summaries.overt_path("native"), summaries.forward_pass())
    actual = run("--case", TINY_SUMMARY.name)
    assert actual.exit_code == 0, actual.output
    assert "it was not compiled" in " ".join(actual.stdout.split())


def test_memory_on_a_gpu_is_measured_beside_the_time(monkeypatch):
    monkeypatch.setattr(gpu, "timed", lambda run: float(run() is not None))
    monkeypatch.setattr(memory, "peak_on_gpu", lambda run: sum(actual.nbytes for actual in run().values()))
    contenders = [additive.overt_path("blocked"), additive.eager()]
    on_cpu = {"gpu_contenders": contenders, "random_inputs": lambda case, dtype, device: random_inputs(case, dtype)}
    monkeypatch.setitem(WORKS, "memory", dataclasses.replace(WORKS["memory"], **on_cpu))
    case = Case("memory", (2,), 5, 7, 8, dtype=torch.float64)
    result = comparison.measure(case, Effort(torch.float32, 1, 2, 60.0, torch.device("cuda")))
    assert (result.wrong, result.unable) == ({}, {})
    sizes = 2 * 5 * 8 * 2 + 2 * 7 * 8 * 2 + 8  # output and query, value and key, weight: gradients as large as they
    assert result.memory == {"overt blocked": 8 * sizes, "PyTorch eager": 8 * sizes}


def test_memory_on_a_gpu_is_told_with_its_time(monkeypatch, tmp_path):
    case = next(case for case in cases.GPU_CASES if case.queries == 65536)
    result = Result(case, "every number", {"overt triton": RunTimes((0.4,))}, memory={"overt triton": 150_000_000}, kind="cuda")
    message = output_on_gpu(monkeypatch, run, result, "--out", tmp_path / "out.json")
    assert "overt triton 400 ms 400 – 400 1 687 150.0 MB" in message
    message = json.loads((tmp_path / "out.json").read_text())
    assert (message["device"], message["dtype"], message["machine"]["gpu"]) == ("cuda", "float32", "NVIDIA H200")
    assert message["ceilings"] == dataclasses.asdict(GPU_LIMITS)
    assert message["cases"][0]["contenders"]["overt triton"]["bytes_above_inputs"] == 150_000_000


def test_a_summary_whose_top_keys_are_others_disagrees(monkeypatch):
    join(monkeypatch, "summary", summaries.overt_path("blocked"), summaries.forward_pass())
    assert run("--case", TINY_SUMMARY.name).exit_code == 0
    honest = summaries.overt_path("blocked")

    def prepare(inputs):
        right, _ = honest.prepare(inputs)
        return lambda upstream: (actual := right(upstream)) | {"top_keys": actual["top_keys"].roll(1, -1)}, ""

    join(monkeypatch, "summary", Contender("liar", prepare))
    actual = run("--case", TINY_SUMMARY.name)
    assert actual.exit_code == 1
    assert "liar: top_keys differs by" in actual.stdout


def test_a_summary_map_is_compared_cell_by_cell():
    inputs = random_inputs(TINY_SUMMARY, torch.float64)
    expected = summaries.reference(TINY_SUMMARY, inputs).results
    weights = torch.softmax(inputs.query @ inputs.key.mT / 2, -1)[0]
    torch.testing.assert_close(expected["map_mean"], weights)  # fewer rows and keys than cells: each its own
    torch.testing.assert_close(expected["received"], weights.mean(-2))


def test_a_library_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    join(monkeypatch, "additive", additive_libraries.keops(), additive_libraries.keras())
    actual = run("--case", TINY.name)
    assert actual.exit_code == 0
    assert "- KeOps: not installed: pip install pykeops" in actual.stdout
    assert "- Keras: not installed: pip install keras" in actual.stdout


@pytest.mark.slow
def test_memory_is_measured_in_a_process_of_its_own():
    result = comparison.measure(Case("memory", (1,), 512, 512, 32), Effort(torch.float32, 1, 1, 1.0))
    assert result.wrong == {}
    assert 0 <= result.memory["overt native"] < 512 * 512 * 32 * 4


def test_a_summary_on_a_gpu_is_bound_by_two_passes_of_query_times_key():
    limit = WORKS["summary"].bound(GPU_SUMMARY, torch.bfloat16, GPU_LIMITS)
    assert limit.seconds == pytest.approx(2 * 2 * 16 * 32768**2 * 128 / 8e14)
    assert limit.applies == "matmul"
    assert WORKS["summary"].bound(GPU_SUMMARY, torch.float32, GPU_LIMITS) is None


def test_a_summary_on_a_gpu_is_compared_with_a_fused_forward_pass(monkeypatch):
    times = {"overt triton": RunTimes((0.036,)), "torch SDPA": RunTimes((0.016,))}
    message = output_on_gpu(monkeypatch, run, Result(GPU_SUMMARY, "1 head", times, kind="cuda"))
    assert "overt triton takes 2.25 times as long as torch SDPA, the fastest other library." in message
    assert "hardware tanh" not in message


# Compiled to machine code, 5 to 15 s each: both passes, causal, scattered and packed masks, grouped heads, half precision. In the others
# torch.compile traces the call and computes the trace.
COMPILED = {"causalgradients", "halfcausal", "packed", "scattered", "step"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("work", DOTS)
def test_other_ways_to_dot_products_compute_the_same(monkeypatch, work):
    if work not in COMPILED:
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    join(monkeypatch, work, *dot_libraries.contenders(work))
    length = 160 if DOTS[work].documents else 48
    half = torch.bfloat16 if work.startswith("half") else None
    case = Case(work, (2, 4), 1 if work in ("step", "batch") else length, length, 32, dtype=half)
    result = comparison.measure(case, Effort(torch.float32, 1, 2, 5.0))
    assert (result.wrong, result.unable) == ({}, {})
    names = {contender.name for contender in dot_libraries.contenders(work)}
    assert set(result.times) == names
    kind = DOTS[work]
    assert ("torch.compile" in names) == (not (kind.dropout or kind.biased or kind.documents))
    assert ("FlexAttention" in names) == (not (kind.backward or kind.dropout or kind.biased))
    assert ("torch SDPA, heads packed" in names) == (kind.group > 1)


@pytest.mark.slow
def test_onnx_runtime_says_which_number_types_it_takes():
    inputs = dots.random_inputs(Case("dot", (1, 2), 8, 8, 4), torch.float64)
    [onnx] = [one for one in dot_libraries.contenders("dot") if one.name == "ONNX Runtime"]
    with pytest.raises(contender.Unable, match="take float32"):
        onnx.prepare(inputs)
