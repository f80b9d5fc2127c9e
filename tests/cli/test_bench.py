"""`overt bench`: nothing is timed that disagrees, everybody runs in turns, and what is said of bounds is what was counted."""

import dataclasses
import json
import statistics

import pytest
import torch
from typer.testing import CliRunner

from overt.cli.main import app
from overt.kernels import native, native_call
from overt.measuring import additive, bounds, cases, ceilings, compared, contender, libraries, side_by_side, summaries, turns
from overt.measuring.cases import Case, drawn
from overt.measuring.ceilings import Ceilings
from overt.measuring.contender import Contender

TINY = Case("additive", (2,), 5, 7, 8)
TINY_GRADIENTS = Case("gradients", (2,), 5, 7, 8)
TINY_SUMMARY = Case("summary", (1, 2), 9, 11, 4)
LIMITS = Ceilings(matmul=1e11, multiply_adds=4e10, divisions=4e9, copy=1e10, level="avx2")


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Tiny cases, contenders that compile nothing, and a machine whose rates are known."""
    monkeypatch.setattr(cases, "CASES", [TINY, TINY_GRADIENTS, TINY_SUMMARY])
    quick = [additive.blocked(), additive.eager()]
    few = {
        "additive": quick,
        "gradients": quick,
        "memory": [additive.native()],
        "summary": [summaries.blocked(), summaries.yardstick()],
    }
    monkeypatch.setattr(side_by_side, "CONTENDERS", few)
    monkeypatch.setattr(ceilings, "measured", lambda threads: LIMITS)
    monkeypatch.setattr(turns, "_PAUSE", 0)


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
    for work in ("additive", "gradients"):
        monkeypatch.setitem(side_by_side.CONTENDERS, work, [additive.blocked(), additive.eager(), *more])


def test_contenders_that_agree_are_timed_fastest_first():
    found = run("--case", TINY.name)
    assert found.exit_code == 0, found.output
    names = [
        line.split("  ")[0] for line in found.stdout.splitlines() if line.startswith(("overt blocked  ", "PyTorch eager  "))
    ]
    assert sorted(names) == ["PyTorch eager", "overt blocked"]
    assert "compared: every number" in found.stdout
    assert found.stderr == ""  # no progress in a pipe


def test_where_one_disagrees_nobody_is_timed_and_the_command_ends_with_1(monkeypatch, tmp_path):
    join(monkeypatch, altered("liar", scaled("output", 1.001)))
    found = run("--case", TINY.name, "--out", tmp_path / "out.json")
    assert found.exit_code == 1
    assert "✗ liar: output is off by 1.0e-03 of the largest number wanted, and 1e-05 is" in found.stdout
    assert "No times are shown: results disagree." in found.stdout
    assert "median" not in found.stdout
    told = json.loads((tmp_path / "out.json").read_text())["cases"][0]
    assert told["contenders"] == {}
    assert set(told["wrong"]) == {"liar"}


@pytest.mark.parametrize("part", contender.GRADIENTS)
def test_a_wrong_gradient_disagrees_where_the_backward_pass_is_timed(monkeypatch, part):
    join(monkeypatch, altered("liar", scaled(part, 1.001)))
    assert run("--case", TINY.name).exit_code == 0
    found = run("--case", TINY_GRADIENTS.name)
    assert found.exit_code == 1
    assert f"liar: {part} is off by" in found.stdout


def test_nan_is_no_agreement(monkeypatch):
    join(monkeypatch, altered("liar", scaled("output", float("nan"))))
    assert run("--case", TINY.name).exit_code == 1


def test_with_some_rows_compared_the_gradients_are_those_of_these_rows(monkeypatch):
    monkeypatch.setattr(compared, "_MOST_TERMS", 3 * 2 * 7 * 8)
    join(monkeypatch)
    found = run("--case", TINY_GRADIENTS.name)
    assert found.exit_code == 0, found.output
    assert "compared: what comes of 3 of 5 query rows" in found.stdout
    join(monkeypatch, altered("liar", scaled("key gradient", 1.001)))
    assert run("--case", TINY_GRADIENTS.name).exit_code == 1


def test_what_is_wanted_is_what_torchs_own_double_precision_gives():
    inputs = drawn(TINY_GRADIENTS, torch.float64)
    expected = compared.wanted(TINY_GRADIENTS, inputs)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs.tensors]
    query, key, value, weight = leaves
    scores = torch.stack([torch.tanh(query[:, i, None] + key) @ weight for i in range(5)], 1)
    output = torch.nn.functional.softmax(scores, -1) @ value
    gradients = torch.autograd.grad((output * inputs.upstream).sum(), leaves)
    for name, found in zip(("output", *contender.GRADIENTS), (output, *gradients), strict=True):
        torch.testing.assert_close(expected.results[name], found, rtol=1e-12, atol=1e-13)


def test_a_summary_whose_top_keys_are_others_disagrees(monkeypatch):
    assert run("--case", TINY_SUMMARY.name).exit_code == 0
    honest = summaries.blocked()

    def prepare(inputs):
        right, _ = honest.prepare(inputs)
        return lambda upstream: (found := right(upstream)) | {"top_keys": found["top_keys"].roll(1, -1)}, ""

    monkeypatch.setitem(side_by_side.CONTENDERS, "summary", [Contender("liar", prepare)])
    found = run("--case", TINY_SUMMARY.name)
    assert found.exit_code == 1
    assert "liar: top_keys is off by" in found.stdout


def test_a_summary_map_is_compared_cell_by_cell():
    inputs = drawn(TINY_SUMMARY, torch.float64)
    expected = summaries.wanted(inputs).results
    weights = torch.softmax(inputs.query @ inputs.key.mT / 2, -1)[0]
    torch.testing.assert_close(expected["map_mean"], weights)  # fewer rows and keys than cells: each its own
    torch.testing.assert_close(expected["received"], weights.mean(-2))


def test_the_file_holds_every_run_and_what_follows_from_them(tmp_path):
    assert run("--case", TINY.name, "--out", tmp_path / "out.json").exit_code == 0
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["ceilings"] == dataclasses.asdict(LIMITS)
    assert told["machine"]["torch"] == torch.__version__
    (case,) = told["cases"]
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
    found = run("--out", tmp_path / "nowhere" / "out.json")
    assert found.exit_code == 2
    assert "an output file goes into a folder that exists" in found.stderr


def test_an_interrupted_run_leaves_no_file(monkeypatch, tmp_path):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("overt.cli.bench.measure", interrupted)
    assert run("--out", tmp_path / "out.json").exit_code != 0
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    join(monkeypatch, libraries.keops(), libraries.keras())
    found = run("--case", TINY.name)
    assert found.exit_code == 0
    assert "- KeOps: not installed: pip install pykeops" in found.stdout
    assert "- Keras: not installed: pip install keras" in found.stdout


def test_native_kernels_that_are_not_there_are_said_and_no_other_path_timed_in_their_name(monkeypatch):
    monkeypatch.setattr(native, "load", lambda: native.Loaded(None, "it was not compiled"))
    monkeypatch.setattr(native_call, "MISSING", "it was not compiled")
    join(monkeypatch, additive.native())
    monkeypatch.setitem(side_by_side.CONTENDERS, "summary", [summaries.native(), summaries.yardstick()])
    for case in (TINY, TINY_SUMMARY):
        found = run("--case", case.name)
        assert found.exit_code == 0, found.output
        assert "- overt native: " in found.stdout
        assert "it was not compiled" in " ".join(found.stdout.split())


def test_another_library_that_fails_is_told_and_the_rest_timed(monkeypatch):
    def fail(inputs):
        raise RuntimeError("out of luck\nand more")

    join(monkeypatch, Contender("unlucky", fail))
    found = run("--case", TINY.name)
    assert found.exit_code == 0
    assert "- unlucky: failed: RuntimeError: out of luck\n" in found.stdout
    assert "PyTorch eager  " in found.stdout


def test_a_failure_of_overts_own_is_not_hidden(monkeypatch):
    def fail(results):
        raise RuntimeError("a bug")

    join(monkeypatch, altered("overt broken", fail, ours=True))
    assert "a bug" in str(run("--case", TINY.name).exception)


def test_runs_alternate_and_every_other_round_goes_the_other_way_about():
    order = []
    found = turns.in_turns({name: lambda name=name: order.append(name) for name in "abc"}, 3, 60.0)
    assert "".join(order) == "abccbaabc"
    assert {len(times.seconds) for times in found.values()} == {3}


def test_who_uses_up_his_share_leaves_the_rounds_to_the_others(monkeypatch):
    costs = {"slow": 100.0, "middle": 4.0, "fast": 0.5}
    monkeypatch.setattr(turns, "_timed", lambda run: run())
    found = turns.in_turns({name: lambda cost=cost: cost for name, cost in costs.items()}, 10, 15.0)
    assert {name: len(times.seconds) for name, times in found.items()} == {"slow": 1, "middle": 3, "fast": 10}


def test_the_textbook_runs_in_blocks_where_memory_does_not_do(monkeypatch):
    monkeypatch.setattr(contender, "_free_memory", lambda: 1000)
    monkeypatch.setattr(additive, "_BLOCK", 2 * 7 * 8 * 2)
    join(monkeypatch, libraries.keras())
    found = run("--case", TINY_GRADIENTS.name)
    assert found.exit_code == 0, found.output
    assert "- PyTorch eager: in blocks of 2 rows: at once it would hold 0.0 GB" in found.stdout


def test_an_unknown_case_lists_the_cases():
    found = run("--case", "additive-9")
    assert found.exit_code == 2
    assert "a case has a name of the list; got 'additive-9'" in found.stderr
    assert all(f"\n  {case.name}\n" in found.stderr for case in cases.CASES)


def test_list_measures_nothing(monkeypatch):
    monkeypatch.setattr(ceilings, "measured", lambda threads: pytest.fail("measured"))
    found = run("--list")
    assert found.exit_code == 0
    assert [line.split()[0] for line in found.stdout.splitlines()] == [case.name for case in cases.CASES]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--device", "cuda"], "overt bench measures the processor; got --device cuda. To mend it, leave --device out."),
        (["--dtype", "float16"], "--dtype is one of float32, float64; got 'float16'. To mend it, name one of them."),
    ],
)
def test_what_cannot_be_measured_is_refused(args, told):
    found = run(*args)
    assert found.exit_code == 2
    assert told in found.stderr


def test_double_precision_is_held_to_its_own_tolerance(monkeypatch):
    join(monkeypatch, altered("liar", scaled("output", 1 + 1e-9)))
    assert run("--case", TINY.name).exit_code == 0
    assert run("--case", TINY.name, "--dtype", "float64").exit_code == 1


def test_a_table_fits_eighty_columns(monkeypatch):
    times = {name: turns.Times((1.23456, 0.91, 1.61)) for name in ("overt blocked", "torch.compile")}
    monkeypatch.setattr(side_by_side, "in_turns", lambda *args: times)
    lines = run("--case", TINY.name).stdout.splitlines()
    head = next(line for line in lines if "of bound" in line)
    assert max(map(len, lines)) <= 80
    assert head.endswith("of bound")


def test_the_operations_of_a_case_counted_by_hand():
    count = bounds.operations(Case("additive", (1,), 2, 3, 4))
    # packing: 5 rows of 4 exponentials; 24 terms; 6 pairs, each an exponential and 4 products with values
    assert count.multiplies == 5 * 4 * 11 + 24 * 9 / 4 + 6 * (11 + 4)
    assert count.divisions == 24 / 4


def test_keys_and_values_bound_a_decoders_step():
    case = Case("additive", (1280,), 1, 66, 1024)
    limit = bounds.bound(case, 4, LIMITS)
    assert bounds.moved(case, 4) == 4 * 1024 * 1280 * (2 * 66 + 2)  # keys and values: 692 MB
    assert limit.applies == "copying"
    assert limit.seconds == bounds.moved(case, 4) / 1e10


def test_without_native_kernels_there_is_no_bound():
    assert bounds.bound(TINY, 4, dataclasses.replace(LIMITS, multiply_adds=None)) is None


def test_a_processor_multiplies_faster_than_it_divides():
    assert native.module().multiply_add_rate(1, 0.01) > native.module().divide_rate(1, 0.01) > 0


@pytest.mark.parametrize(("threads", "seconds"), [(0, 0.01), (1, 0.0)])
def test_a_rate_needs_threads_and_time(threads, seconds):
    with pytest.raises(ValueError, match="threads are at least 1"):
        native.module().multiply_add_rate(threads, seconds)


def test_memory_is_measured_in_a_process_of_its_own():
    result = side_by_side._memory(Case("memory", (1,), 512, 512, 32), side_by_side.Options(torch.float32, 1, 1, 1.0), str)
    assert result.wrong == {}
    assert 0 <= result.memory["overt native"] < 512 * 512 * 32 * 4


@pytest.mark.slow
def test_the_compiled_formula_agrees():
    inputs = drawn(TINY_GRADIENTS, torch.float32)
    expected = compared.wanted(TINY_GRADIENTS, inputs)
    run, _ = additive.compiled().prepare(inputs)
    assert compared.disagreement(run(inputs.upstream), expected, torch.float32) == ""
