"""How much memory a case takes above its inputs: the peak of a process that does nothing else.

Run as a module it is that process: it measures one case with overt's native kernels and prints what it found as JSON.
"""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from overt.bench.cases import Case, drawn
from overt.bench.compared import disagreement, wanted
from overt.bench.contenders import additive
from overt.bench.contenders.contender import Unable

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_WARM = 64  # rows of a first run, which loads libraries and starts threads


def in_fresh_process(case: Case, dtype: torch.dtype, threads: int) -> tuple[float, int, str]:
    """Seconds, bytes above the inputs, and what disagrees, of one forward and backward pass."""
    if not _CLEAR.exists():
        raise Unable("peak memory is read from /proc, which this system does not have")
    arguments = [case.name, str(dtype).removeprefix("torch."), str(threads)]
    found = subprocess.run([sys.executable, "-m", __name__, *arguments], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise RuntimeError(f"measuring memory failed:\n{found.stderr}")
    told = json.loads(found.stdout)
    if "unable" in told:
        raise Unable(told["unable"])
    return told["seconds"], told["bytes"], told["disagreement"]


def _main(name: str, dtype_name: str, threads: int) -> dict[str, object]:
    torch.set_num_threads(threads)
    case, dtype = Case.named(name), getattr(torch, dtype_name)
    contender, inputs = additive.native(), drawn(case, dtype)
    try:
        run, _ = contender.prepare(inputs)
    except Unable as why:
        return {"unable": str(why)}
    small = drawn(replace(case, queries=_WARM, keys=_WARM), dtype)
    contender.prepare(small)[0](small.upstream)
    _CLEAR.write_text("5")  # the peak from here on
    before, start = _resident("VmRSS"), time.perf_counter()
    run(inputs.upstream)
    seconds, peak = time.perf_counter() - start, _resident("VmHWM")
    expected = wanted(case, inputs)
    return {"seconds": seconds, "bytes": peak - before, "disagreement": disagreement(run(expected.upstream), expected, dtype)}


def _resident(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
