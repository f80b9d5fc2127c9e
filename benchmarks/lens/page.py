"""The page of one head over 32,768 tokens in a real browser: its size, the first picture, frames a second while it moves.

    python -m benchmarks.lens.page [--length 32768] [--runs 3] [--out docs/results/page.json]

A recording of random queries, keys and values (64 wide, causal) is made into a page and opened in headless Chromium at 1280 × 800. Each
frame gets one event, a turn of the wheel or a move of a dragging pointer; a run is 120 frames. MiniLM's pages, all 72 heads of 128 and
of 512 tokens, are made and timed before. Nothing else should run meanwhile.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import overt
from benchmarks import results
from overt.explain import text_model
from overt.explain.recipes.qkv import read
from overt.lens import record

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
import browser

LIVE = "document.documentElement.className === 'live' && document.querySelector('.six tbody tr') !== null"
MAP = "document.querySelector('.over')?.dataset.drawn !== undefined"
MOVING = """new Promise((done) => {
  const over = document.querySelector(".over"), box = over.getBoundingClientRect(), frames = 120;
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  const place = (i) => ({ clientX: x + 60 * Math.sin(i / 6), clientY: y + 60 * Math.cos(i / 5), bubbles: true });
  const events = {
    wheel: (i) => new WheelEvent("wheel", { ...place(0), deltaY: i < frames / 2 ? -60 : 60, cancelable: true }),
    drag: (i) => new PointerEvent(["pointerdown", "pointermove", "pointerup"][(i > 0) + (i === frames - 1)], { ...place(i), pointerId: 1 }),
  };
  const start = performance.now();
  let i = 0;
  const frame = () => {
    over.dispatchEvent(events.HOW(i));
    if (++i < frames) requestAnimationFrame(frame);
    else done((1000 * (frames - 1)) / (performance.now() - start));
  };
  requestAnimationFrame(frame);
})"""


class Attends(nn.Module):
    """One head, causal."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention and nothing else."""
        return overt.attend(query, key, value, mask=overt.Causal())


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--length", type=int, default=32_768)
    options.add_argument("--runs", type=int, default=3)
    results.takes_out(options)
    arguments = options.parse_args()
    if browser.find() is None:
        sys.exit(browser.MISSING)
    pages = [made(f"MiniLM, 72 heads, {length} tokens", minilm(length)) for length in (128, 512)]
    pages.append(made(f"one head, {arguments.length:,} tokens", one_head(arguments.length)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(pages[-1].html, encoding="utf-8")
        first, moved = look(path, arguments.runs)
    made_of = {page.notes: {"bytes": len(page.html.encode()), "seconds": page.seconds} for page in pages}
    measured = {"pages": made_of, "first_picture": first, "frames_a_second": moved}
    results.write(arguments.out, threads=torch.get_num_threads(), runs=arguments.runs, **measured)


def minilm(length: int):
    """MiniLM over the first tokens of an endless text."""
    model = text_model.find()
    sentence = "The animal didn't cross the street because it was too tired. "
    count = next(n for n in range(1, 100) if len(model.encode(sentence * n, True).ids) >= length)
    return read(model, sentence * count, truncate=True).recording


def one_head(length: int):
    """A recording of one head."""
    torch.manual_seed(0)
    model = Attends()
    with torch.no_grad(), record(model) as recording:
        model(*torch.randn(3, 1, 1, length, 64))
    return recording


class Page(NamedTuple):
    """A page: of what, how long it took to make, and itself."""

    notes: str
    seconds: float
    html: str


def made(notes: str, recording) -> Page:
    """The page of a recording."""
    start = time.perf_counter()
    html = recording.page()
    page = Page(notes, time.perf_counter() - start, html)
    print(f"{notes}: {len(html.encode()) / 1e6:.2f} MB, made in {page.seconds:.2f} s")
    return page


def look(path: Path, runs: int) -> tuple[float, dict[str, float]]:
    """Open the page and move in it: seconds to the first picture, and frames a second of each way to move, medians."""
    first: list[float] = []
    moved: dict[str, list[float]] = {"wheel": [], "drag far out": [], "drag half way": [], "drag among cells": []}
    for _ in range(runs):
        running = browser.Browser()
        try:
            page = running.page().open(path)
            page.until(LIVE, 60)
            first.append(page.ask("performance.now()") / 1000)
            page.ask("void document.getElementById('tab-map').click()")
            page.until(MAP, 60)
            time.sleep(1)
            moved["wheel"].append(frames(page, "wheel"))
            for name, nearer in (("drag far out", 1), ("drag half way", 8), ("drag among cells", 12)):
                for _ in range(nearer):
                    page.ask("void document.querySelector('[aria-label=\"zoom in\"]').click()")
                time.sleep(0.5)
                moved[name].append(frames(page, "drag"))
        finally:
            running.close()
    print(f"first picture after {statistics.median(first):.2f} s")
    for name, result in moved.items():
        print(f"{name:20}{statistics.median(result):.0f} frames a second (least {min(result):.0f})")
    return statistics.median(first), {name: statistics.median(result) for name, result in moved.items()}


def frames(page, how: str) -> float:
    """Frames a second over 120 frames."""
    requested = {"expression": MOVING.replace("HOW", how), "returnByValue": True, "awaitPromise": True}
    return page.call("Runtime.evaluate", **requested)["result"]["value"]


if __name__ == "__main__":
    main()
