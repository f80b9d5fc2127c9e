"""The memory of a case above its inputs: the peak of a separate process.

Run as a module it is that process: it measures one case with overt's native kernels and prints the result as JSON.
"""

import json
import subprocess
import sys
from dataclasses import replace

import torch

from overt.bench.cases import Case, random_inputs
from overt.bench.contenders import additive
from overt.bench.contenders.contender import Unable
from overt.bench.machine import NO_MEMORY, seconds_and_memory
from overt.bench.reference import additive_reference, disagreement

_WARM_UP = 64  # rows of a first run, which loads libraries and starts threads


def in_fresh_process(case: Case, dtype: torch.dtype, threads: int) -> tuple[float, int, str]:
    """Seconds, bytes above the inputs, and disagreements of one forward and backward pass."""
    if NO_MEMORY:
        raise Unable(NO_MEMORY)
    arguments = [case.name, str(dtype).removeprefix("torch."), str(threads)]
    process = subprocess.run([sys.executable, "-m", __name__, *arguments], capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise RuntimeError(f"measuring memory failed:\n{process.stderr}")
    result = json.loads(process.stdout)
    if "unable" in result:
        raise Unable(result["unable"])
    return result["seconds"], result["bytes"], result["disagreement"]


def _main(name: str, dtype_name: str, threads: int) -> dict[str, object]:
    torch.set_num_threads(threads)
    case, dtype = Case.named(name), getattr(torch, dtype_name)
    contender, inputs = additive.overt_path("native"), random_inputs(case, dtype)
    try:
        run, _ = contender.prepare(inputs)
    except Unable as reason:
        return {"unable": str(reason)}
    small = random_inputs(replace(case, queries=_WARM_UP, keys=_WARM_UP), dtype)
    contender.prepare(small)[0](small.upstream)
    seconds, memory = seconds_and_memory(lambda: run(inputs.upstream))
    expected = additive_reference(case, inputs)
    return {"seconds": seconds, "bytes": memory, "disagreement": disagreement(run(expected.upstream), expected, dtype)}


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
