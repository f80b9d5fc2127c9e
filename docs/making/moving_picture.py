"""The README's moving picture: the live page in a real browser, while a sentence is changed in it.

python docs/making/moving_picture.py        # writes docs/play.gif; needs Chromium, and what `overt play` needs
"""

import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from io import BytesIO
from pathlib import Path

from overt.files import whole

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests"))
WIDTH, HEIGHT, COLOURS = 900, 620, 64
ENDING = "wide"


def frames(page: Path) -> list[tuple[bytes, int]]:
    """Pictures of the page as PNG, and for how many milliseconds each is shown."""
    from browser import Browser

    browser, pictures = Browser(), []
    try:
        live = browser.page().open(page, width=WIDTH, height=HEIGHT, calm=True)

        def picture(shown: int) -> None:
            pictures.append((b64decode(live.call("Page.captureScreenshot", format="png")["data"]), shown))

        def settled() -> None:
            time.sleep(0.8)

        live.until(
            "document.querySelector('textarea') !== null && document.querySelectorAll('[data-token]').length > 8", seconds=60
        )
        settled()
        picture(2200)
        select = "box.setSelectionRange(box.value.indexOf('tired'), box.value.indexOf('tired') + 5)"
        live.ask(f"(() => {{ const box = document.querySelector('textarea'); box.focus(); {select}; }})()")
        for letter in ENDING:
            live.call("Input.insertText", text=letter)
            settled()
            picture(350)
        picture(2200)
        for layer in (3, 5):
            buttons = (
                f"[...document.querySelectorAll('button')].filter((each) => /^L{layer}H[0-9]+$/.test(each.textContent.trim()))"
            )
            live.ask(f"{buttons}[0].click()")
            settled()
            picture(1500)
        live.ask("[...document.querySelectorAll('[role=tab]')].find((each) => each.textContent.trim() === 'Map').click()")
        settled()
        picture(2500)
    finally:
        browser.close()
    return pictures


def main() -> None:
    """Write the page, picture it, and join the pictures."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "play.html"
        subprocess.run([sys.executable, "-m", "overt", "play", "--small", "--out", page], check=True)
        pictures = frames(page)
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
