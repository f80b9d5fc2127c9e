import json

import pytest

from overt.errors import InputError
from overt.learn.run.curve import bin_means, draw_curve

pytest.importorskip("matplotlib")


def log(folder, *entries):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_a_runs_log_becomes_a_picture(tmp_path):
    updates = [{"update": index, "loss": 5 / index} for index in range(1, 400)]
    path = log(tmp_path, *updates, {"update": 399, "validation": {"bleu": 12.5, "perplexity": 9.0}})
    draw_curve(path, tmp_path / "curve.png", "bleu")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_means_keep_every_point_of_a_short_log_and_the_mean_of_a_long_one():
    short = [(1.0, 3.0), (2.0, 5.0)]
    assert bin_means(short) == short
    long = [(float(index), float(index % 2)) for index in range(1000)]
    assert len(bin_means(long)) == 200
    assert sum(value for _, value in bin_means(long)) / 200 == pytest.approx(0.5)


def test_a_log_without_updates_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"log.jsonl without one. Fix: start the run"):
        draw_curve(log(tmp_path, {"update": 0, "finished": {}}), tmp_path / "curve.png", "bleu")
