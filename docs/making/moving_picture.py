"""The README's moving picture: live pages in a real browser, while a sentence is changed and arcs are cut by real clicks.

python docs/making/moving_picture.py        # writes docs/play.gif; needs Chromium, and what `overt play` needs
"""

import json
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from overt.files import whole

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "helpers"))
WIDTH, HEIGHT, COLOURS = 900, 620, 96
READ = "Number(document.getElementById('viewer')?.dataset.read ?? 0)"
ARC, UNDO, EVERYWHERE = ".texts .hit:last-of-type", "[data-does=undo]", "[data-does=all]"
CHANGE, SKIP, WHY, EXAMPLE = ".change", ".player .linklike", ".caption .linklike", ".examples button"
# Where an element is clicked: an arc in its middle, others in their centre.
CENTRE = """((node) => {
  if (node.getPointAtLength) {
    const { x, y } = node.getPointAtLength(node.getTotalLength() / 2).matrixTransform(node.getScreenCTM());
    return [x, y];
  }
  const { left, top, width, height } = node.getBoundingClientRect();
  return [left + width / 2, top + height / 2];
})"""
# A line of text below the page, and a ring around the place that is clicked.
CAPTION = """((text, x, y) => {
  document.querySelectorAll('.filmed').forEach((node) => node.remove());
  const add = (style) => {
    const node = document.createElement('div');
    node.className = 'filmed';
    Object.assign(node.style, { position: 'fixed', zIndex: 9, pointerEvents: 'none', ...style });
    document.body.append(node);
    return node;
  };
  const colours = { background: '#1d2733', color: '#fff' };
  add({ left: 0, right: 0, bottom: 0, padding: '13px 28px', font: '600 19px/1.4 sans-serif', ...colours }).textContent = text;
  if (x === null) return;
  const ring = { border: '3px solid #d55e00', borderRadius: '50%', background: '#d55e0033' };
  add({ left: `${x - 19}px`, top: `${y - 19}px`, width: '32px', height: '32px', ...ring });
})"""


@dataclass
class Film:
    """A page, and the pictures (PNG, milliseconds) that were taken of it."""

    live: Any
    pictures: list[tuple[bytes, int]] = field(default_factory=list)

    def open(self, page: Path) -> None:
        """Open a page and wait until its model has read the first sentence."""
        self.live.open(page, width=WIDTH, height=HEIGHT, calm=True)
        self.live.until(f"{READ} > 0", seconds=60)

    def picture(self, text: str, milliseconds: int, position: tuple[float, float] | None = None) -> None:
        """Take a picture with a line of text, and with a ring around a place."""
        time.sleep(0.6)
        self.live.ask(
            f"void {CAPTION}({json.dumps(text)}, {json.dumps(position and position[0])}, {json.dumps(position and position[1])})"
        )
        self.pictures.append((b64decode(self.live.call("Page.captureScreenshot", format="png")["data"]), milliseconds))

    def click(self, selector: str, text: str = "", until: str = "true") -> None:
        """Show where the first element of this selector is, if there is a text, click it there, and wait."""
        time.sleep(0.6)
        x, y = self.live.ask(f"{CENTRE}(document.querySelector({json.dumps(selector)}))")
        if text:
            self.picture(text, 1500, (x, y))
        for kind in ("mousePressed", "mouseReleased"):
            self.live.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.live.until(until, seconds=30)


def encoder(film: Film) -> None:
    """A word is changed, an arc is cut and restored, and a score says why."""
    film.click(SKIP)
    film.picture("Which word does “it” stand for? This head points at “animal”.", 3200)
    film.click(CHANGE, "Change the sentence: the model reads along.")
    select = "box.setSelectionRange(box.value.indexOf('tired'), box.value.indexOf('tired') + 5)"
    film.live.ask(f"(() => {{ const box = document.querySelector('textarea'); box.focus(); {select}; }})()")
    for letter in "wide":
        film.live.call("Input.insertText", text=letter)
        film.picture("Change the sentence: the model reads along.", 350)
    film.click(CHANGE)
    film.picture("Too wide is the street, but this head stays with “animal”.", 2600)
    film.click(ARC, "Click the arc: the model runs without that weight.", until="viewer.recording.cut !== null")
    film.picture("“it” attends to other words now, and its vector has turned.", 3000)
    film.click(UNDO, "Undo.", until="viewer.recording.cut === null")
    film.click(WHY, "Why this score?", until="document.querySelector('.why table') !== null")
    film.picture("What wrote the query and the key: words, positions, earlier layers.", 3000)


def translator(film: Film) -> None:
    """A written word loses what it read, and the translation changes."""
    film.click(EXAMPLE, "The page of a translator: choose a sentence.", until=f"{READ} > 1")
    film.picture("The French “La” reads “table”: a feminine noun.", 2600)
    film.click(ARC, "Cut that arc …", until="viewer.recording.cut !== null")
    film.click(EVERYWHERE, "… in all heads.", until=f"{READ} > 3")
    before, after = film.live.ask("viewer.recording.cut.texts")
    assert "elle" in before.split(), before
    assert "il" in after.split(), after
    film.picture("The translation changes: la → le, elle → il, belle → beau.", 5000)


def main() -> None:
    """Write the pages, film them, and join the pictures."""
    from PIL import Image

    from browser import Browser

    with tempfile.TemporaryDirectory() as folder:
        pages = [Path(folder) / name for name in ("play.html", "translator.html")]
        for page, arguments in zip(pages, (["--small"], ["translator"]), strict=True):
            subprocess.run([sys.executable, "-m", "overt", "play", *arguments, "--out", page], check=True)
        browser = Browser()
        film = Film(browser.page())
        try:
            for page, story in zip(pages, (encoder, translator), strict=True):
                film.open(page)
                story(film)
        finally:
            browser.close()
    images = [Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE) for png, _ in film.pictures]
    durations = [milliseconds for _, milliseconds in film.pictures]
    with whole(ROOT / "docs" / "play.gif") as temporary:
        images[0].save(
            temporary, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True
        )
    print("docs/play.gif")


if __name__ == "__main__":
    main()
