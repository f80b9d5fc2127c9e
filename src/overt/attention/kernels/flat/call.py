"""A call in the form of the CPU and GPU kernels: tensors, numbers and a mask program; or the reason why they do not support it.

Score, softmax and bias each have a function that flattens them, and one that returns the reason for a refusal.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import (
    TransformType,
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    is_gradtrackingtensor,
)
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch.autograd import forward_ad

from overt import native
from overt.attention.biases import Bias
from overt.attention.biases.lines import without_lines
from overt.attention.expressions.tracing import TracedScore
from overt.attention.expressions.tracing import traced as trace_score
from overt.attention.kernels.call import Call, is_exporting, unrounded
from overt.attention.kernels.flat import additive, dot, mask_program, traced
from overt.attention.kernels.flat import normalizer as flat_normalizer
from overt.attention.kernels.flat.normalizer import IDENTITY, SUM, NormalizerForm
from overt.attention.kernels.flat.operator import INTERPRETED, Attention, is_dual
from overt.attention.kernels.flat.products import as_dot_product, fits, unsupported_dot
from overt.attention.masks.blocks import has_blocks
from overt.attention.normalizers import Entmax, Softmax
from overt.attention.scores import AdditiveForm, DistanceForm, DotForm, KernelForm, takes_half
from overt.errors import InputError

MISSING = native.why_not()
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_MIN_CAPABILITY = (8, 0)  # compute capability with tensor cores that multiply float32 in three parts


def refusal(call: Call) -> str | None:
    """Why the native kernels do not support this call; None if they do."""
    form = call.form
    if isinstance(form, AdditiveForm) and not is_program(call):
        return _unsupported_additive(call, form) or unsupported_normalizer(call) or unsupported_cpu(call, form)
    if reason := unsupported_cpu(call, form) or unsupported_normalizer(call) or _unsupported_mode(call):
        return reason
    if is_program(call):
        return _unsupported_program(call)
    learned = isinstance(form, DotForm) and form.softcap is not None and _learned_temperature(call) is not None
    return "the temperature is learned, and divides scores under a soft cap" if learned else unsupported_dot(call, form)


def gpu_refusal(call: Call) -> str | None:
    """Why the GPU kernels do not support this call; None if they do."""
    form = call.form
    if reason := unsupported_gpu(call, form):
        return reason
    if not isinstance(form, AdditiveForm):
        return "the score is not overt.Additive"
    return unsupported_softmax(call) or _unsupported_additive(call, form)


def scores_refusal(call: Call) -> str | None:
    """Why the native kernel cannot compute only the scores of a call that it does not support; None if it can."""
    form = call.form
    if not isinstance(form, AdditiveForm):
        return "the score is not overt.Additive"
    if call.transformed:
        return "under torch.func's transforms the plain formula runs"
    if forward_ad._current_level >= 0 and any(map(is_dual, (call.query, call.key, form.weight))):
        return "native scores have no forward-mode derivative"
    return _unsupported_mode(call) or unsupported_cpu(call, form)


def served(call: Call) -> Tensor:
    """The output, by the kernels."""
    operator, inputs = flattened(call)
    output = operator(inputs)
    if is_program(call) and (divisor := _divisor(call)) is not None:
        output, total = output[..., :-1], output[..., -1:]
        divided_by = divisor(total)
        output = output / torch.where((total == 0) & (divided_by == 0), 1, divided_by)  # a row without keys stays 0
    return output.to(call.query.dtype)


def _divisor(call: Call) -> Callable[[Tensor], Tensor] | None:
    """The function from a row's sum to the divisor of a program's numbers; None if the kernel divides, or nothing does."""
    result = traced_score(call)
    return None if isinstance(result, str) or result.divided_by_sum else result.divisor


def flattened(call: Call) -> tuple[Attention, Any]:
    """The operator that computes a call, and its inputs."""
    form, temperature, divided_by_sum = call.form, _learned_temperature(call), False
    if is_program(call):
        operator, (score, divided_by_sum) = traced.traced, _as_program(call)
    elif isinstance(form, AdditiveForm):
        weight = form.weight.to(call.dtype)
        weight = weight if temperature is None else weight / temperature.squeeze(-1)  # (..., D)
        operator, score = additive.additive, (call.query, call.key, call.value, weight, form.activation)
    else:
        operator, score = dot.dot, as_dot_product(call, form, temperature)
    seed = torch.randint(2**62, (), device=call.query.device) if call.dropout > 0 else None
    custom = flat_normalizer.is_custom(call.normalizer)
    normalizer = NormalizerForm(SUM if divided_by_sum else IDENTITY) if custom else flat_normalizer.as_form(call.normalizer)
    lines = line_biases(call) if operator is dot.dot else ()
    return operator, operator.inputs(*score, *mask_and_softmax(call), *normalizer, call.dropout, seed, *lines)


def line_biases(call: Call) -> tuple[Tensor | None, Tensor | None]:
    """The biases of queries (..., Q) and of keys (..., K) in a dot product, divided by a learned temperature; None if there are none."""
    lines, temperature = without_lines(call.bias)[1], _learned_temperature(call)
    if lines is None or temperature is None:
        return (None, None) if lines is None else (lines.of_queries, lines.of_keys)
    return lines.of_queries / temperature.squeeze(-1), lines.of_keys / temperature.squeeze(-1)


def moves(call: Call) -> bool:
    """Whether the native core has forward-mode and second-derivative kernels for a call that it supports."""
    if type(call.normalizer) is not Softmax:
        return False
    result = traced_score(call) if is_program(call) else None
    return result is None or (not isinstance(result, str) and traced.can_move(result))


MaskAndSoftmax = tuple[list[int], list[int], list[Tensor], Tensor | None, bool, Tensor | None, Tensor | None]


def mask_and_softmax(call: Call) -> MaskAndSoftmax:
    """Batch, mask program and arrays, bias, whether it is by distance, sink, and 1 / temperature (None for 1).

    A learned temperature divides scores and bias instead, so it has a gradient.
    """
    bias, by_distance = None, False
    if (added := without_lines(call.bias)[0]) is not None:
        bias = added.added_pairs()  # (..., Q or 1, K or 1)
        bias, by_distance = (_by_distance(call, added), True) if bias is None else (bias, False)
    temperature, sink, inverse = 1, None, None
    if type(call.normalizer) is Softmax:
        temperature, sink = call.normalizer.temperature, call.normalizer.sink
    if (learned := _learned_temperature(call)) is not None:
        bias = None if bias is None else bias / learned.squeeze(-1)  # a bias by distance, (..., Q + K - 1)
    elif isinstance(temperature, Tensor):
        inverse = (1 / temperature.double()).reshape(temperature.shape[:-2]).to(call.query.device)
    elif temperature != 1:
        inverse = torch.full((), 1 / temperature, dtype=torch.float64, device=call.query.device)
    sink = None if sink is None else sink.to(call.query.device, call.dtype)
    program, arrays = [], []
    if call.mask is not None:
        program, arrays = mask_program.lowered(call.mask, call.query.shape[-2], call.key.shape[-2], call.query.device)
    return list(call.batch), program, arrays, bias, by_distance, sink, inverse


def is_program(call: Call) -> bool:
    """Whether the score or the normalizer is the caller's: a program over pairs, if it can be traced."""
    return call.form is None or flat_normalizer.is_custom(call.normalizer)


def _unsupported_program(call: Call) -> str | None:
    """Why a caller's score or normalizer is no program over pairs; None if it is."""
    if (
        torch.compiler.is_compiling()
        or call.query.is_meta
        or any(map(_is_mapped, (call.query, call.key, call.value)))
        or _is_intercepted()
    ):
        return "functions of one's own are traced while torch neither compiles, intercepts nor maps the call"
    if takes_half(call.score) and call.query.dtype != call.dtype:
        return "the score takes half precision, and programs compute float32"
    if not (call.query.numel() and call.key.numel()):
        return "there are no pairs of queries and keys to trace the score with"
    if (call.mask is not None or call.bias is not None) and not call.finite:
        return "a masked key that is not finite would change gradients of the score's parameters"
    result = traced_score(call)
    if isinstance(result, str):
        what = "the normalizer" if flat_normalizer.is_custom(call.normalizer) else "the score"
        return f"{what} cannot be traced: {result}"
    if call.dropout > 0 and _divisor(call) is not None:
        return "under dropout, a normalizer of one's own divides by nothing or by the row's sum"
    shapes = result.query.shape[:-2], result.key.shape[:-2], result.constants.shape[:-1]
    return None if all(fits(shape, call.batch) for shape in shapes) else "the score has other leading dimensions than the call"


def traced_score(call: Call) -> TracedScore | str:
    """Trace a call's score, divided by a learned temperature, and a caller's normalizer to a program; or the reason if impossible."""
    if "traced" not in call.__dict__:
        query, key = call.query.to(call.dtype), call.key.to(call.dtype)
        if call.batch and key.ndim >= 4 and 1 != key.shape[-3] != call.batch[-1]:
            key = key.repeat_interleave(call.batch[-1] // key.shape[-3], dim=-3)
        temperature = _learned_temperature(call)
        score = call.score if temperature is None else lambda q, k: call.score(q, k) / temperature.to(q.dtype)
        normalizer = call.normalizer if flat_normalizer.is_custom(call.normalizer) else None
        with unrounded(query):
            call.__dict__["traced"] = trace_score(score, query, key, normalizer)
    return call.__dict__["traced"]


def _as_program(call: Call) -> tuple[tuple[Any, ...], bool]:
    """The program of a call's score with its tensors, and whether its numbers are divided by their row's sum.

    If the divisor is a function of the sum, the values have one more column, of ones.
    """
    result = traced_score(call)
    if isinstance(result, str):
        raise InputError(
            "a score that can be traced", got=f"one that cannot: {result}", fix="call overt.attend, which takes blocks"
        )
    value = call.value.to(call.dtype)
    if _divisor(call) is not None:
        value = torch.cat([value, value.new_ones(*value.shape[:-1], 1)], dim=-1)
    return (result.query, result.key, value, result.constants, result.terms, result.numbers), result.divided_by_sum


def _by_distance(call: Call, bias: Bias) -> Tensor:
    """A bias by distance as (..., Q + K − 1) numbers: distance j − i is at j − i + Q − 1."""
    # The last query's row, at all positions that a key can have.
    last, count = max(call.queries - 1, 0), max(call.queries + call.keys - 1, 0)
    device = call.query.device
    return bias.block(torch.arange(last, last + 1, device=device), torch.arange(count, device=device)).squeeze(-2)


def _learned_temperature(call: Call) -> Tensor | None:
    """The temperature (..., 1, 1), if a gradient may be computed for it."""
    temperature = call.normalizer.temperature if type(call.normalizer) is Softmax else None
    if not isinstance(temperature, Tensor) or not _followed(temperature):
        return None
    return temperature if temperature.ndim else temperature[None, None]


def unsupported_softmax(call: Call) -> str | None:
    """What kernels that support only softmax lack for this call."""
    return unsupported_normalizer(call) if type(call.normalizer) is Softmax else "the normalizer is not a softmax"


def unsupported_normalizer(call: Call) -> str | None:
    """What the native kernels lack for this call's normalizer, bias or mask."""
    if flat_normalizer.is_custom(call.normalizer) and call.bias is not None:
        return "the normalizer is one's own, which takes the scores with their bias"
    if reason := _unsupported_temperature(call) if type(call.normalizer) is Softmax else flat_normalizer.refusal(call):
        return reason
    bias, lines = without_lines(call.bias)
    if lines is not None and not (isinstance(call.form, (DotForm, DistanceForm)) and type(call.normalizer) is Softmax):
        return "native kernels add numbers of queries and keys to dot products under a softmax only"
    if bias is not None and not bias.by_distance and bias.added_pairs() is None:
        return f"native kernels do not know the bias {type(bias).__name__}"
    return None if call.mask is None else mask_program.refusal(call.mask)


def _unsupported_temperature(call: Call) -> str | None:
    """What the kernels' softmax lacks for this call's temperature or sink."""
    temperature, sink = call.normalizer.temperature, call.normalizer.sink
    if isinstance(temperature, Tensor):
        if not fits(temperature.shape, (*call.batch, 1, 1)):
            return "the temperature differs between queries or keys"
        bias = without_lines(call.bias)[0]
        if bias is not None and not bias.by_distance and _learned_temperature(call) is not None:
            return "the temperature is learned, and multiplies a bias of Q × K numbers"
    if sink is not None and not fits(sink.shape, call.batch):
        return "the sink has another number of heads than the call"
    return None


def _unsupported_additive(call: Call, form: AdditiveForm) -> str | None:
    """What the kernels of additive attention lack for this call."""
    if not fits(form.weight.shape[:-1], call.batch):
        return "the score's weight has other leading dimensions than the call"
    return _unsupported_mode(call)


def unsupported_cpu(call: Call, form: KernelForm | None) -> str | None:
    """Why no native kernel runs on the call's device."""
    if reason := _unsupported_export():
        return reason
    for tensor in _differentiable_tensors(call, form):
        if not tensor.is_cpu:
            return "native kernels run on the CPU"
    if INTERPRETED:
        return "with TRITON_INTERPRET=1 Triton's interpreter runs in place of the native core"
    return _unsupported_dtype(call) or (MISSING and f"the native core is not available: {MISSING}")


def unsupported_gpu(call: Call, form: KernelForm | None) -> str | None:
    """Why no GPU kernel runs on the call's device."""
    if reason := _unsupported_export() or missing_on_gpu(call.query.device):
        return reason
    if any(tensor.device != call.query.device for tensor in _differentiable_tensors(call, form)):
        return "the tensors are on several devices"
    if has_blocks(call.mask) or without_lines(call.bias)[1] is not None:
        return "the kernels for GPUs know no masks by blocks, and no biases of queries and keys"
    if not INTERPRETED and call.query.dtype == torch.float64:
        return "the kernels for GPUs compute float32, float16 and bfloat16"
    return _unsupported_dtype(call)


def missing_on_gpu(device: torch.device) -> str | None:
    """What the GPU kernels lack on this device; None if they run."""
    if not INTERPRETED and device.type != "cuda":
        return "the tensors are on no GPU"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install triton"
    if not INTERPRETED and (torch.version.hip is not None or torch.cuda.get_device_capability(device) < _MIN_CAPABILITY):
        return "the kernels are for NVIDIA's GPUs of compute capability 8.0 and later"
    return None


def _unsupported_export() -> str | None:
    """Why no kernel runs while the call is exported to a program."""
    if is_exporting() or torch.jit.is_tracing():  # type: ignore[reportPrivateImportUsage]
        return "an exported program holds the plain formula, which runs without overt"
    return None


def _unsupported_dtype(call: Call) -> str | None:
    """Why the kernels do not support the call's dtype."""
    if call.query.dtype not in _DTYPES or any(source.dtype not in _DTYPES for source in _sources(call.bias)):
        return "native kernels compute float64, float32, float16 and bfloat16"
    return None


def _unsupported_mode(call: Call) -> str | None:
    """Why no kernel runs under the active transforms."""
    if torch.compiler.is_compiling():
        in_blocks = type(call.normalizer) is not Softmax or not call.query.is_cpu or INTERPRETED
        return (
            "compiled, only a softmax has a forward-mode derivative in the native core"
            if in_blocks and forward_ad._current_level >= 0
            else None
        )
    if not torch._C._are_functorch_transforms_active():
        return None
    kinds = {layer.key() for layer in retrieve_all_functorch_interpreters()}
    if kinds - {TransformType.Vmap, TransformType.Grad, TransformType.Jvp}:
        return "of torch.func's transforms, only vmap, those of gradients and jvp pass through native kernels"
    if call.dropout > 0 and TransformType.Vmap in kinds:
        return "one call of a native kernel has one seed of dropout, also under vmap"
    return None


def _is_intercepted() -> bool:
    """Whether a torch mode intercepts function calls."""
    return bool(torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack())


def _is_mapped(tensor: Tensor) -> bool:
    """Whether vmap maps over the tensor, whose values can then not be read."""
    while is_functorch_wrapped_tensor(tensor):
        if is_batchedtensor(tensor):
            return True
        tensor = get_unwrapped(tensor)
    return False


def _followed(tensor: Tensor) -> bool:
    """Whether the tensor may be differentiated."""
    if forward_ad._current_level >= 0 and (torch.compiler.is_compiling() or is_dual(tensor)):
        return True
    if not torch.compiler.is_compiling():
        while is_functorch_wrapped_tensor(tensor):
            if is_gradtrackingtensor(tensor):
                return True
            tensor = get_unwrapped(tensor)
    return tensor.requires_grad and torch.is_grad_enabled()


def _sources(bias: Bias | None) -> list[Tensor]:
    """The tensors from which a bias is computed."""
    bias, lines = without_lines(bias)
    return [*([] if bias is None else [bias.source]), *([] if lines is None else [lines.of_queries, lines.of_keys])]


def _differentiable_tensors(call: Call, form: KernelForm | None) -> list[Tensor]:
    """All tensors in which the call may be differentiated."""
    tensors = [call.query, call.key, call.value]
    if isinstance(form, DotForm):
        tensors += form.parameters
        if isinstance(form.scale, Tensor):
            tensors.append(form.scale)
    elif isinstance(form, AdditiveForm):
        tensors.append(form.weight)
    elif isinstance(form, DistanceForm) and isinstance(form.bandwidth, Tensor):
        tensors.append(form.bandwidth)
    if call.bias is not None:
        tensors += _sources(call.bias)
    if type(call.normalizer) is Softmax:
        if isinstance(call.normalizer.temperature, Tensor):
            tensors.append(call.normalizer.temperature)
        if call.normalizer.sink is not None:
            tensors.append(call.normalizer.sink)
    if type(call.normalizer) is Entmax and isinstance(call.normalizer.alpha, Tensor):
        tensors.append(call.normalizer.alpha)
    return tensors
