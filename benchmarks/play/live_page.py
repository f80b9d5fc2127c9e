"""The pages of `overt play` in a real browser: how soon they are there, how quickly their models run, and how near they come to Python's.

    python -m benchmarks.play.live_page [--part speed|agreement] [--runs 15] [--out docs/results/live-page.json]

Speed: the command's time and the file's size; in headless Chromium the first picture and the first answer of the page's own model; then
what the page says of sentences that are typed, medians of `--runs`: MiniLM at 16, 128 and 512 tokens, a written token of the translator.
Nothing else should run meanwhile. Agreement: attention weights of 200 sentences beside Python's, and whether both translate alike.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import results
from overt.explain import text_model
from overt.explain.recipes.qkv import read
from overt.learn.translator import Translator

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
import browser

PAGES = {"MiniLM": ["minilm"], "MiniLM, --small": ["minilm", "--small"], "translator": ["translator"]}
PICTURE = "document.documentElement.className === 'live' && document.querySelector('.six tbody tr') !== null"
READ = "Number(document.getElementById('viewer')?.dataset.read ?? 0)"
SAID = "viewer.recording.reading.join(' ')"
WEIGHTS = "viewer.recording.heads.map((head) => head.queries.map((_, i) => Array.from(head.weightsRow(i))))"
SUBJECTS = (
    "The old man",
    "My sister",
    "Nobody",
    "The black dog",
    "Our teacher",
    "A young woman",
    "Tom",
    "The child",
    "She",
    "He",
)
VERBS = ("sees", "wants", "has", "knows", "remembers")
OBJECTS = ("the book on the table", "a house by the sea", "this street", "the man who sold it, too")
WORDS = re.findall(r"\w+", "the old man and his dog went to the sea because they were so happy there")
SENTENCES = [f"{subject} {verb} {thing}." for subject, verb, thing in product(SUBJECTS, VERBS, OBJECTS)]  # 200


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=("speed", "agreement"), default="speed")
    options.add_argument("--runs", type=int, default=15)
    results.takes_out(options)
    arguments = options.parse_args()
    if browser.find() is None:
        sys.exit(browser.MISSING)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.part == "speed":
            measured = {name: speed(Path(folder) / f"{n}.html", name, arguments.runs) for n, name in enumerate(PAGES)}
            results.write(arguments.out, threads=1, runs=arguments.runs, pages=measured)
        else:
            results.write(arguments.out, sentences=len(SENTENCES), pages=agreement(Path(folder)))


def written(path: Path, name: str) -> dict[str, float]:
    """Write a page by the command."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "overt", "play", *PAGES[name], "--out", path], check=True, capture_output=True)
    return {"seconds": time.perf_counter() - start, "bytes": path.stat().st_size}


def speed(path: Path, name: str, runs: int) -> dict[str, Any]:
    """What a page costs to write, to open and to type on."""
    measured: dict[str, Any] = written(path, name)
    first, ready = [], []
    for _ in range(3):
        running = browser.Browser()
        try:
            page = running.page()
            start = time.perf_counter()
            page.open(path)
            page.until(PICTURE, 60)
            first.append(time.perf_counter() - start)
            page.until(f"{READ} > 0", 60)
            ready.append(time.perf_counter() - start)
            if len(first) == 3:
                measured |= typed(page, name, runs)
        finally:
            running.close()
    measured |= {"first_picture": statistics.median(first), "first_answer": statistics.median(ready)}
    print(name, {key: round(value, 3) if isinstance(value, float) else value for key, value in measured.items()})
    return measured


def typed(page: Any, name: str, runs: int) -> dict[str, float]:
    """Milliseconds that the page says of sentences that are typed."""
    if name == "translator":
        greedy = [number(put(page, sentence), r"([\d.]+) ms a token") for sentence in SENTENCES[:: len(SENTENCES) // runs]]
        page.ask("void viewer.store.set({ search: 'beam' })")
        time.sleep(1)
        beam = [number(put(page, sentence), r"([\d.]+) ms a token") for sentence in SENTENCES[1 :: len(SENTENCES) // runs]]
        return {"token": statistics.median(greedy), "token_of_a_beam_of_5": statistics.median(beam)}
    measured = {}
    for tokens in (16, 128, 512):
        # One word of one piece for each token between the two marks; the last one changes, so that it is another sentence.
        body = (WORDS * tokens)[: tokens - 3]
        said = [put(page, " ".join([*body, WORDS[n % len(WORDS)]])) for n in range(runs)]
        assert all(each.startswith(f"{tokens} tokens") for each in said), said
        measured[f"model_{tokens}"] = statistics.median(number(each, r"([\d.\u202f]+) ms in the model") for each in said)
        measured[f"picture_{tokens}"] = statistics.median(number(each, r"([\d.\u202f]+) ms with the picture") for each in said)
    return measured


def put(page: Any, text: str) -> str:
    """Type a text; what the page then says of it."""
    before = page.ask(READ)
    page.ask(
        "void (() => { const field = document.getElementById('sentence');"
        f"field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input')); }})()"
    )
    page.until(f"{READ} > {before}", 60)
    return page.ask(SAID)


def number(said: str, pattern: str) -> float:
    """A number in what the page says."""
    match = re.search(pattern, said)
    assert match, said
    return float(match[1].replace("\u202f", ""))


def agreement(folder: Path) -> dict[str, Any]:
    """How far each page's weights are from Python's in any head, row and key, and how many heads keep their strongest link."""
    torch.set_grad_enabled(False)
    measured = {}
    for number_of, name in enumerate(PAGES):
        path = folder / f"{number_of}.html"
        written(path, name)
        running = browser.Browser()
        try:
            page = running.page().open(path)
            page.until(f"{READ} > 0", 60)
            measured[name] = compared(page, name)
        finally:
            running.close()
        print(name, measured[name])
    return measured


def compared(page: Any, name: str) -> dict[str, float]:
    """A page beside Python."""
    model: Any = Translator.bundled() if name == "translator" else text_model.find()
    largest, same, alike = 0.0, [], []
    for sentence in SENTENCES:
        put(page, sentence)
        weights = np.array(page.ask(WEIGHTS))
        if name == "translator":
            [translation] = model.translate([sentence], beam=1)
            alike.append(page.ask("document.querySelector('.typing .translation').textContent") == translation.text)
            if not alike[-1]:
                continue
            layers = model.model.weights(*model.teacher_forced(sentence, translation))["cross"]
            expected = torch.cat([each[0] for each in layers]).numpy()
        else:
            heads = [head for layer in read(model, sentence).layers for head in layer]
            expected = np.array([head.weights()[0].numpy() for head in heads])
        largest = max(largest, float(np.abs(weights - expected).max()))
        same += (weights.reshape(len(weights), -1).argmax(-1) == expected.reshape(len(weights), -1).argmax(-1)).tolist()
    measured = {"largest": largest, "same_strongest_link": float(np.mean(same))}
    return measured | ({"same_translation": float(np.mean(alike))} if alike else {})


if __name__ == "__main__":
    main()
