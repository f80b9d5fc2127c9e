"""Smoothers compared: signals are those of the literature, scores come out as by hand, and missing peers are reported."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.denoising import accuracy, heads, peers, real_series, resources, speed
from benchmarks.denoising.accuracy import CASES, Case, noisy, score
from benchmarks.denoising.compare import app
from benchmarks.denoising.peers import OURS, PEERS, Smoother
from benchmarks.denoising.published import best_published
from benchmarks.denoising.signals import SIGNALS, sampled
from overt.errors import InputError, install_command

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("OVERT_DATA", ROOT.parent / "shared" / "data"))
BLOCKS_3 = Case("blocks", 3)

needs_data = pytest.mark.skipif(not (DATA / "denoise").is_dir(), reason=f"no test signals in {DATA / 'denoise'}")


def identity(x):
    return x


def mean(x):
    return np.full_like(x, x.mean())


def gone(x):
    raise RuntimeError("out of order")


def run(*args):
    return CliRunner().invoke(app, ["--processes", "1", *map(str, args)], env={"COLUMNS": "120", "OVERT_DATA": ""})


@pytest.fixture
def two_peers(monkeypatch):
    """Peers whose scores are known: the noisy values themselves, and their mean."""
    monkeypatch.setattr(peers, "PEERS", [Smoother("same", "nothing", (), identity), Smoother("mean", "one number", (), mean)])


@needs_data
def test_signals_are_those_of_the_shared_data():
    table = np.genfromtxt(DATA / "denoise" / "signals.csv", delimiter=",", names=True)
    for name in ("spikes", "bumps", "blocks", "doppler"):
        np.testing.assert_allclose(sampled(name), table[name], rtol=0, atol=1e-14)


@needs_data
def test_the_best_published_are_the_least_of_the_table():
    rows = re.findall(r"^\| (\w+) ([13]) \| (.*) \|$", (DATA / "denoise" / "README.md").read_text(), flags=re.MULTILINE)
    assert len(rows) == 8
    for signal, snr, numbers in rows:
        *scores, _ = map(float, numbers.split(" | "))
        result = best_published(signal, int(snr))
        assert result is not None
        assert result[1] == min(scores)


@needs_data
def test_not_smoothing_scores_what_the_table_has_for_noise():
    rows = re.findall(
        r"^\| (\w+) ([13]) \| .* \| ([\d.]+) \|$", (DATA / "denoise" / "README.md").read_text(), flags=re.MULTILINE
    )
    assert len(rows) == 8
    for signal, snr, number in rows:
        truth = sampled(signal)
        expected = np.mean([score(noisy(truth, int(snr), seed), truth) for seed in range(100)])
        assert expected == pytest.approx(float(number), rel=0.01)


def test_nothing_is_published_of_the_other_signals():
    assert {case.signal for case in CASES if best_published(case.signal, case.snr)} == {"spikes", "bumps", "blocks", "doppler"}


def at(name, *positions):
    return SIGNALS[name](np.append(np.arange(1, 1025) / 1024, positions))[1024:]


def test_the_other_signals_have_the_values_of_their_formulas():
    np.testing.assert_allclose(at("wave", 0.25, 0.125), [0.5 - 0.2 + 0.1, 0.5 - 0.1], atol=1e-15)
    np.testing.assert_allclose(at("heavisine", 0.5, 0.125), [0.2 + 0.6 / 9 * 3, 0.2 + 0.6 / 9 * 9], atol=1e-15)
    np.testing.assert_allclose(at("blip", 0.3, 0.8)[0], 0.32 + 0.18 + 0.3)
    np.testing.assert_allclose(at("sine", 0.25, 0.75), [0.8, 0.2])


def test_blip_falls_by_six_tenths_and_corner_turns_without_a_jump():
    before, after = at("blip", 0.8, 0.8 + 1e-9)
    assert before - after == pytest.approx(0.6, abs=1e-7)
    for knot in (0.5, 0.8):
        before, after = at("corner", knot, knot + 1e-9)
        assert before == pytest.approx(after, abs=1e-5)


def test_angles_is_straight_between_its_knots():
    inside = [position + np.array([0.01, 0.02, 0.03]) for position in (0.05, 0.15, 0.3, 0.5, 0.61, 0.7, 0.9)]
    for positions in inside:
        left, middle, right = at("angles", *positions)
        assert middle == pytest.approx((left + right) / 2, abs=1e-12)


@pytest.mark.parametrize("name", SIGNALS)
def test_every_signal_fills_the_same_range(name):
    signal = sampled(name)
    assert signal.min() == pytest.approx(0.2, abs=0.07)
    assert signal.max() == pytest.approx(0.8, abs=0.01)


def test_noise_is_as_strong_as_the_signal_over_snr():
    truth = sampled("doppler", 200_000)
    noise = noisy(truth, 3, 0) - truth
    assert noise.std() == pytest.approx(truth.std() / 3, rel=0.01)


def test_everybody_gets_the_same_noise_and_each_seed_another():
    truth = sampled("sine")
    np.testing.assert_array_equal(noisy(truth, 1, 5), noisy(truth, 1, 5))
    assert np.abs(noisy(truth, 1, 5) - noisy(truth, 1, 6)).max() > 0


def test_a_score_is_squared_error_in_ten_thousandths_of_the_square():
    assert score(np.array([3.0, 4.5]), np.array([3.0, 4.0])) == pytest.approx(1e4 * 0.25 / 25)


def test_scores_are_those_of_each_seed(two_peers):
    result = accuracy.measure([BLOCKS_3], ["mean"], 13, 1)
    truth = sampled("blocks")
    wanted = [score(mean(noisy(truth, 3, seed)), truth) for seed in range(13)]
    assert result.scores == {"mean": {BLOCKS_3: wanted}}
    assert result.mean("mean", BLOCKS_3) == pytest.approx(sum(wanted) / 13)


@pytest.mark.slow
def test_two_processes_score_as_one_does():
    one, two = (accuracy.measure([Case("sine", 1)], [OURS.name], 12, processes) for processes in (1, 2))
    assert one.unable == two.unable == {}
    np.testing.assert_allclose(list(one.scores[OURS.name].values()), list(two.scores[OURS.name].values()), rtol=1e-9)


def test_a_peer_that_fails_is_told_and_the_others_go_on(monkeypatch, two_peers):
    monkeypatch.setattr(peers, "PEERS", [*peers.PEERS, Smoother("broken", "fails", (), gone)])
    result = accuracy.measure([BLOCKS_3], ["broken", "same"], 2, 1)
    assert list(result.scores) == ["same"]
    assert result.unable == {"broken": "failed on blocks 3: RuntimeError: out of order"}


def test_a_curve_with_holes_is_no_score(monkeypatch):
    monkeypatch.setattr(peers, "PEERS", [Smoother("holes", "fails", (), lambda x: np.where(x > x.mean(), x, np.nan))])
    result = accuracy.measure([BLOCKS_3], ["holes"], 1, 1)
    assert re.search(r"returned shape \(1024,\) with \d+ values that are not finite", result.unable["holes"])


def ends(line):
    """Where the words of a line end."""
    return {each.end() for each in re.finditer(r"\S+", line)}


def test_the_page_shows_ours_the_best_and_their_ratios(two_peers):
    result = run("--part", "accuracy", "--seeds", 2, "--case", "blocks 3")
    assert result.exit_code == 0, result.output
    of = accuracy.measure([BLOCKS_3], [OURS.name, "same", "mean"], 2, 1)
    expected, same, flat = (of.mean(name, BLOCKS_3) for name in of.scores)
    lines = [line.split() for line in result.stdout.splitlines()]
    best = [
        f"{expected:.1f}",
        f"{expected / same:.2f}",
        f"{same:.1f}",
        "same",
        f"{expected / 21.7:.2f}",
        "21.7",
        "EBayesThresh",
    ]
    assert ["blocks", "3", *best] in lines
    assert ["blocks", "3", f"{expected:.1f}", f"{same:.1f}", f"{flat:.1f}"] in lines
    assert ["mean", f"{flat:.1f}", f"{flat / same:.2f}", "blocks", "3", "one", "number"] in lines
    shown = result.stdout.splitlines()
    heads = [next(line for line in shown if "× peer" in line), shown[lines.index([OURS.name, "same", "mean"])]]
    rows = [line for line in shown if line.startswith("blocks 3 ")]
    assert {heads[0].index("× peer") + 6, heads[0].index("× published") + 11} <= ends(rows[0])
    assert ends(heads[1]) - ends(rows[1]) == set()
    assert f"{expected / 21.7:.2f} in geometric mean of 1 cases, {expected / 21.7:.2f} at worst (blocks 3)." in result.stdout


def test_names_of_cases_of_any_length_begin_at_the_left_edge(two_peers):
    result = run("--part", "accuracy", "--seeds", 1, "--case", "blocks 3", "--case", "sine 3")
    for name in ("blocks 3", "sine 3"):
        assert len([line for line in result.stdout.splitlines() if line.startswith(f"{name} ")]) == 2


def test_a_peer_that_is_not_installed_is_named_with_its_cure(monkeypatch):
    monkeypatch.setattr(peers, "PEERS", [Smoother("fog", "nothing", ("numpy", "no_such_module"), identity)])
    result = run("--part", "accuracy", "--seeds", 1, "--case", "sine 3")
    assert result.exit_code == 0, result.output
    sentence = f"fog needs no_such_module, which is not installed. Fix: run: {install_command('bench')}"
    assert sentence in " ".join(result.stdout.split())


def test_ours_failing_ends_with_1(monkeypatch, two_peers):
    monkeypatch.setattr(peers, "smooth", gone)
    result = run("--part", "accuracy", "--seeds", 1, "--case", "sine 3")
    assert result.exit_code == 1
    assert f"{OURS.name}: failed on sine 3: RuntimeError: out of order" in result.stdout


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_each_installed_peer_halves_the_error_on_a_wave_and_fills_what_it_says(peer):
    if peer.missing:
        pytest.skip(peer.missing)
    truth = sampled("wave")
    x = noisy(truth, 1, 0)
    assert score(peer.smooth(x), truth) < score(x, truth) / 2
    if peer.fills:
        x[100:900:7] = np.nan
        assert np.isfinite(peer.smooth(x)).all()


def test_a_length_that_would_take_too_long_is_said_and_not_run(monkeypatch, two_peers):
    monkeypatch.setattr(speed, "_LONGEST", 0.0)
    result = speed.measure(peers.smoother("same"), (100, 1000))
    assert list(result.seconds) == [100]
    assert result.unable == "1,000 points would take over 0 s"


def test_seconds_are_shown_by_length(monkeypatch, two_peers):
    monkeypatch.setattr(speed, "SIZES", (200, 400, 1000))
    result = run("--part", "speed", "--peer", "same")
    assert result.exit_code == 0, result.output
    same = next(line.split() for line in result.stdout.splitlines() if line.startswith("same"))
    assert len(same) == 4
    assert all(0 < float(seconds) < 10 for seconds in same[1:])


@pytest.mark.slow
def test_the_whole_command_and_the_memory_are_measured_in_processes(monkeypatch, tmp_path):
    monkeypatch.setattr(speed, "SIZES", (1000, 20_000))
    monkeypatch.setattr(resources, "SERIES", 20)
    monkeypatch.setattr(resources, "RUNS", 1)
    result = run("--part", "resources", "--out", tmp_path / "resources.json")
    assert result.exit_code == 0, result.output
    measured = json.loads((tmp_path / "resources.json").read_text())["resources"]
    assert [measured["series"], measured["points"], len(measured["seconds"])] == [20, 100, 1]
    assert f"20 series of 100 points  {measured['seconds'][0]:.3g} s" in result.stdout
    # The curve itself and the outputs of a first few heads are there at once.
    assert 8 * 20_000 * 10 < measured["memory"]["20000"] < 2e8
    assert measured["memory"]["1000"] < measured["memory"]["20000"]


def test_a_command_that_fails_is_told(monkeypatch):
    monkeypatch.setattr(resources, "_write_series", lambda path: path.write_text("a\n", encoding="utf-8"))
    with pytest.raises(RuntimeError, match="a line of column names and at least one row"):
        resources.measure(())


def test_heads_are_timed_too_and_one_that_fails_is_told(monkeypatch):
    monkeypatch.setattr(speed, "SIZES", (200, 400, 1000))
    monkeypatch.setattr(heads, "HEADS", [*heads.HEADS[:1], Smoother("torn", "", (), gone)])
    result = run("--part", "heads")
    assert result.exit_code == 0, result.output
    assert len(next(line.split() for line in result.stdout.splitlines() if line.startswith("value"))) == 4
    assert "- torn: RuntimeError: out of order" in result.stdout


@pytest.mark.parametrize(
    "head", [head for head in heads.HEADS if head.name in {"value", "time", "both"}], ids=lambda head: head.name
)
def test_each_head_comes_nearer_to_a_sine(head):
    truth = sampled("sine")
    x = noisy(truth, 3, 0)
    assert score(head.smooth(x), truth) < score(x, truth)


def test_uneven_times_rise_and_have_one_gap():
    steps = np.diff(heads.uneven_times(1000))
    assert steps.min() > 0
    assert np.sum(steps > 50) == 1


@pytest.fixture
def straight(tmp_path, monkeypatch):
    """A folder with one series, a straight line, and peers one of which fills."""
    (tmp_path / "series").mkdir()
    rows = "\n".join(f"2024-01-01 {hour:02}:00,{3 * hour}" for hour in range(24))
    (tmp_path / "series" / "line.csv").write_text(f"time,value\n{rows}\n")
    monkeypatch.setattr(real_series, "SERIES", {"straight": ("line.csv", "value")})
    middle = Smoother("middle", "", (), lambda x: np.full_like(x, 34.5), fills=True)
    monkeypatch.setattr(peers, "PEERS", [middle, Smoother("even", "", (), identity)])
    return tmp_path


def test_points_left_out_are_found_again_or_not(straight):
    result = real_series.measure(straight / "series", "straight", ["middle"])
    hidden = 3 * np.sort(np.random.default_rng(0).choice(np.arange(1, 23), 2, replace=False))
    assert result.left_out == 2
    assert result.errors["line"] == pytest.approx(0)
    assert result.errors["middle"] == pytest.approx(np.mean((hidden - 34.5) ** 2) / np.var(3 * np.arange(24)))
    in_a_gap = 3 * np.arange(1, 7)
    assert result.gap_errors["line"] == pytest.approx(0)
    assert result.gap_errors["middle"] == pytest.approx(np.mean((in_a_gap - 34.5) ** 2) / np.var(3 * np.arange(24)))


def test_gaps_are_a_tenth_and_apart_and_leave_missing_values():
    x = np.where(np.arange(5000) % 7 == 3, np.nan, 1.0)
    left_out = real_series.gaps(x)
    assert not np.isnan(x[left_out]).any()
    present = np.flatnonzero(~np.isnan(x))
    ordinals = np.searchsorted(present, left_out)
    runs = np.split(ordinals, np.flatnonzero(np.diff(ordinals) > 1) + 1)
    assert {len(run) for run in runs} == {real_series.GAP}
    assert min(second[0] - first[-1] for first, second in itertools.pairwise(runs)) > real_series.GAP
    assert abs(left_out.size - 0.1 * present.size) <= real_series.GAP
    assert ordinals[0] > 0
    assert ordinals[-1] < present.size - 1


def test_real_series_are_shown_with_the_sentence_and_those_that_fill(straight):
    result = run("--part", "real", "--data", straight)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split() for line in lines].count(["points", "overt", "line", "middle"]) == 2
    assert any("in gaps of 6" in line for line in lines)
    assert " ".join(real_series.measure(straight / "series", "straight", []).sentence.split()) in " ".join(
        result.stdout.split()
    )


@pytest.mark.slow
def test_all_numbers_go_into_the_file(straight, tmp_path):
    out = tmp_path / "found.json"
    assert (
        run(
            "--part", "accuracy", "--part", "real", "--seeds", 2, "--case", "sine 3", "--data", straight, "--out", out
        ).exit_code
        == 0
    )
    content = json.loads(out.read_text())
    assert len(content["accuracy"]["scores"]["even"]["sine 3"]) == 2
    assert content["real"][0]["name"] == "straight"
    assert content["machine"]["python"]


def test_a_peer_says_the_versions_of_what_it_runs_on():
    assert Smoother("sums", "", ("numpy", "no_such_module"), identity).versions == {"numpy": np.__version__}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--part", "sped"],
            "Expected --part accuracy or speed or heads or resources or real, got 'sped'. Fix: choose one of them.",
        ),
        (["--peer", "loess"], "Expected --peer Haar or sym8 or db4 or TV or "),
        (
            ["--case", "cubes"],
            "Expected --case with the name of a case, or its beginning, got cubes. Fix: choose one of spikes, bumps, ",
        ),
        (["--part", "real"], "pass the folder that contains `series` with --data or OVERT_DATA."),
        (["--part", "accuracy", "--out", "no_such_folder/a.json"], "an output path in an existing folder"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_its_cure(args, message):
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_folder_without_series_is_refused(tmp_path):
    with pytest.raises(InputError, match="Expected a folder `series` with the real series, got no folder"):
        real_series.folder(tmp_path)


def test_a_series_that_is_measured_is_not_written_over(tmp_path):
    file = tmp_path / "series" / "ETTh1.csv"
    file.parent.mkdir()
    file.write_text("OT\n1\n")
    result = run("--part", "real", "--data", tmp_path, "--out", file)
    assert result.exit_code == 2
    assert "the same file as the series oil" in result.stderr
    assert file.read_text() == "OT\n1\n"


@pytest.mark.slow
def test_it_loads_no_torch():
    program = """
import sys
from typer.testing import CliRunner
from benchmarks.denoising.compare import app
result = CliRunner().invoke(app, ["--part", "accuracy", "--seeds", "1", "--case", "sine 3", "--peer", "TV", "--processes", "1"])
assert result.exit_code == 0, result.output
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\n"
