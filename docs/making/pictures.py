"""What the site's pages draw and read: the package's pictures, measured results, and recordings whose pages are part of the site.

`result` reads a measured result from docs/results, `recorded` puts a recording's page beside the site's.
"""

import html
import json
from pathlib import Path
from typing import Any

from overt.drawing.pictures import (
    BLUE,
    COLOURS,
    FIRE,
    GOLD,
    GREEN,
    GREY,
    INK,
    PAPER,
    PURPLE,
    ROSE,
    arcs,
    draw,
    heatmap,
    heats,
    picture,
    say,
    sheet,
    table,
)  # fmt: skip
from overt.files import whole

__all__ = [
    "BLUE", "COLOURS", "FIRE", "GOLD", "GREEN", "GREY", "INK", "PAPER", "PURPLE", "ROSE", "arcs", "draw", "heatmap", "heats",
    "ladder", "live", "live_translator", "picture", "recorded", "result", "say", "sheet", "table",
]  # fmt: skip

DOCS = Path(__file__).parents[1]
RECORDINGS = DOCS.parent / "build" / "recordings"


def result(name: str) -> Any:
    """A measured result: the data of results/NAME.json, with the command that made it."""
    return json.loads((DOCS / "results" / f"{name}.json").read_text(encoding="utf-8"))


def recorded(page: str, name: str, title: str, *, up: str = "", height: int = 0) -> str:
    """Keep a recording's page for the site, and say the HTML that links to it, or with a `height` shows it; `up` leads to the site."""
    RECORDINGS.mkdir(parents=True, exist_ok=True)
    with whole(RECORDINGS / f"{name}.html") as temporary:
        temporary.write_text(page, encoding="utf-8")
    src = f"{up}{RECORDINGS.name}/{name}.html"
    link = f'<p><a href="{src}" target="_blank">{html.escape(title)}</a></p>'
    frame = f'<iframe src="{src}" title="{html.escape(title)}" loading="lazy" style="width: 100%; height: {height}px; border: 0"></iframe>'
    return frame + link if height else link


def live(sentence: str, word: str, name: str, title: str) -> str:
    """Keep a page in which all-MiniLM-L6-v2 runs for the site, its weights beside it, and say the HTML that links to it."""
    from overt.explain import text_model
    from overt.explain.recipes.qkv import qkv
    from overt.play.encoders import BertEncoder
    from overt.play.page import write

    RECORDINGS.mkdir(parents=True, exist_ok=True)
    model = text_model.find()
    write(qkv(model, sentence, word), BertEncoder(model.folder), RECORDINGS / f"{name}.html", small=True, beside=True)
    return f'<p><a href="{RECORDINGS.name}/{name}.html" target="_blank">{html.escape(title)}</a></p>'


def live_translator(sentence: str, name: str, title: str) -> str:
    """Keep a page in which the translator runs for the site, its weights beside it, and say the HTML that links to it."""
    from overt.cli.shared.translator_as_text_model import explained
    from overt.learn.translator import Translator, bundled_folder
    from overt.play.page import write
    from overt.play.translators import PageTranslator

    RECORDINGS.mkdir(parents=True, exist_ok=True)
    translator = Translator.bundled()
    [translation] = translator.translate([sentence], beam=1)
    explanation = explained(translator, sentence, translation, None)
    write(explanation, PageTranslator.with_lesson(bundled_folder()), RECORDINGS / f"{name}.html", small=True, beside=True)
    return f'<p><a href="{RECORDINGS.name}/{name}.html" target="_blank">{html.escape(title)}</a></p>'


def ladder(part: str) -> dict[str, dict[str, Any]]:
    """The run of each recipe that is shown, by its model: of all its seeds the one of highest BLEU on validation data."""
    shown: dict[str, dict[str, Any]] = {}
    for run in result("ladder")["runs"]:
        best = shown.get(run["model"])
        if run["part"] == part and (best is None or run["validation"] > best["validation"]):
            shown[run["model"]] = run
    return shown
