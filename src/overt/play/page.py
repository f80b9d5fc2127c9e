"""The live page: the viewer with a sentence that a model reads in the browser, and that model beside it, in one file."""

import gzip
import json
import os
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from overt.drawing.html import bundle, script_json
from overt.explain import html
from overt.explain.explanation import Explanation
from overt.lens.viewer.story import Live
from overt.play.encoders import BertEncoder

LIMIT = 400 * 10**6  # bytes: browsers open files of this size, if slowly
_WEB = "play/web"
_LABEL = "Change the sentence: the model reads it here, in your browser"
_NOTES = (
    "Weights show what this head attended to, not why, and not what the model concluded.",
    "What a head does is judged on this text alone, and without its repetitions.",
)


@dataclass(frozen=True)
class LivePage:
    """What was written: the file's bytes, and what rounding the weights does."""

    size: int
    rounding: str


def write(explanation: Explanation, encoder: BertEncoder, path: str | os.PathLike[str], *, small: bool = False) -> LivePage:
    """Write the page of an explanation, and the encoder that made it with its weights, of 8 bits where `small`, else of 16."""
    weights = encoder.weights(small)
    rounding = encoder.rounding(small).sentence(8 if small else 16)
    description = {"text": explanation.text, "label": _LABEL, "blocks": len(weights.blocks), "notes": [rounding, *_NOTES]}
    live = Live(
        boot=f"{_WEB}/boot.js",
        styles=(f"{_WEB}/play.css",),
        constants={"WORKER_TEXT": bundle(f"{_WEB}/worker/service.js")},
        behind="\n".join(_elements(description, weights.header() | encoder.description(), weights.blocks)),
        script_sources=("'wasm-unsafe-eval'",),
    )
    html.write([explanation], path, limit=LIMIT, live=live)
    return LivePage(os.path.getsize(path), rounding)


def _elements(description: dict[str, Any], model: dict[str, Any], blocks: list[bytes]) -> Iterator[str]:
    """What the page says of the model, the compiled core, what the worker needs to know of the model, and its weights."""
    yield f'<script type="application/json" id="live">{script_json(description)}</script>'
    yield _element("core", gzip.compress(files("overt").joinpath("play/core.wasm").read_bytes(), mtime=0))
    yield _element("model", gzip.compress(json.dumps(model).encode(), mtime=0))
    for number, block in enumerate(blocks):
        yield _element(f"weights-{number}", block)


def _element(name: str, data: bytes) -> str:
    return f'<script type="application/octet-stream" id="{name}">{b64encode(data).decode()}</script>'
