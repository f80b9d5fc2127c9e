"""Which calls the native kernels serve, and the GPU's kernels with them: each reason against a call, None where there is none."""

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch.autograd import forward_ad

from overt import native
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import dot_scores, mask_program
from overt.attention.kernels.flat.operator import INTERPRETED
from overt.attention.normalizers import Softmax
from overt.attention.scores import AdditiveForm, DistanceForm, DotForm, KernelForm

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
MISSING = native.why_not()


def refusal(call: Call) -> str | None:
    """Why the native kernels cannot serve this call; None where they can."""
    form = call.form
    if isinstance(form, AdditiveForm):
        return unsupported_additive(call, form) or unsupported_device(call, form)
    return (
        unsupported_device(call, form)
        or unsupported_softmax(call)
        or _unsupported_mode(call, form)
        or _unsupported_dot(call, form)
    )


def additive_refusal(call: Call) -> str | None:
    """Why no kernel of additive attention can serve this call, on any device."""
    form = call.form
    return unsupported_additive(call, form) if isinstance(form, AdditiveForm) else "the score is not overt.Additive"


def scores_refusal(call: Call) -> str | None:
    """Why the native kernel cannot compute the scores of a call that it cannot serve as a whole; None where it can."""
    form = call.form
    if not isinstance(form, AdditiveForm):
        return "the score is not overt.Additive"
    if call.transformed:
        return "under torch.func's transforms the plain formula runs"
    return _unsupported_mode(call, form) or unsupported_device(call, form)


def unsupported_additive(call: Call, form: AdditiveForm) -> str | None:
    """What the kernels of additive attention lack for this call."""
    if not dot_scores.fits(form.weight.shape[:-1], call.batch):
        return "the score's weight has other leading dimensions than the call"
    return unsupported_softmax(call) or _unsupported_mode(call, form)


def _unsupported_dot(call: Call, form: DotForm | DistanceForm | None) -> str | None:
    learned = isinstance(call.normalizer.temperature, Tensor) and is_learned(call.normalizer.temperature)
    if learned and isinstance(form, DotForm) and form.softcap is not None:
        return "the temperature is learned, and divides scores under a soft cap"
    return dot_scores.refusal(call, form)


def unsupported_softmax(call: Call) -> str | None:
    """What the kernels' softmax lacks for this call: its normalizer, its bias or its mask."""
    if type(call.normalizer) is not Softmax:
        return "the normalizer is not a softmax"
    temperature, sink = call.normalizer.temperature, call.normalizer.sink
    if isinstance(temperature, Tensor):
        if not dot_scores.fits(temperature.shape, (*call.batch, 1, 1)):
            return "the temperature differs between queries or keys"
        if isinstance(call.bias, Tensor) and is_learned(temperature):
            return "the temperature is learned, and multiplies a bias of Q × K numbers"
    if sink is not None and not dot_scores.fits(sink.shape, call.batch):
        return "the sink has another number of heads than the call"
    if not isinstance(call.bias, Tensor | None) and not call.bias.by_distance:
        return f"native kernels do not know the bias {type(call.bias).__name__}"
    return None if call.mask is None else mask_program.refusal(call.mask)


def _unsupported_mode(call: Call, form: KernelForm | None) -> str | None:
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        if not all(layer.key() == TransformType.Vmap for layer in retrieve_all_functorch_interpreters()):
            return "of torch.func's transforms, only vmap passes through native kernels"
        if call.dropout > 0:
            return "one call of a native kernel has one seed of dropout, also under vmap"
    if forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(tensor).tangent is not None for tensor in differentiable_tensors(call, form)
    ):
        return "native kernels have no forward-mode derivative"
    return None


def unsupported_device(call: Call, form: KernelForm | None) -> str | None:
    """Why no native kernel runs where the call is."""
    if reason := unsupported_export():
        return reason
    for tensor in differentiable_tensors(call, form):
        if not tensor.is_cpu:
            return "native kernels run on the CPU"
    if INTERPRETED:
        return "with TRITON_INTERPRET=1 Triton's interpreter runs in place of the native core"
    return unsupported_dtype(call) or (MISSING and f"the native core is not available: {MISSING}")


def unsupported_export() -> str | None:
    """Why no kernel runs where the call is written into a program."""
    if torch.compiler.is_exporting() or torch.jit.is_tracing():  # type: ignore[reportPrivateImportUsage]
        return "an exported program holds the plain formula, which runs without overt"
    return None


def unsupported_dtype(call: Call) -> str | None:
    """Why the kernels do not compute in the call's dtype."""
    if call.query.dtype not in _DTYPES or (isinstance(call.bias, Tensor) and call.bias.dtype not in _DTYPES):
        return "native kernels compute float64, float32, float16 and bfloat16"
    return None


def differentiable_tensors(call: Call, form: KernelForm | None) -> list[Tensor]:
    """All that the call may be differentiated in."""
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
        tensors.append(call.bias if isinstance(call.bias, Tensor) else call.bias.source)
    if type(call.normalizer) is Softmax:
        if isinstance(call.normalizer.temperature, Tensor):
            tensors.append(call.normalizer.temperature)
        if call.normalizer.sink is not None:
            tensors.append(call.normalizer.sink)
    return tensors


def is_learned(tensor: Tensor) -> bool:
    """Whether a gradient may be computed for the tensor."""
    return tensor.requires_grad and torch.is_grad_enabled()
