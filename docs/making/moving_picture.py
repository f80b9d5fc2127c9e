"""The README's moving picture: live pages in a real browser, while a sentence is changed and arcs are cut.

python docs/making/moving_picture.py        # writes docs/play.gif; needs Chromium, and what `overt play` needs
"""

import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

from overt.files import whole

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "helpers"))
WIDTH, HEIGHT, COLOURS = 900, 620, 64
ENDING = "wide"


Pictures = list[tuple[bytes, int]]  # PNGs, and for how many milliseconds each is shown
ARC = "document.querySelector('.texts .hit:last-of-type').dispatchEvent(new MouseEvent('click'))"


def opened(browser: Any, page: Path) -> Any:
    """The page, once its model has read the first sentence."""
    live = browser.page().open(page, width=WIDTH, height=HEIGHT, calm=True)
    live.until("Number(document.getElementById('viewer')?.dataset.read ?? 0) > 0", seconds=60)
    time.sleep(0.8)
    return live


def shown(live: Any, pictures: Pictures, change: str, milliseconds: int, until: str = "true") -> None:
    """Change the page, and picture it when that is true and it has settled."""
    live.ask(f"void ({change})")
    live.until(until, seconds=30)
    time.sleep(0.8)
    pictures.append((b64decode(live.call("Page.captureScreenshot", format="png")["data"]), milliseconds))


def encoder(browser: Any, page: Path, pictures: Pictures) -> None:
    """A word is changed, an arc is cut and healed, and a score says why."""
    live = opened(browser, page)
    shown(live, pictures, "0", 1800)
    live.ask("document.querySelector('.player .linklike').click()")
    live.ask("document.querySelector('.change').click()")
    select = "box.setSelectionRange(box.value.indexOf('tired'), box.value.indexOf('tired') + 5)"
    live.ask(f"(() => {{ const box = document.querySelector('textarea'); box.focus(); {select}; }})()")
    for letter in ENDING:
        live.call("Input.insertText", text=letter)
        shown(live, pictures, "0", 350)
    shown(live, pictures, "document.querySelector('.change').click()", 1800)
    shown(live, pictures, ARC, 2600, until="viewer.recording.cut !== null")
    live.ask("document.querySelector('[data-does=undo]').click()")
    live.until("viewer.recording.cut === null", seconds=30)
    time.sleep(0.8)
    shown(
        live,
        pictures,
        "document.querySelector('.caption .linklike').click()",
        2400,
        until="document.querySelector('.why table') !== null",
    )


def translator(browser: Any, page: Path, pictures: Pictures) -> None:
    """A word of a translation loses what it read."""
    live = opened(browser, page)
    example, read = "document.querySelector('.examples button').click()", "Number(viewer.dataset.read)"
    shown(live, pictures, example, 2400, until=f"{read} > 1")
    live.ask(ARC)
    live.until("viewer.recording.cut !== null", seconds=30)
    shown(live, pictures, "document.querySelector('[data-does=all]').click()", 3600, until=f"{read} > 3")


def main() -> None:
    """Write the page, picture it, and join the pictures."""
    from PIL import Image

    from browser import Browser

    with tempfile.TemporaryDirectory() as folder:
        pages = [Path(folder) / name for name in ("play.html", "translator.html")]
        for page, arguments in zip(pages, (["--small"], ["translator"]), strict=True):
            subprocess.run([sys.executable, "-m", "overt", "play", *arguments, "--out", page], check=True)
        browser, pictures = Browser(), []
        try:
            encoder(browser, pages[0], pictures)
            translator(browser, pages[1], pictures)
        finally:
            browser.close()
    images = [Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE) for png, _ in pictures]
    with whole(ROOT / "docs" / "play.gif") as temporary:
        images[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=images[1:],
            duration=[shown for _, shown in pictures],
            loop=0,
            optimize=True,
        )
    print("docs/play.gif")


if __name__ == "__main__":
    main()
