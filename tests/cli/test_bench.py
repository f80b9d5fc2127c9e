"""`overt bench`: nothing is timed that disagrees, contenders alternate, and bounds are those of the counted operations."""

import dataclasses
import itertools
import json
import statistics
from importlib import metadata
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from gpu_output import GPU_LIMITS, output_on_gpu
from overt import native
from overt.attention.kernels.flat import call as flat_call
from overt.bench import bounds, cases, ceilings, comparison, reference, timing
from overt.bench.cases import DOTS, Case, document_lengths, random_inputs
from overt.bench.ceilings import Ceilings
from overt.bench.comparison import Effort, Result
from overt.bench.contenders import additive, contender
from overt.bench.contenders.contender import Contender
from overt.bench.gpu import device as gpu
from overt.bench.timing import RunTimes
from overt.bench.works import WORKS
from overt.cli.main import app

TINY = Case("additive", (2,), 5, 7, 8, quick=True)
TINY_GRADIENTS = Case("gradients", (2,), 5, 7, 8)
LIMITS = Ceilings(matmul=1e11, multiply_adds=4e10, divisions=4e9, copy=1e10, level="avx2")
GPU_FORWARD = Case("additive", (8,), 2048, 2048, 128, dtype=torch.float32)  # 2³² terms
GPU_GRADIENTS = dataclasses.replace(GPU_FORWARD, work="gradients")


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Tiny cases, contenders that compile nothing, and a machine whose rates are known."""
    monkeypatch.setattr(cases, "CASES", [TINY, TINY_GRADIENTS])
    join(monkeypatch)
    monkeypatch.setattr(ceilings, "measured", lambda threads: LIMITS)
    monkeypatch.setattr(timing, "_PAUSE", 0)


def run(*args):
    return CliRunner().invoke(app, ["bench", "--runs", "3", "--seconds", "1", *map(str, args)], env={"COLUMNS": "80"})


def altered(name, change, *, ours=False):
    """A contender that computes what the textbook says, then changes its results."""

    def prepare(inputs):
        right = contender.differentiated(additive.textbook, inputs.tensors)
        return lambda upstream: change(right(upstream)), ""

    return Contender(name, prepare, ours)


def scaled(part, factor):
    return lambda results: {name: x * factor if name == part else x for name, x in results.items()}


def join(monkeypatch, *more):
    contenders = [additive.overt_path("blocked"), additive.eager(), *more]
    for work in ("additive", "gradients"):
        monkeypatch.setitem(WORKS, work, dataclasses.replace(WORKS[work], contenders=contenders))


def test_contenders_that_agree_are_timed_fastest_first():
    actual = run("--case", TINY.name)
    assert actual.exit_code == 0, actual.output
    names = [
        line.split("  ")[0] for line in actual.stdout.splitlines() if line.startswith(("overt blocked  ", "PyTorch eager  "))
    ]
    assert sorted(names) == ["PyTorch eager", "overt blocked"]
    assert "compared: every number" in actual.stdout
    assert actual.stderr == ""  # no progress in a pipe


def test_where_one_disagrees_nobody_is_timed_and_the_command_ends_with_1(monkeypatch, tmp_path):
    join(monkeypatch, altered("liar", scaled("output", 1.001)))
    actual = run("--case", TINY.name, "--out", tmp_path / "out.json")
    assert actual.exit_code == 1
    assert "✗ liar: output differs by 1.0e-03 of the largest expected number; 1e-05 is" in actual.stdout
    assert "No times are shown, because results disagree." in actual.stdout
    assert "median" not in actual.stdout
    message = json.loads((tmp_path / "out.json").read_text())["cases"][0]
    assert message["contenders"] == {}
    assert set(message["wrong"]) == {"liar"}


@pytest.mark.parametrize("part", contender.GRADIENTS)
def test_a_wrong_gradient_disagrees_where_the_backward_pass_is_timed(monkeypatch, part):
    join(monkeypatch, altered("liar", scaled(part, 1.001)))
    assert run("--case", TINY.name).exit_code == 0
    actual = run("--case", TINY_GRADIENTS.name)
    assert actual.exit_code == 1
    assert f"liar: {part} differs by" in actual.stdout


def test_nan_is_no_agreement(monkeypatch):
    join(monkeypatch, altered("liar", scaled("output", float("nan"))))
    assert run("--case", TINY.name).exit_code == 1


def test_with_some_rows_compared_the_gradients_are_those_of_these_rows(monkeypatch):
    monkeypatch.setattr(reference, "_MAX_TERMS", 3 * 2 * 7 * 8)
    join(monkeypatch)
    actual = run("--case", TINY_GRADIENTS.name)
    assert actual.exit_code == 0, actual.output
    assert "compared: the results of 3 of 5 query rows" in actual.stdout
    join(monkeypatch, altered("liar", scaled("key gradient", 1.001)))
    assert run("--case", TINY_GRADIENTS.name).exit_code == 1


def test_what_is_wanted_is_what_torchs_own_double_precision_gives():
    inputs = random_inputs(TINY_GRADIENTS, torch.float64)
    expected = reference.additive_reference(TINY_GRADIENTS, inputs)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs.tensors]
    query, key, value, weight = leaves
    scores = torch.stack([torch.tanh(query[:, i, None] + key) @ weight for i in range(5)], 1)
    output = torch.nn.functional.softmax(scores, -1) @ value
    gradients = torch.autograd.grad((output * inputs.upstream).sum(), leaves)
    for name, actual in zip(("output", *contender.GRADIENTS), (output, *gradients), strict=True):
        torch.testing.assert_close(expected.results[name], actual, rtol=1e-12, atol=1e-13)


def test_the_file_holds_every_run_and_what_follows_from_them(tmp_path):
    assert run("--case", TINY.name, "--out", tmp_path / "out.json").exit_code == 0
    message = json.loads((tmp_path / "out.json").read_text())
    assert message["ceilings"] == dataclasses.asdict(LIMITS)
    assert message["machine"]["torch"] == metadata.version("torch")
    (case,) = message["cases"]
    assert (case["name"], case["shape"], case["terms"]) == (TINY.name, [2, 5, 7, 8], 560)
    for times in case["contenders"].values():
        assert len(times["runs"]) == 3
        assert times["median"] == statistics.median(times["runs"])
        assert times["terms_a_second"] == pytest.approx(560 / times["median"])
        assert times["share_of_bound"] == pytest.approx(
            max(case["bound"]["arithmetic"], case["bound"]["memory"]) / times["median"]
        )
    assert case["contenders"]["PyTorch eager"]["times_best_other"] == 1


def test_a_file_that_cannot_be_written_is_refused_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(ceilings, "measured", lambda threads: pytest.fail("measured"))
    actual = run("--out", tmp_path / "nowhere" / "out.json")
    assert actual.exit_code == 2
    assert "an output path in an existing folder" in actual.stderr


def test_an_interrupted_run_leaves_no_file(monkeypatch, tmp_path):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("overt.cli.bench.measure", interrupted)
    assert run("--out", tmp_path / "out.json").exit_code != 0
    assert list(tmp_path.iterdir()) == []


def test_native_kernels_that_are_not_there_are_said_and_no_other_path_timed_in_their_name(monkeypatch):
    monkeypatch.setattr(native, "load", lambda: native.Loaded(None, "it was not compiled"))
    monkeypatch.setattr(flat_call, "MISSING", "it was not compiled")
    join(monkeypatch, additive.overt_path("native"))
    actual = run("--case", TINY.name)
    assert actual.exit_code == 0, actual.output
    assert "- overt native: " in actual.stdout
    assert "it was not compiled" in " ".join(actual.stdout.split())


def test_another_library_that_fails_is_told_and_the_rest_timed(monkeypatch):
    def fail(inputs):
        raise RuntimeError("out of luck\nand more")

    join(monkeypatch, Contender("unlucky", fail))
    actual = run("--case", TINY.name)
    assert actual.exit_code == 0
    assert "- unlucky: failed: RuntimeError: out of luck\n" in actual.stdout
    assert "PyTorch eager  " in actual.stdout


def test_a_failure_of_overts_own_is_not_hidden(monkeypatch):
    def fail(results):
        raise RuntimeError("a bug")

    join(monkeypatch, altered("overt broken", fail, ours=True))
    assert "a bug" in str(run("--case", TINY.name).exception)


def test_runs_alternate_and_every_other_round_goes_the_other_way_about():
    order = []
    actual = timing.time_alternating({name: lambda name=name: order.append(name) for name in "abc"}, 3, 60.0)
    assert "".join(name for name, _ in itertools.groupby(order)) == "abcbabc"  # each round ends with whom the next one begins
    assert {len(times.seconds) for times in actual.values()} == {3}


def test_a_short_run_is_the_mean_of_several_and_a_long_one_is_run_once(monkeypatch):
    clock, calls = itertools.count(step=0.001), []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    assert timing._timed(lambda: calls.append("short")) == pytest.approx(0.001)
    assert len(calls) == 1 + 10
    clock, calls = itertools.count(step=1.0), []
    assert timing._timed(lambda: calls.append("long")) == 1.0
    assert len(calls) == 1


@pytest.mark.parametrize(("slow", "rounds"), [(0.5, 10), (2.0, 6), (6.0, 3), (14.0, 3), (14.5, 1), (100.0, 1)])
def test_all_have_as_many_runs_and_a_slow_one_makes_them_few(monkeypatch, slow, rounds):
    costs = {"slow": slow, "fast": 0.5}
    monkeypatch.setattr(timing, "_timed", lambda run: run())
    actual = timing.time_alternating({name: lambda cost=cost: cost for name, cost in costs.items()}, 10, 15.0)
    assert {name: len(times.seconds) for name, times in actual.items()} == {"slow": rounds, "fast": rounds}


def test_the_textbook_runs_in_blocks_where_memory_does_not_do(monkeypatch):
    monkeypatch.setattr(contender, "_free_memory", lambda: 1000)
    monkeypatch.setattr(additive, "_BLOCK", 2 * 7 * 8 * 2)
    actual = run("--case", TINY_GRADIENTS.name)
    assert actual.exit_code == 0, actual.output
    assert "- PyTorch eager: in blocks of 2 rows: at once it would need 0.0 GB" in actual.stdout


def test_an_unknown_case_lists_the_cases():
    actual = run("--case", "additive-9")
    assert actual.exit_code == 2
    assert "the name of a case, got 'additive-9'" in actual.stderr
    assert all(f"\n  {case.name}\n" in actual.stderr for case in cases.CASES)


def test_list_measures_nothing(monkeypatch):
    monkeypatch.setattr(ceilings, "measured", lambda threads: pytest.fail("measured"))
    actual = run("--list")
    assert actual.exit_code == 0
    assert [line.split()[0] for line in actual.stdout.splitlines()] == [case.name for case in cases.CASES]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--device", "tpu"],
            "Expected cpu or a CUDA GPU for --device, got 'tpu'. Fix: omit --device, or pass cuda, cuda:1 and so on.",
        ),
        (
            ["--device", "cuda:one"],
            "Expected cpu or a CUDA GPU for --device, got 'cuda:one'.",
        ),
        (
            ["--device", "cuda"],
            f"Expected a GPU that torch can use for --device cuda, got torch {torch.__version__}, which finds none. Fix: run on a "
            "machine with an NVIDIA GPU and a torch built for CUDA, or omit --device.",
        ),
        (["--dtype", "float16"], "--dtype to be one of float32, float64, got 'float16'. Fix: choose one of them."),
        (["--dtype", "bfloat16"], "--dtype to be one of float32, float64, got 'bfloat16'."),
        (["--device", "cuda", "--dtype", "float16"], "--dtype to be one of float32, bfloat16, float64, got 'float16'."),
    ],
)
def test_what_cannot_be_measured_is_refused(monkeypatch, args, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    actual = run(*args)
    assert actual.exit_code == 2
    assert message in actual.stderr


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    actual = run("--device", "cuda:2")
    assert actual.exit_code == 2
    message = "Expected an existing GPU for --device, got cuda:2 of 2 GPUs. Fix: pass one from cuda:0 to cuda:1."
    assert message in actual.stderr


def names(listed):
    """The cases of a list; what is wide goes on below, indented."""
    return [line.split()[0] for line in listed.stdout.splitlines() if not line.startswith(" ")]


def test_a_gpu_has_cases_of_its_own_which_can_be_listed_anywhere():
    listed = run("--list", "--device", "cuda")
    assert listed.exit_code == 0
    assert names(listed) == [
        "additive-8x2048x2048x128-float32",
        "additive-8x2048x2048x128-bfloat16",
        "gradients-8x2048x2048x128-float32",
        "gradients-8x2048x2048x128-bfloat16",
    ]


def test_a_number_type_that_is_asked_for_is_that_of_every_case_on_a_gpu():
    listed = run("--list", "--device", "cuda:1", "--dtype", "float64", "--case", "additive", "--case", "gradients")
    assert names(listed) == [
        "additive-8x2048x2048x128-float64",
        "gradients-8x2048x2048x128-float64",
    ]
    assert run("--list", "--device", "cuda", "--dtype", "float32", "--case", "additive-8x2048x2048x128-bf").exit_code == 2


def test_a_case_of_a_gpu_is_none_of_a_processor():
    actual = run("--case", GPU_FORWARD.name)
    assert actual.exit_code == 2
    assert f"the name of a case, got '{GPU_FORWARD.name}'" in actual.stderr


def test_double_precision_is_held_to_its_own_tolerance(monkeypatch):
    join(monkeypatch, altered("liar", scaled("output", 1 + 1e-9)))
    assert run("--case", TINY.name).exit_code == 0
    assert run("--case", TINY.name, "--dtype", "float64").exit_code == 1


def test_a_table_fits_eighty_columns(monkeypatch):
    times = {name: timing.RunTimes((1.23456, 0.91, 1.61)) for name in ("overt blocked", "torch.compile")}
    monkeypatch.setattr(comparison, "time_alternating", lambda *args: times)
    lines = run("--case", TINY.name).stdout.splitlines()
    head = next(line for line in lines if "of bound" in line)
    assert max(map(len, lines)) <= 80
    assert head.endswith("of bound")


def test_the_operations_of_a_case_counted_by_hand():
    count = bounds.additive_operations(Case("additive", (1,), 2, 3, 4))
    # packing: 5 rows of 4 exponentials; 24 terms; 6 pairs, each an exponential and 4 products with values
    assert count.multiplies == 5 * 4 * 11 + 24 * 9 / 4 + 6 * (11 + 4)
    assert count.divisions == 24 / 4


def test_keys_and_values_bound_a_decoders_step():
    case = Case("additive", (1280,), 1, 66, 1024)
    limit = WORKS["additive"].bound(case, torch.float32, LIMITS)
    assert bounds.moved(case, 4) == 4 * 1024 * 1280 * (2 * 66 + 2)  # keys and values: 692 MB
    assert limit.applies == "copying"
    assert limit.seconds == bounds.moved(case, 4) / 1e10


def test_without_native_kernels_there_is_no_bound():
    assert WORKS["additive"].bound(TINY, torch.float32, dataclasses.replace(LIMITS, multiply_adds=None)) is None


@pytest.mark.parametrize("operation", ["multiply_add", "divide"])
def test_a_processors_rate_is_counted_while_it_computes(operation):
    rate = getattr(native.module(), f"{operation}_rate")(1, 0.01)
    assert 1e5 < rate < 1e13  # what any processor does in a second, even one that computes other things meanwhile


@pytest.mark.parametrize(("threads", "seconds"), [(0, 0.01), (1, 0.0)])
def test_a_rate_needs_threads_and_time(threads, seconds):
    with pytest.raises(ValueError, match="at least 1 thread"):
        native.module().multiply_add_rate(threads, seconds)


@pytest.mark.slow
def test_the_compiled_formula_agrees():
    inputs = random_inputs(TINY_GRADIENTS, torch.float32)
    expected = reference.additive_reference(TINY_GRADIENTS, inputs)
    run, _ = additive.compiled().prepare(inputs)
    assert reference.disagreement(run(inputs.upstream), expected, torch.float32) == ""


def test_the_bound_of_additive_attention_on_a_gpu_is_three_instructions_a_term():
    limit = WORKS["additive"].bound(GPU_FORWARD, torch.float32, GPU_LIMITS)
    assert limit.seconds == pytest.approx(3 * 2**32 / 3e13)
    assert limit.applies == "float32 instructions"
    assert limit.reciprocals == pytest.approx(2**32 / 4 / 4e12)
    assert limit.tanhs == pytest.approx(2**32 / 4e12)
    assert limit.memory == pytest.approx(4 * (2 + 2) * 8 * 2048 * 128 / 4e12)


def test_gradients_on_a_gpu_compute_scores_three_times():
    limit = WORKS["gradients"].bound(GPU_GRADIENTS, torch.bfloat16, GPU_LIMITS)
    # scores in three passes; in two, 13 for four inverses; the slope, of queries with the weights' share, and of keys
    assert limit.seconds == pytest.approx((3 * 3 + 2 * 13 / 4 + 3 + 2) * 2**32 / 3e13)
    assert limit.reciprocals == pytest.approx(5 / 4 * 2**32 / 4e12)
    assert limit.tanhs is None


def test_a_gpu_whose_rates_were_not_measured_bounds_nothing():
    assert WORKS["additive"].bound(GPU_FORWARD, torch.float32, dataclasses.replace(GPU_LIMITS, tanhs=None)) is None
    assert WORKS["additive"].bound(GPU_FORWARD, torch.float64, GPU_LIMITS) is None


def test_a_gpu_is_told_with_shares_of_the_bound_and_beside_one_tanh_a_term(monkeypatch):
    times = {"overt triton": RunTimes((0.0008,)), "PyTorch eager": RunTimes((0.02,)), "torch.compile": RunTimes((0.0032,))}
    message = output_on_gpu(monkeypatch, run, Result(GPU_FORWARD, "every number", times, kind="cuda"))
    assert "NVIDIA H200 · 132 multiprocessors" in message
    assert "multiply-adds 30·10¹²/s · reciprocals 4·10¹²/s · tanh 4·10¹²/s · copy 4.00 TB/s" in message
    assert "overt triton 0.8 ms 0.8 – 0.8 1 5369 4.0 53.7 %" in message
    assert "torch.compile 3.2 ms 3.2 – 3.2 1 1342 1.0 13.4 %" in message
    assert "overt triton is 4.0 times as fast as torch.compile, the fastest other library." in message
    assert "bound: 0.4295 ms of float32 instructions (the reciprocals, at the same time, take 0.2684 ms)" in message
    assert "one float32 hardware tanh per term would take 1.074 ms; overt triton takes 74.5 % of that" in message


def test_what_runs_on_a_gpu_is_timed_by_its_clock(monkeypatch):
    clock = iter(range(1, 100))
    monkeypatch.setattr(gpu, "timed", lambda run: float(run() is not None and next(clock)))
    on_cpu = {
        "gpu_contenders": WORKS["gradients"].contenders,
        "random_inputs": lambda case, dtype, device: random_inputs(case, dtype),
    }
    monkeypatch.setitem(WORKS, "gradients", dataclasses.replace(WORKS["gradients"], **on_cpu))
    case = dataclasses.replace(TINY_GRADIENTS, dtype=torch.float64)
    result = comparison.measure(case, Effort(torch.float32, 1, 2, 60.0, torch.device("cuda")))
    assert result.wrong == {}
    assert result.unable == {}
    assert {name: times.seconds for name, times in result.times.items()} == {
        "overt blocked": (1.0, 4.0),
        "PyTorch eager": (2.0, 3.0),
    }
    assert result.fastest(ours=True) == "overt blocked"


@pytest.mark.parametrize("work", DOTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_kind_of_dot_products_is_compared_and_timed(monkeypatch, work, dtype):
    length = 40 if DOTS[work].documents else 9
    case = Case(work, (2, 4), 1 if work in ("step", "batch") else length, length, 8)
    result = comparison.measure(case, Effort(dtype, 1, 1, 5.0))
    assert (result.wrong, result.unable) == ({}, {})
    assert set(result.times) == {"overt native", "torch SDPA"}
    assert WORKS[work].bound(case, dtype, Ceilings(1e11, 1e11, 1e10, 1e10, "avx2")).seconds > 0


def test_the_masks_of_dot_products_are_counted_by_hand():
    def share(work, length):
        whole, masked = (bounds.dot_operations(Case(each, (4, 8), length, length, 16)) for each in ("dot", work))
        return masked.multiplies / whole.multiplies

    assert share("causal", 100) == share("tril", 100) == pytest.approx(5050 / 100**2)
    assert share("padding", 100) == pytest.approx((25 + 50 + 75 + 100) / 400)
    lengths = document_lengths(32, 8254)
    assert (len(lengths), sum(lengths)) == (32, 8254)
    assert share("packed", 8254) == pytest.approx(sum(length**2 for length in lengths) / 8254**2)


def test_what_would_be_too_much_for_a_gpu_is_measured_against_its_own_memory(monkeypatch):
    monkeypatch.setattr(gpu, "free_memory", lambda: 10**9)
    query = SimpleNamespace(is_cuda=True, shape=(1, 1000, 100), itemsize=4)
    inputs = SimpleNamespace(query=query, key=SimpleNamespace(shape=(1, 1000, 100)))
    assert contender.memory_shortage(inputs, 1) is None
    assert contender.memory_shortage(inputs, 2) == "at once it would need 0.8 GB, and 1.0 GB are free"


def test_half_precision_is_held_to_its_own_tolerance():
    case = dataclasses.replace(TINY_GRADIENTS, dtype=torch.bfloat16)
    inputs = random_inputs(case, torch.bfloat16)
    expected = reference.additive_reference(case, inputs)
    run, _ = additive.eager().prepare(inputs)
    actual = run(inputs.upstream)
    assert reference.disagreement(actual, expected, torch.bfloat16) == ""
    assert "output differs by" in reference.disagreement(scaled("output", 1.05)(actual), expected, torch.bfloat16)
