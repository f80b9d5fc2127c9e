"""How busy more threads than a machine has would be: the kernels' own division of work, its items timed one by one.

    python -m benchmarks.kernels.scheduling [--threads 8 16 24] [--out docs/results/scheduling.json]

The kernels are compiled with `native/check/item_times.hpp`: one thread runs every item of work and times it, and the items are given in
their order to whichever of the threads would be free first, as OpenMP's dynamic schedule does. Busy is the time of the work over the time
of all threads; what is done outside of shared items counts as done by one thread while the others wait. Neither the start of threads
nor memory that they would share is in it. The processor's widest level is compiled.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import results
from overt import native

NATIVE = Path(__file__).parents[2] / "native"
SOURCES = ["additive.cpp", "dot.cpp", "gradients/additive_gradients.cpp", "gradients/dot_gradients.cpp", "masks/mask.cpp"]
LEVELS = {"avx512": 64, "avx2": 32, "baseline": 16}  # bytes of a vector
KERNELS = {"dot": "dot", "dot_gradients": "dot, backward", "additive": "additive", "additive_gradients": "additive, backward"}
SHAPES = [(12, 128, 128, 64), (12, 512, 512, 64), (1, 1024, 1024, 64)]


def compiled(folder: Path) -> Path:
    """The program that times the items of a call."""
    level, program = native.level(), folder / "scheduling"
    sources = [
        NATIVE / "check" / "scheduling.cpp",
        NATIVE / "simd" / "scratch.cpp",
        *(NATIVE / "attention" / name for name in SOURCES),
    ]
    flags = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
    defined = [f"-DOVERT_LEVEL={level}", f"-DOVERT_BYTES={LEVELS[level]}", "-DOVERT_ITEM_TIMES"]
    subprocess.run(["c++", *flags, "-Wno-psabi", *defined, f"-I{NATIVE}", *map(str, sources), "-o", str(program)], check=True)
    return program


def measure(program: Path, threads: list[int]) -> list[dict[str, Any]]:
    """Of each kernel and shape: how busy so many threads would be, and the seconds of one."""
    rows = []
    for kernel in KERNELS:
        for shape in SHAPES:
            lines = [
                subprocess.run(
                    [program, kernel, *map(str, shape), str(count)], check=True, capture_output=True, text=True
                ).stdout
                for count in threads
            ]
            busy, seconds = zip(*(map(float, line.split()) for line in lines), strict=True)
            rows.append({"kernel": kernel, "shape": list(shape), "busy": list(busy), "seconds": min(seconds)})
    return rows


def shown(rows: list[dict[str, Any]], threads: list[int]) -> Table:
    """The rows as a table."""
    table = Table("kernel", "heads", "queries", "keys", "features", *(f"{count} threads" for count in threads))
    for row in rows:
        table.add_row(KERNELS[row["kernel"]], *map(str, row["shape"]), *(f"{busy:.0%}" for busy in row["busy"]))
    return table


def main() -> None:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[8, 16, 24])
    results.takes_out(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(compiled(Path(folder)), arguments.threads)
    Console().print(shown(rows, arguments.threads))
    results.write(arguments.out, simulated=arguments.threads, rows=rows)


if __name__ == "__main__":
    main()
