"""The memory of additive gradients above their inputs: the peak of a separate process, or of a GPU.

Run as a module it is that process: it measures one case with overt's native kernels and prints the result as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import torch

from benchmarks.peak_memory import NO_MEMORY, seconds_and_memory
from overt.bench.bounds import additive_operations
from overt.bench.cases import Case, random_inputs
from overt.bench.comparison import Effort, Notify, Result, compared
from overt.bench.contenders import additive
from overt.bench.contenders.contender import Unable
from overt.bench.gpu.bounds import additive_bound
from overt.bench.reference import additive_reference, disagreement
from overt.bench.timing import RunTimes, time_alternating
from overt.bench.works import Work

_WARM_UP = 64  # rows of a first run, which loads libraries and starts threads
_NATIVE = additive.overt_path("native")


def measure(case: Case, options: Effort, notify: Notify) -> Result:
    """The memory of each contender, and its time."""
    if options.device.type == "cpu":
        return _of_native(case, options, notify)
    result, calls = compared(case, options, notify)
    if not result.wrong:
        result.memory = {name: peak_on_gpu(call) for name, call in calls.items()}
        result.times = time_alternating(calls, options.runs, options.seconds, result.kind)
    return result


def _of_native(case: Case, options: Effort, notify: Notify) -> Result:
    notify("running overt native in a separate process")
    result = Result(case)
    try:
        seconds, size, wrong = _in_fresh_process(case, options.dtype, options.threads)
    except Unable as reason:
        result.unable[_NATIVE.name] = str(reason)
        return result
    if wrong:
        result.wrong[_NATIVE.name] = wrong
    else:
        result.times[_NATIVE.name], result.memory[_NATIVE.name] = RunTimes((seconds,)), size
    return result


def peak_on_gpu(run: Callable[[], object]) -> int:
    """The peak of torch's memory during a run, its result included, above the level before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = run()
    torch.cuda.synchronize()
    del result
    return torch.cuda.max_memory_allocated() - before


def _in_fresh_process(case: Case, dtype: torch.dtype, threads: int) -> tuple[float, int, str]:
    """Seconds, bytes above the inputs, and disagreements of one forward and backward pass."""
    if NO_MEMORY:
        raise Unable(NO_MEMORY)
    arguments = [*map(str, case.shape), str(dtype).removeprefix("torch."), str(threads)]
    process = subprocess.run([sys.executable, "-m", __name__, *arguments], capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise RuntimeError(f"measuring memory failed:\n{process.stderr}")
    result = json.loads(process.stdout)
    if "unable" in result:
        raise Unable(result["unable"])
    return result["seconds"], result["bytes"], result["disagreement"]


def _main(shape: list[int], dtype: torch.dtype) -> dict[str, object]:
    *batch, queries, keys, features = shape
    case = Case("gradients", tuple(batch), queries, keys, features)
    inputs = random_inputs(case, dtype)
    try:
        run, _ = _NATIVE.prepare(inputs)
    except Unable as reason:
        return {"unable": str(reason)}
    small = random_inputs(replace(case, queries=_WARM_UP, keys=_WARM_UP), dtype)
    _NATIVE.prepare(small)[0](small.upstream)
    seconds, memory = seconds_and_memory(lambda: run(inputs.upstream))
    expected = additive_reference(case, inputs)
    return {"seconds": seconds, "bytes": memory, "disagreement": disagreement(run(expected.upstream), expected, dtype)}


WORKS = {
    "memory": Work(
        "memory of additive gradients, above the inputs",
        [_NATIVE],
        additive_reference,
        additive_operations,
        gpu_contenders=[additive.overt_path("triton")],
        gpu_bound=additive_bound,
    )
}
BACKWARD = {"memory"}
CASES = [Case("memory", (1,), 16384, 16384, 128)]
# At twice the length, a kernel whose memory is linear takes twice the memory.
GPU_CASES = [Case("memory", (1,), length, length, 64, dtype=torch.float32) for length in (32768, 65536)]

if __name__ == "__main__":
    *_shape, _dtype, _threads = sys.argv[1:]
    torch.set_num_threads(int(_threads))
    print(json.dumps(_main([int(size) for size in _shape], getattr(torch, _dtype))))
