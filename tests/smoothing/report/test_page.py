"""The page of `overt smooth --html`: what it holds, how large it is, and that a real browser reads it without a network."""

import base64
import re
import zlib

import numpy as np
import pytest
from typer.testing import CliRunner

from overt.cli.main import app
from overt.errors import InputError
from overt.smoothing import analyze
from overt.smoothing.reporting.curve import Curve, extract_curve
from overt.smoothing.reporting.page import pack, pack_times, write_page
from overt.smoothing.reporting.panel import Panel

HOSTILE = "</script><img src=x onerror=alert(1)>"


def unpacked(column):
    """A column as the page's script reads it."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(column["bytes"])), np.uint8).reshape(8, -1)
    folded = np.ascontiguousarray(planes.T).view("<u8").ravel().astype(np.int64)
    steps = np.where(folded % 2, -(folded + 1) // 2, folded // 2)
    return float(column["start"]) + float(column["unit"]) * np.cumsum(steps)


def test_columns_are_exact_where_they_have_few_decimals_and_else_to_a_part_of_their_range():
    draw = np.random.default_rng(0)
    cents = np.append(np.round(draw.normal(100, 20, 500), 2), [-999.0, 1e6])
    np.testing.assert_allclose(unpacked(pack(cents)), cents, atol=1e-9)
    free = draw.normal(size=500)
    np.testing.assert_allclose(unpacked(pack(free)), free, atol=np.ptp(free) / 65_000)
    uneven = 1.7e9 + np.cumsum(draw.integers(1, 10**7, 500)) / 1e3
    np.testing.assert_allclose(unpacked(pack_times(uneven)), uneven, rtol=0, atol=1e-5)


def test_missing_values_are_a_column_of_their_own():
    column = pack(np.array([np.nan, 1.0, np.nan, 2.0]))
    assert unpacked({**column, "start": "0", "unit": "1", "bytes": column["empty"]}).tolist() == [1, 0, 1, 0]
    np.testing.assert_allclose(unpacked(column)[[1, 3]], [1, 2])


def long_panel(points):
    draw, times = np.random.default_rng(0), np.datetime64("2024-01-01", "us") + np.arange(points) * np.timedelta64(60, "s")
    truth = np.sin(np.arange(points) / points * 40) * 10
    curve = Curve(truth, truth - 0.3, truth + 0.3, None, (), "", {"noise": 1.0}, outliers=draw.random(points) < 1e-3)
    return Panel("load", times, (truth + draw.normal(size=points)).round(2), curve)


def test_a_page_of_a_hundred_thousand_points_is_small(tmp_path):
    write_page(tmp_path / "a.html", [long_panel(100_000)], x="when", title="a")
    assert (tmp_path / "a.html").stat().st_size < 1_000_000


def test_another_ending_and_too_many_series_are_refused(tmp_path):
    from overt.smoothing.reporting.page import check_page

    with pytest.raises(InputError, match=r"end the name in \.html"):
        check_page(tmp_path / "a.txt")
    with pytest.raises(InputError, match="at most 12 series in a picture, got 13"):
        check_page(tmp_path / "a.html", 13)


def test_the_report_is_on_the_page_without_scripts_in_the_words_of_the_command(tmp_path):
    result = analyze(np.where(np.arange(60) == 30, 99.0, np.random.default_rng(0).normal(size=60)))
    panel = Panel(HOSTILE, np.arange(60.0), result.observed, extract_curve(result))
    write_page(
        tmp_path / "a.html", [panel], x="", title=HOSTILE, wording=lambda text: text.replace("robust=False", "--no-robust")
    )
    page = (tmp_path / "a.html").read_text()
    assert "<dt>Outliers</dt><dd>1 isolated outlier was removed (--no-robust keeps all values). It is at row 31.</dd>" in page
    assert HOSTILE not in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


@pytest.mark.few_cases(1)
def test_a_browser_reads_zooms_and_saves_it(chromium, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    days = np.delete(np.datetime64("2024-01-01") + np.arange(150), slice(90, 105))
    rows = [
        f"{day},{name},{value:.2f}"
        for name in ("Ulm", HOSTILE)
        for day, value in zip(days, draw.normal(10, 1, 135), strict=True)
    ]
    rows[40] = f"{days[40]},Ulm,-999"
    (tmp_path / "a.csv").write_text("\n".join(["day,city,x", *rows]) + "\n")
    command = ["smooth", "a.csv", "-c", "x", "--time", "day", "--group", "city", "--html", "a.html"]
    assert CliRunner().invoke(app, command).exit_code == 0
    for width, dark in ((400, True), (1400, False)):
        page = chromium.page()
        page.open(tmp_path / "a.html", width=width, height=900, dark=dark)
        page.until("document.querySelector('tbody tr') !== null")
        assert page.ask("document.querySelectorAll('tbody tr')[0].textContent").startswith("2024-02-10outlier1−999")
        assert "from 2024-01-01 to 2024-05-29, one per day. 15 absent days" in page.ask(
            "document.querySelector('.report').textContent"
        )
        point = "new MouseEvent('mousemove', {bubbles: true, clientX: box.left + box.width * 0.27, clientY: box.top + 50})"
        page.ask(
            f"{{ const over = document.querySelector('.u-over'), box = over.getBoundingClientRect(); over.dispatchEvent({point}); 1 }}"
        )
        page.until(
            "/2024-0\\d-\\d\\d value .* curve .*95% band .* (usual|unusual|outlier)/.test(document.querySelector('.readout').textContent)"
        )
        assert page.ask("document.documentElement.scrollWidth") <= width
        page.ask(
            "document.querySelector('select').selectedIndex = 1, document.querySelector('select').dispatchEvent(new Event('change')), 1"
        )
        page.until(f"document.querySelector('.report h2').textContent === {HOSTILE!r}")
        assert page.complaints == []
        assert all(address.startswith(("file:", "blob:", "data:")) for address in page.requests)


@pytest.mark.few_cases(1)
def test_a_browser_lists_stuck_values_and_changes_and_zooms_to_them(chromium, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hours = np.datetime64("2024-03-01T00") + np.arange(300)
    values = 20 + np.random.default_rng(0).normal(size=300) + 9 * (np.arange(300) >= 200)
    values[100:118] = 19.5
    rows = [f"{hour},{value:.2f}" for hour, value in zip(hours, values, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["hour,x", *rows]) + "\n")
    command = ["smooth", "a.csv", "-c", "x", "--time", "hour", "--changes", "--html", "a.html"]
    assert CliRunner().invoke(app, command).exit_code == 0
    page = chromium.page()
    page.open(tmp_path / "a.html", width=400, height=900)
    page.until("document.querySelectorAll('.anomalies h2').length === 3")
    texts = page.ask(
        "[...document.querySelectorAll('.anomalies h2, .anomalies tbody tr')].map((part) => part.textContent).join('|')"
    )
    assert "Stuck values|2024-03-05 04:00 to 2024-03-05 21:001819.5|Changes|2024-03-09 08:00" in texts
    assert re.search(r"2024-03-09 08:002024-03-09 0\d:00( to 2024-03-09 \d\d:00)?level[89]\.\d+1\.00$", texts)
    dates = (
        "[...document.querySelectorAll('.anomalies button')].find((one) => one.textContent.startsWith('2024-03-05')).click(), 1"
    )
    assert page.ask(dates) == 1
    assert page.ask("document.documentElement.scrollWidth") <= 400
    assert page.complaints == []
