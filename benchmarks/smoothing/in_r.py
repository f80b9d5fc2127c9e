"""Smoothers of R, in one R process for each process of ours: a series goes in as a line of numbers, its curve comes back as one."""

import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

# One line in, one line out; an error in R comes back as a line that is no numbers.
LOOP = """
suppressMessages(library({package}))
input <- file("stdin", "r")
while (length(line <- readLines(input, n = 1)) > 0) {{
  x <- as.numeric(strsplit(line, " ")[[1]])
  t <- seq_along(x)
  y <- tryCatch({expression}, error = function(e) "failed")
  cat(format(y, digits = 17), "\\n"); flush(stdout())
}}
"""


def missing(package: str) -> str | None:
    """What to install, or None."""
    return None if _has(package) else f"needs R and its package {package}: apt install r-cran-{package}"


def r_curve(package: str, expression: str) -> Callable[[np.ndarray], np.ndarray]:
    """The curve that an R expression of x and t = 1 … n gives."""

    def curve(x: np.ndarray) -> np.ndarray:
        process = _process(package, expression)
        process.stdin.write(" ".join(repr(float(value)) for value in x) + "\n")
        process.stdin.flush()
        return np.array(process.stdout.readline().split(), dtype=np.float64)

    return curve


@cache
def _has(package: str) -> bool:
    if shutil.which("Rscript") is None:
        return False
    return subprocess.run(["Rscript", "-e", f"library({package})"], capture_output=True, check=False).returncode == 0


@cache
def _process(package: str, expression: str) -> Any:
    code = LOOP.format(package=package, expression=expression)
    return subprocess.Popen(
        ["Rscript", "-e", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
