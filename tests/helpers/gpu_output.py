"""What the benchmark commands print of a result that a GPU is made out to have given."""

import torch

from overt.bench.gpu import ceilings as gpu_ceilings
from overt.bench.gpu import device as gpu
from overt.bench.gpu.ceilings import GpuCeilings

GPU_LIMITS = GpuCeilings(matmul=5e13, matmul_bfloat16=8e14, multiply_adds=3e13, reciprocals=4e12, tanhs=4e12, copy=4e12)


def output_on_gpu(monkeypatch, run, result, *args):
    """The lines of `run` with this result as one text."""
    facts = {"gpu": "NVIDIA H200", "multiprocessors": 132, "gpu_memory": 1, "cuda": "13.0", "triton": "3.6.0"}
    monkeypatch.setattr(gpu, "select_device", torch.device)
    monkeypatch.setattr(gpu, "facts", lambda: facts)
    monkeypatch.setattr(gpu_ceilings, "measured", lambda: GPU_LIMITS)
    monkeypatch.setattr("overt.cli.bench.measure", lambda *args: result)
    actual = run("--device", "cuda", "--case", result.case.name, *args)
    assert actual.exit_code == 0, actual.output
    assert max(map(len, actual.stdout.splitlines())) <= 80
    return " ".join(actual.stdout.split())
