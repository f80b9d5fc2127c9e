"""The path through the kernels on a GPU: which calls they serve. They take a call as the native kernels do (`flat`)."""

import importlib.util

import torch

from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import summary as flat_summary
from overt.attention.kernels.flat import supported
from overt.attention.kernels.flat.operator import INTERPRETED

_MIN_CAPABILITY = (8, 0)  # compute capability: that of the tensor cores that multiply float32 in three parts


def refusal(call: Call) -> str | None:
    """Why the kernels on a GPU cannot serve this call; None where they can."""
    return _unsupported_device(call) or supported.additive_refusal(call)


def summary_refusal(call: Call) -> str | None:
    """Why the kernels on a GPU cannot summarise this call; None where they can."""
    return _unsupported_device(call) or flat_summary.unsupported(call)


def _unsupported_device(call: Call) -> str | None:
    """Why no kernel on a GPU runs where the call is."""
    if reason := supported.unsupported_export() or missing(call.query.device):
        return reason
    if any(tensor.device != call.query.device for tensor in supported.differentiable_tensors(call, call.form)):
        return "the tensors are on several devices"
    if not INTERPRETED and call.query.dtype == torch.float64:
        return "the kernels for GPUs compute float32, float16 and bfloat16"
    return supported.unsupported_dtype(call)


def missing(device: torch.device) -> str | None:
    """What the kernels lack on this device; None where they run."""
    if not INTERPRETED and device.type != "cuda":
        return "the tensors are on no GPU"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install triton"
    if not INTERPRETED and (torch.version.hip is not None or torch.cuda.get_device_capability(device) < _MIN_CAPABILITY):
        return "the kernels are for NVIDIA's GPUs of compute capability 8.0 and later"
    return None
