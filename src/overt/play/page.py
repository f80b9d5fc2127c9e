"""The live page: the viewer with a sentence that a model reads in the browser, and that model beside it, in one file."""

import gzip
import json
import os
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from overt.drawing.html import bundle, escape_text, script_json
from overt.explain import html
from overt.explain.explanation import Explanation
from overt.files import whole
from overt.lens.viewer.story import Live
from overt.play import lessons
from overt.play.encoders import BertEncoder
from overt.play.translators import PageTranslator

LIMIT = 400 * 10**6  # bytes: browsers open files of this size, if slowly
_AS_STORED = "The page's weights have 8 bits, as the model's file has them."
_NOTES = (
    "Weights show what this head attended to, not why, and not what the model concluded.",
    "What a head does is judged on this text alone.",
)


@dataclass(frozen=True)
class LivePage:
    """What was written: the file's bytes, and what rounding the weights does."""

    size: int
    rounding: str


def write(
    explanation: Explanation,
    model: BertEncoder | PageTranslator,
    path: str | os.PathLike[str],
    *,
    small: bool = False,
    beside: bool = False,
) -> LivePage:
    """Write the page of an explanation, and the model that made it with its weights.

    They have 16 bits, or 8 where `small`, and where the model's own file has no more.
    For a site the weights stand `beside` the page, in files that it fetches: NAME-weights-0.txt and so on.
    """
    weights = model.weights(small or model.in_int8)
    rounding = _AS_STORED if model.in_int8 else model.rounding(small).sentence(8 if small else 16)
    text = explanation.text if explanation.other is None else explanation.other
    description = {"text": text, "label": model.label, "blocks": len(weights.blocks), "notes": [rounding, *_NOTES]}
    blocks = [b64encode(block).decode() for block in weights.blocks]
    elements = (
        _files_beside(Path(path), blocks) if beside else [_element(f"weights-{n}", block) for n, block in enumerate(blocks)]
    )
    live = Live(
        boot=model.boot,
        styles=(*lessons.STYLES, *model.styles),
        behind="\n".join(
            _elements(bundle(model.worker), description | model.facts(), weights.header() | model.description(), elements)
        ),
        script_sources=("'wasm-unsafe-eval'",),
        connections=("'self'",) if beside else (),
    )
    html.write([explanation], path, limit=LIMIT, live=live)
    return LivePage(os.path.getsize(path), rounding)


def _elements(worker: str, description: dict[str, Any], model: dict[str, Any], weights: list[str]) -> Iterator[str]:
    """What the page says of the model, the lessons' layers, the worker, the core, what the worker needs to know, and the weights."""
    yield f'<script type="application/json" id="live">{script_json(description)}</script>'
    yield lessons.layers_element()
    core = files("overt").joinpath("play/core.wasm").read_bytes()
    for name, data in ("worker", worker.encode()), ("core", core), ("model", json.dumps(model).encode()):
        yield _element(name, b64encode(gzip.compress(data, mtime=0)).decode())
    yield from weights


def _files_beside(page: Path, blocks: list[str]) -> list[str]:
    """Write each block beside the page; the elements that name them."""
    names = [f"{page.stem}-weights-{number}.txt" for number in range(len(blocks))]
    for name, block in zip(names, blocks, strict=True):
        with whole(page.with_name(name)) as temporary:
            temporary.write_text(block, encoding="ascii")
    return [_element(f"weights-{number}", "", f' data-file="{escape_text(name)}"') for number, name in enumerate(names)]


def _element(name: str, letters: str, attributes: str = "") -> str:
    return f'<script type="application/octet-stream" id="{name}"{attributes}>{letters}</script>'
