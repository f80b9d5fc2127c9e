"""What a benchmark measured, as a file that the pages read: docs/results has one for each page that states numbers."""

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from overt.bench.compact_json import compact_json
from overt.bench.provenance import provenance
from overt.files import whole


def takes_out(options: argparse.ArgumentParser) -> None:
    """Add the option that names the file."""
    options.add_argument("--out", type=Path, help="write what is measured into this JSON file too")


def write(out: Path | None, **results: Any) -> None:
    """Write it whole, with the command, the commit, the date and the machine; nothing where no file is asked for."""
    if out is None:
        return
    content = {"command": command(sys.argv)} | provenance() | results
    with whole(out) as file:
        file.write_text(compact_json(content) + "\n", encoding="utf-8")


def command(arguments: list[str]) -> str:
    """How the benchmark was called, from the repository's root and without the files that it writes."""
    parts = Path(arguments[0]).with_suffix("").parts
    module = ".".join(parts[-1 - parts[::-1].index("benchmarks") :])
    called = " ".join(["python", "-m", module, shlex.join(arguments[1:])])
    return re.sub(r" --(out|log)[ =]\S+", "", called).rstrip()
