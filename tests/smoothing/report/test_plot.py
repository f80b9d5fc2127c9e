"""The picture: what is drawn where, and that a long series keeps its extremes."""

import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

from overt.errors import InputError
from overt.smoothing import analyze
from overt.smoothing.reporting.curve import Curve
from overt.smoothing.reporting.plot import Panel, draw, draw_figure

NAN = float("nan")


def panel(n=50, *, band=True, heads=0, dates=False, name="temperature"):
    random = np.random.default_rng(0)
    truth = np.sin(np.arange(n) * 8 / n)
    times = np.datetime64("2024-01-01") + np.arange(n) * np.timedelta64(1, "D") if dates else np.arange(n) * 0.5
    shares = np.full((heads, min(n, 20)), 1 / heads) if heads else None
    families = tuple(f"head {index}" for index in range(heads))
    lower, upper = (truth - 0.1, truth + 0.1) if band else (None, None)
    return Panel(name, times, truth + random.normal(size=n) * 0.2, Curve(truth, lower, upper, shares, families, "", {}))


def labels(figure):
    return [[text.get_text() for text in legend.get_texts()] for legend in figure.legends]


def test_data_curve_and_band_are_drawn_and_named():
    figure = draw_figure([panel()], x="time")
    (axes,) = figure.axes
    assert labels(figure) == [["data", "95% band of the mean", "smoothed"]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time", "temperature")
    np.testing.assert_allclose(axes.lines[0].get_ydata(), panel().curve.values)
    (dots,) = (result for result in axes.collections if isinstance(result, PathCollection))
    np.testing.assert_allclose(dots.get_offsets()[:, 1], panel().data)


def test_a_band_that_is_withheld_is_not_drawn():
    assert labels(draw_figure([panel(band=False)], x="time")) == [["data", "smoothed"]]


def test_the_mixture_of_heads_is_a_strip_under_the_curve_in_the_colours_of_its_legend():
    figure = draw_figure([panel(heads=3)], x="time")
    curve, strip = figure.axes
    assert labels(figure)[1] == ["head 0", "head 1", "head 2"]
    assert strip.get_ylim() == (0, 1)
    assert strip.get_position().y1 <= curve.get_position().y0
    drawn = [to_hex(result.get_facecolor()[0]) for result in strip.collections]
    assert drawn == [to_hex(patch.get_facecolor()) for patch in figure.legends[1].get_patches()]


def test_one_head_has_no_strip():
    assert len(draw_figure([panel(heads=1)], x="time").axes) == 1


def test_panels_share_one_range_of_times_and_one_legend():
    figure = draw_figure([panel(50, name="Ulm"), panel(100, name="Bonn")], x="time")
    assert [axes.get_ylabel() for axes in figure.axes] == ["Ulm", "Bonn"]
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert len(figure.legends) == 1


def test_dates_are_written_as_dates():
    figure = draw_figure([panel(400, dates=True)], x="day")
    figure.canvas.draw()
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert "2025" in ticks
    assert "May" in ticks


@pytest.mark.parametrize(
    ("start", "step", "n", "first"),
    [
        ("2024-12-20", "D", 30, r"Dec-\d\d"),
        ("2024-10-05", "D", 150, r"2024-\w{3}"),
        ("2024-12-30T18", "h", 30, r"Dec-30 \d\d:00"),
        ("2024-03-02", "D", 25, r"0\d"),
    ],
)
def test_the_first_tick_names_its_month_or_year_where_the_axis_names_another(start, step, n, first):
    times = np.datetime64(start, step) + np.arange(n)
    figure = draw_figure([replace(panel(n), times=times.astype("datetime64[us]"))], x="")
    figure.canvas.draw()
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert re.fullmatch(first, labels[0]), labels


def test_a_long_series_is_thinned_but_keeps_its_extremes():
    long = panel(200_000)
    long.data[123_456] = 50.0
    long.curve.values[77_777] = -9.0
    (axes,) = draw_figure([long], x="time").axes
    (dots,) = (result for result in axes.collections if isinstance(result, PathCollection))
    assert dots.get_rasterized()
    assert len(dots.get_offsets()) <= 40_000
    beyond = next(line for line in axes.lines if line.get_label() == "value beyond the picture")
    assert (beyond.get_xdata(), beyond.get_marker()) == (pytest.approx([123_456 * 0.5]), "^")
    assert axes.get_ylim()[1] < 5
    curve = next(line.get_ydata() for line in axes.lines if line.get_label() == "smoothed")
    assert len(curve) <= 5_000
    assert curve.min() == -9.0


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_shortest_series_are_drawn(tmp_path, n):
    draw(tmp_path / "a.png", [panel(n, heads=2)], x="time")
    assert (tmp_path / "a.png").stat().st_size > 0


def test_missing_values_and_an_empty_curve_are_gaps(tmp_path):
    empty = Panel("empty", np.arange(3.0), np.full(3, NAN), Curve(np.full(3, NAN), None, None, None, (), "", {}))
    some = panel(20_000)
    some.data[5_000:9_000] = NAN
    some.curve.values[5_000:9_000] = NAN
    draw(tmp_path / "a.png", [empty, some], x="time")
    (axes,) = draw_figure([some], x="time").axes
    assert np.isnan(axes.lines[0].get_ydata()).any()


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_ending_is_the_format(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    draw(path, [panel(heads=2)], x="time")
    assert path.read_bytes()[:5] in {b"\x89PNG\r", b"<?xml", b"%PDF-"}


def test_too_many_panels_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"at most 12 series in a picture, got 13\. Fix: leave out the picture"):
        draw(tmp_path / "a.png", [panel(3)] * 13, x="time")
    assert list(tmp_path.iterdir()) == []


def test_a_long_curve_that_fills_an_area_has_an_excerpt_beside_it():
    smooth, waves = panel(3000), panel(3000)
    times = np.arange(3000)
    waves = Panel("waves", times, np.sin(times), Curve(np.sin(times), None, None, None, (), "", {}))
    assert len(draw_figure([smooth], x="").axes) == 1
    whole, excerpt = draw_figure([waves], x="").axes
    assert excerpt.get_title() == "200 of 3,000 points"
    assert excerpt.lines[0].get_xdata()[0] == 1400
    assert whole.lines[0].get_linewidth() < excerpt.lines[0].get_linewidth()


def test_the_picture_says_that_a_band_is_withheld():
    message = panel(band=False)
    message.curve.facts["withheld"] = (
        "Many values repeat the one before: copies, zeros where nothing happened, or ends of a range."
    )
    (axes,) = draw_figure([message], x="time").axes
    assert [text.get_text() for text in axes.texts] == ["no band: many values repeat the one before"]


def test_the_axes_are_those_of_the_curve_and_outliers_are_marked():
    one = panel(60, dates=True)
    one.data[[10, 30]] = 1.9, -999.0
    outliers = np.isin(np.arange(60), [10, 30])
    figure = draw_figure([replace(one, curve=replace(one.curve, outliers=outliers))], x="")
    (axes,) = figure.axes
    assert -3 < axes.get_ylim()[0] < -1
    marks = {
        line.get_label(): (line.get_marker(), len(line.get_xdata())) for line in axes.lines if line.get_linestyle() == "None"
    }
    assert marks == {"outlier": ("x", 1), "value beyond the picture": ("v", 1)}
    assert {"outlier", "value beyond the picture"} <= set(labels(figure)[0])


def test_gaps_are_shaded_and_the_curve_goes_on_in_them():
    draw = np.random.default_rng(0)
    times = np.delete(np.arange(120.0), slice(50, 62))
    values = np.sin(times / 12) + 0.1 * draw.normal(size=times.size)
    values[80:86] = NAN
    figure = analyze(values, times=times).plot()
    axes = figure.axes[0]
    assert len(axes.patches) == 2
    assert "gap: drawn by the model" in labels(figure)[0]
    curve = next(line for line in axes.lines if line.get_label() == "smoothed")
    inside = (curve.get_xdata() > 49) & (curve.get_xdata() < 62)
    assert inside.sum() == 12
    assert np.isfinite(curve.get_ydata()[inside]).all()


def test_trend_season_and_remainder_have_panels_of_their_own():
    times = np.delete(np.arange(200.0), slice(90, 110))
    values = times / 50 + np.sin(2 * np.pi * times / 10) + 0.1 * np.random.default_rng(0).normal(size=times.size)
    result = analyze(values, times=times, period=10)
    names = [axes.get_ylabel() for axes in result.plot().axes]
    assert names[-3:] == ["trend", "seasonal", "remainder"]
    drawn = result.plot().axes[-3].lines[0].get_ydata()
    assert np.isnan(drawn).sum() == 1  # the line is broken in the gap
    np.testing.assert_allclose(drawn[~np.isnan(drawn)], result.trend)
