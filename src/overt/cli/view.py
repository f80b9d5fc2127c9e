"""`overt view`: a saved recording as a page that works offline."""

import os
import re
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from overt.cli.shared.console import busy, report_console, require_torch, say
from overt.errors import InputError
from overt.files import separate, whole

_LARGEST = 1e12  # MB: more than any page, but still a valid number of bytes


def view(
    recording: Annotated[Path, typer.Argument(help="A recording, as recording.save wrote it.")],
    out: Annotated[
        Path | None, typer.Option(help="The page to write. (default: the recording's name, ending in .html)")
    ] = None,
    heads: Annotated[
        str | None, typer.Option(help='"top 16", the sharpest, or layers and heads, 5.11,0.3. (default: all)')
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's title. (default: the text, or the model's class)")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Maps and statistics only: a smaller page.")] = False,
    limit: Annotated[float, typer.Option(help="The largest page, in MB.")] = 24.0,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """View a recording: every head from the whole map to single weights, with the text and the steps, in one HTML file."""
    require_torch("overt view")
    from overt.lens import load
    from overt.lens.viewer.select_heads import PageTooLarge

    requested = _requested_heads(heads)
    if not limit > 0:
        raise InputError("a limit above 0 MB", got=f"--limit {limit:g}", fix="leave it out for 24")
    target = out or recording.with_suffix(".html")
    separate({"--out": target}, {"RECORDING": recording})
    with busy("reading the recording …"):
        loaded = load(recording)
    with busy("writing …"), whole(target) as temporary:
        try:
            loaded.page(temporary, heads=requested, title=title, exact=not summary, limit=int(min(limit, _LARGEST) * 10**6))
        except PageTooLarge as error:
            raise error.in_command() from error
        size = f"{temporary.stat().st_size / 10**6:.1f} MB"
    say(report_console(target), f"→ {os.fspath(target)}, {size}")
    if open_page:
        webbrowser.open(target.resolve().as_uri())


def _requested_heads(heads: str | None) -> str | list[tuple[int | str, int]] | None:
    """The heads that --heads names: "top 16" unchanged, "5.11,0.3" as layers and heads."""
    if heads is None or heads.strip().startswith("top"):
        return heads
    parts = [part.strip() for part in heads.split(",")]
    if not all(re.fullmatch(r"\d{1,6}\.\d{1,6}", part) for part in parts):
        raise InputError(
            '"top 16", or layers and heads separated by commas, as --heads', got=heads, fix="write --heads 5.11,0.3"
        )
    return [(int(layer), int(head)) for layer, head in (part.split(".") for part in parts)]
