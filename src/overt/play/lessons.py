"""Additional content of lessons in a live page: their style, and the small trained layers of the first lesson."""

import json
from importlib.resources import files

from overt.drawing.html import script_json

STYLES = ("play/web/play.css", "play/web/lessons/lessons.css")


def layers_element() -> str:
    """The layers from docs/making/lesson_layers.py, as an element of the page."""
    layers = json.loads(files("overt").joinpath("play/hidden_states.json").read_text(encoding="utf-8"))
    return f'<script type="application/json" id="hidden-states">{script_json(layers)}</script>'
