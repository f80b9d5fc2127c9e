"""Which models and tensors can be recorded, and which model is inside a wrapper."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from overt.attention.kernels.sharded.inputs import is_sharded
from overt.errors import InputError, KindError

COMPILED_CODE = "code that torch compiled ran in it, where attention cannot be seen"
COMPILED = f'{COMPILED_CODE}. To see it, run the model inside torch.compiler.set_stance("force_eager")'
FLEX = "flex_attention scores with a function of the model's own, which is not recorded"


def is_flex(reason: str) -> bool:
    """Whether a reason is torch's flex_attention, which is invisible even outside of compiled code."""
    return reason == FLEX or '"flex_attention"' in reason


def recordable(model: Any) -> nn.Module:
    """The model to record: itself, or the model in a pipeline or a wrapper for several devices. Raises KindError for others.

    The layers of a wrapped model keep their names without the wrapper.
    """
    if not isinstance(model, nn.Module) and isinstance(getattr(model, "model", None), nn.Module):
        model = model.model  # a pipeline of transformers
    if not isinstance(model, nn.Module):
        raise KindError("a torch.nn.Module for overt.lens.record", got=type(model).__name__, fix="pass the model itself")
    if isinstance(model, DataParallel) and len(model.device_ids) > 1:
        raise KindError(
            "a model that runs in one thread (DataParallel runs a copy in a thread for each device)",
            got=f"DataParallel on {len(model.device_ids)} devices",
            fix="record and run the model itself: model.module",
        )
    for name, module in model.named_modules():
        _visible(name or "the model", module)
    return model.module if isinstance(model, DataParallel | DistributedDataParallel) else model


def unreadable(tensor: Tensor) -> str | None:
    """Why the numbers of a tensor cannot be read, or None."""
    if (reason := out_of_reach(tensor)) is not None:
        return reason
    if is_sharded(tensor):
        return (
            "it ran on DTensors, of which this process has a part, and a recording holds plain tensors. Models whose layers pass "
            "local tensors to attention, as under fully_shard and ColwiseParallel, are recorded: each process records its part"
        )
    if is_traceable_wrapper_subclass(tensor) or tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
        return f"it ran on tensors of another kind ({_kind(tensor)}), which a recording does not read"
    return None


def are_sparse(values: Sequence[Any]) -> bool:
    """Whether all tensors among these values can be read, except sparse ones."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    return all(
        out_of_reach(tensor) is None and (tensor.layout != torch.strided or unreadable(tensor) is None) for tensor in tensors
    )


def out_of_reach(tensor: Tensor) -> str | None:
    """Why overt cannot compute with a tensor here, because its operators mean something else; or None."""
    if tensor.is_meta or isinstance(tensor, FakeTensor):
        return "it ran on tensors without data, so there are no numbers to record"
    if torch._C._are_functorch_transforms_active():
        return "it ran under a transform of torch.func (vmap, grad, …), whose tensors are gone after it"
    if torch._C._is_tracing():
        return "it ran under torch.jit.trace, which would trace the recording too"
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return "it ran while a CUDA graph was captured, where no number can be read"
    return None


def _kind(tensor: Tensor) -> str:
    if tensor.is_nested:
        return "nested"
    return "quantized" if tensor.is_quantized else type(tensor).__name__ if type(tensor) is not Tensor else str(tensor.layout)


def _visible(name: str, module: nn.Module) -> None:
    kind = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise KindError(
            "a module that is not scripted, because scripted code does not call torch's functions",
            got=f"{name}, a {kind}",
            fix="record the module that it was scripted from",
        )
    if kind == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
        raise KindError(
            "a module that is not compiled, because compiled code does not call torch's functions",
            got=f"{name}, compiled by torch.compile",
            fix="record the module itself: overt.lens.record(model._orig_mod), or one that is not compiled",
        )
    if isinstance(module, torch.fx.GraphModule) and any(
        isinstance(node.target, torch._ops.OpOverload) for node in module.graph.nodes
    ):
        raise KindError(
            "a module that is not exported, because an exported one calls operators and not torch's functions",
            got=f"{name}, a {kind} of operators",
            fix="record the module that it was exported from",
        )


def required_model(model: Any) -> nn.Module:
    """The recorded model, for reading its parameters. Raises KindError for other types, InputError for parameters without numbers."""
    if not isinstance(model, nn.Module):
        got = "no model" if model is None else type(model).__name__
        raise KindError("the model that was recorded, because a recording has no parameters", got=got, fix="pass the model")
    if next(model.parameters(), None) is not None and all(parameter.is_meta for parameter in model.parameters()):
        raise InputError(
            "a model with its parameters loaded",
            got="parameters on the device meta, which has no numbers",
            fix="load the model",
        )
    return model
