"""The path through the native kernels: which calls they serve, and what such a call is to them."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch.autograd import forward_ad

from overt import native
from overt.attention.kernels.call import Call, unrounded
from overt.attention.kernels.flat import additive as flat_additive
from overt.attention.kernels.flat import dot as flat_dot
from overt.attention.kernels.flat import dot_scores, mask_program
from overt.attention.kernels.flat.dot_scores import fits
from overt.attention.kernels.flat.operator import INTERPRETED
from overt.attention.normalizers import Softmax
from overt.attention.scores import Additive, Score

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
MISSING = native.why_not()


def refusal(call: Call) -> str | None:
    """Why the native kernels cannot serve this call; None where they can."""
    if type(call.score) is Additive:
        return other_additive(call) or other_place(call)
    return other_place(call) or other_softmax(call) or _other_mode(call) or _other_dot(call)


def other_additive(call: Call) -> str | None:
    """Why no kernel of additive attention can serve this call, wherever it is."""
    if type(call.score) is not Additive:
        return "the score is not overt.Additive"
    if not fits(call.score.weight.shape[:-1], call.batch):
        return "the score's weight has other leading dimensions than the call"
    return other_softmax(call) or _other_mode(call)


def _other_dot(call: Call) -> str | None:
    learned = isinstance(call.normalizer.temperature, Tensor) and _learned(call.normalizer.temperature)
    if learned and getattr(call.score, "softcap", None) is not None:
        return "the temperature is learned, and divides scores under a soft cap"
    return dot_scores.refusal(call)


def slower_than_torch(call: Call) -> str | None:
    """Why torch's kernel is quicker at a dot product that both compute, if it is."""
    if call.query.dtype in (torch.float16, torch.bfloat16):
        return "torch's kernel multiplies half precision as it is"
    narrow = not torch.compiler.is_compiling() and native.level() == "baseline"  # torch.compile cannot look into the core
    return "torch's kernel has wider vectors than the core's baseline" if narrow else None


def other_softmax(call: Call) -> str | None:
    """What the native softmax lacks for this call: its normalizer, its bias or its mask."""
    if type(call.normalizer) is not Softmax:
        return "the normalizer is not a softmax"
    temperature, sink = call.normalizer.temperature, call.normalizer.sink
    if isinstance(temperature, Tensor):
        if not fits(temperature.shape, (*call.batch, 1, 1)):
            return "the temperature differs between queries or keys"
        if isinstance(call.bias, Tensor) and _learned(temperature):
            return "the temperature is learned, and multiplies a bias of Q × K numbers"
    if sink is not None and not fits(sink.shape, call.batch):
        return "the sink has another number of heads than the call"
    if not isinstance(call.bias, Tensor | None) and not call.bias.by_distance:
        return f"native kernels do not know the bias {type(call.bias).__name__}"
    return mask_program.refusal(call.mask)


def _other_mode(call: Call) -> str | None:
    if call.transformed and not _only_vmap():
        return "of torch.func's transforms, only vmap passes through native kernels"
    if call.transformed and call.dropout > 0:
        return "one call of a native kernel has one seed of dropout, also under vmap"
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in held(call)):
        return "native kernels have no forward-mode derivative"
    return None


def other_place(call: Call) -> str | None:
    """Why no native kernel runs where the call is."""
    if reason := exported():
        return reason
    if not all(tensor.is_cpu for tensor in held(call)):
        return "native kernels run on the CPU"
    if INTERPRETED:
        return "with TRITON_INTERPRET=1 Triton's interpreter stands in for the native core"
    return other_dtype(call) or (MISSING and f"the native core is not available: {MISSING}")


def exported() -> str | None:
    """Whether the call is written into a program, as a reason against kernels."""
    if torch.compiler.is_exporting() or torch.jit.is_tracing():  # type: ignore[reportPrivateImportUsage]
        return "an exported program holds the plain formula, which runs without overt"
    return None


def other_dtype(call: Call) -> str | None:
    """Why our kernels do not compute in the call's dtype."""
    if call.query.dtype not in _DTYPES or (isinstance(call.bias, Tensor) and call.bias.dtype not in _DTYPES):
        return "native kernels compute float64, float32, float16 and bfloat16"
    return None


def held(call: Call) -> list[Tensor]:
    """All that the call may be differentiated in."""
    bias = call.bias if call.bias is None or isinstance(call.bias, Tensor) else call.bias.source
    held = [call.query, call.key, call.value, *(getattr(call.score, name, None) for name in ("weight", "scale")), bias]
    if type(call.normalizer) is Softmax:
        held += [call.normalizer.temperature, call.normalizer.sink]
    return [tensor for tensor in held if isinstance(tensor, Tensor)]


def _only_vmap() -> bool:
    return all(layer.key() == TransformType.Vmap for layer in retrieve_all_functorch_interpreters())


def _learned(tensor: Tensor) -> bool:
    return tensor.requires_grad and torch.is_grad_enabled()


def served(call: Call) -> Tensor:
    """The output, by the native kernel."""
    bias, heat = heated(call, bias_of(call))
    sink = call.normalizer.sink
    rest = (
        list(call.batch),
        *mask_of(call),
        bias,
        bias is not None and not isinstance(call.bias, Tensor),
        None if sink is None else sink.to(call.dtype),
        heat,
        call.dropout,
        torch.randint(2**62, (), device=call.query.device) if call.dropout > 0 else None,
    )
    return (_additive(call, rest) if type(call.score) is Additive else _dot(call, rest)).to(call.query.dtype)


def _additive(call: Call, rest: tuple[Any, ...]) -> Tensor:
    weight, temperature = call.score.weight.to(call.dtype), _learned_temperature(call)
    if temperature is not None:
        weight = weight / temperature.squeeze(-1)  # (..., D)
    given = flat_additive.Given(call.query, call.key, call.value, weight, call.score.activation, *rest)
    return flat_additive.additive(given)


def _dot(call: Call, rest: tuple[Any, ...]) -> Tensor:
    temperature = _learned_temperature(call)
    if temperature is None and dot_scores.as_given(call):
        return flat_dot.dot(flat_dot.Given(*dot_scores.of(call), *rest))
    with unrounded(call.query):
        query, key, value, scale, softcap = dot_scores.of(call)
        if temperature is not None:
            query, key, value = query.to(call.dtype) / temperature, key.to(call.dtype), value.to(call.dtype)
    return flat_dot.dot(flat_dot.Given(query, key, value, scale, softcap, *rest))


def mask_of(call: Call) -> tuple[list[int], list[Tensor]]:
    """The mask's program and the arrays that it reads."""
    return mask_program.lowered(call.mask, call.queries, call.keys, call.query.device)


def bias_of(call: Call) -> Tensor | None:
    """What is added to each score, (..., Q or 1, K or 1); of a bias that knows distances alone, (..., Q + K − 1) of them."""
    if call.bias is None:
        return None
    if isinstance(call.bias, Tensor):
        return call.bias.reshape((1,) * (2 - call.bias.ndim) + tuple(call.bias.shape))
    # The last query's row, over all places from which a key can be seen: distance j − i stands at j − i + Q − 1.
    last, places = max(call.queries - 1, 0), max(call.queries + call.keys - 1, 0)
    device = call.query.device
    return call.bias.block(torch.arange(last, last + 1, device=device), torch.arange(places, device=device)).squeeze(-2)


def heated(call: Call, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Bias and heat, 1 / temperature. A learned temperature divides the scores and the bias instead, and so has a gradient."""
    if (learned := _learned_temperature(call)) is not None:
        return None if bias is None else bias / learned.squeeze(-1), None  # a bias by distance, (..., Q + K - 1)
    temperature = call.normalizer.temperature
    if isinstance(temperature, Tensor):
        return bias, (1 / temperature.double()).reshape(temperature.shape[:-2])
    return bias, None if temperature == 1 else torch.full((), 1 / temperature, dtype=torch.float64, device=call.query.device)


def _learned_temperature(call: Call) -> Tensor | None:
    """The temperature (..., 1, 1), where it is learned."""
    temperature = call.normalizer.temperature
    if not isinstance(temperature, Tensor) or not _learned(temperature):
        return None
    return temperature if temperature.ndim else temperature[None, None]


def scored(call: Call) -> Call:
    """A ready call whose additive scores come from the native kernel, where it can give them: it holds no (..., Q, K, D)."""
    if MISSING and type(call.score) is Additive and not torch.compiler.is_compiling():
        native.warn_if_missing()
    return replace(call, score=NativeScores(call.score.weight, call.score.activation)) if scores(call) else call


def scores(call: Call) -> bool:
    """Whether the native kernel can give the scores of a call that it cannot serve as a whole."""
    return type(call.score) is Additive and not (call.transformed or _other_mode(call) or other_place(call))


@dataclass(frozen=True, eq=False)
class NativeScores(Score):
    """`overt.Additive`, its scores computed by the native kernel in one pass."""

    weight: Tensor
    activation: str

    def __call__(self, query, key):
        """Score each query (..., Q, D) against each key (..., K, D): (..., Q, K)."""
        batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], self.weight.shape[:-1])
        return flat_additive.additive_scores(query, key, self.weight.to(query.dtype), self.activation, batch)
