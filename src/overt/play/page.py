"""The live page: the viewer, with a sentence that a model reads in the browser, and the model, in one file."""

import gzip
import json
import os
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from overt.drawing.html import bundle, escape_text, read, script_json
from overt.explain import html
from overt.explain.explanation import Explanation
from overt.files import whole
from overt.lens.viewer.story import Live
from overt.play import lessons
from overt.play.encoders import BertEncoder
from overt.play.translators import PageTranslator

LIMIT = 400 * 10**6  # LIMIT, bytes: browsers can open files of this size, if slowly
COMPONENT = "overt-attention.js"  # the element <overt-attention>, which shows pages in frames
_AS_STORED = "The page's weights have 8 bits, as the model's file has them."
_NOTES = (
    "Weights show what this head attended to, not why, and not what the model concluded.",
    "What a head does is judged on this text alone.",
)


@dataclass(frozen=True)
class LivePage:
    """The written page: the file's bytes, and the effect of rounded weights."""

    size: int
    rounding: str


def write(
    explanation: Explanation,
    model: BertEncoder | PageTranslator,
    path: str | os.PathLike[str],
    *,
    small: bool = False,
    beside: bool = False,
    one_head: bool = False,
) -> LivePage:
    """Write the page of an explanation, with its model and the weights.

    Weights have 16 bits, or 8 if `small` or if the model's own file has no more.
    For a website the page loads the model from its folder: NAME-core.txt, NAME-weights-0.txt and so on, with the script
    COMPONENT. With `one_head` the page contains only the explained head until the model is loaded: at most 400 KB for a sentence.
    """
    weights = model.weights(small or model.in_int8)
    rounding = _AS_STORED if model.in_int8 else model.rounding(small).sentence(8 if small else 16)
    text = explanation.text if explanation.other is None else explanation.other
    description = {"text": text, "label": model.label, "blocks": len(weights.blocks), "notes": [rounding, *_NOTES]}
    parts = _parts(bundle(model.worker), weights.header() | model.description(), weights.blocks)
    elements = _separate_files(Path(path), parts) if beside else [_element(name, letters) for name, letters in parts]
    live = Live(
        boot=model.boot,
        styles=(*lessons.STYLES, *model.styles),
        behind="\n".join(
            (
                f'<script type="application/json" id="live">{script_json(description | model.facts())}</script>',
                lessons.layers_element(),
                *elements,
            )
        ),
        script_sources=("'wasm-unsafe-eval'",),
        connections=("'self'",) if beside else (),
    )
    html.write([explanation], path, limit=LIMIT, live=live, one_head=one_head)
    return LivePage(os.path.getsize(path), rounding)


def _parts(worker: str, model: dict[str, Any], blocks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """The worker, the core, the worker's options, and the weights, each with its name."""
    core = files("overt").joinpath("play/core.wasm").read_bytes()
    for name, data in ("worker", worker.encode()), ("core", core), ("model", json.dumps(model).encode()):
        yield name, b64encode(gzip.compress(data, mtime=0)).decode()
    for number, block in enumerate(blocks):
        yield f"weights-{number}", b64encode(block).decode()


def _separate_files(page: Path, parts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Write the component and each part into the page's folder; returns the elements that name the parts."""
    _write_text(page.with_name(COMPONENT), read("lens/viewer/web/embed/component.js"))
    for part, letters in parts:
        name = f"{page.stem}-{part}.txt"
        _write_text(page.with_name(name), letters)
        yield _element(part, "", f' data-file="{escape_text(name)}"')


def _write_text(path: Path, text: str) -> None:
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _element(name: str, letters: str, attributes: str = "") -> str:
    return f'<script type="application/octet-stream" id="{name}"{attributes}>{letters}</script>'
