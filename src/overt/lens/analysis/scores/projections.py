"""The matrices of every head without their names: one pass finds the rows of linear maps that compute its query, key and value.

A pass of one text is traced. A head's query at position 0, which rotations by position do not change, is a selection of the outputs of
the last linear map on its path, so the gradient of Σ d · query_d there is the number d at the output that became feature d. That holds
for separate matrices, for all queries before all keys, and for query, key and value head by head.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.lens.analysis.contributions.arguments import checked_model, whole_text
from overt.lens.analysis.contributions.traced import Point, Traced, traced
from overt.lens.analysis.scores.matrices import KINDS, LayerMatrices
from overt.lens.statistics.output_norms import output_matrix, weight_matrix

_BASE = 16  # base of the digits of d, which are exact in half precision
_NO_MAP = "no module with a matrix on the way to its heads"


class _Ran(NamedTuple):
    """A linear map as it ran: its name, its matrix (out, in), its output on the linear paths, and the counts of module calls so far."""

    name: str
    matrix: Tensor
    output: Tensor
    calls: dict[str, int]


@torch.enable_grad()
def matrices_in_pass(model: nn.Module, inputs: Mapping[str, Any] | Tensor) -> tuple[dict[int, LayerMatrices], dict[str, str]]:
    """The matrices of attention layers by the number of their call in a pass, and the reasons for layers without any."""
    model = checked_model(model)
    args, kwargs = whole_text(model, inputs)
    run, ran = _run(model, args, kwargs)
    layers, missing = dict[int, LayerMatrices](), dict(run.missing)
    for index, point in enumerate(run.points):
        try:
            layers[index] = _layer_matrices(model, run, index, ran)
        except InputError as error:
            missing[point.layer] = error.got
    return layers, missing


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Traced, list[_Ran]]:
    ran, calls = list[_Ran](), dict[str, int]()

    def counting(name: str) -> Any:
        def count(module: nn.Module, arguments: Any) -> None:
            calls[name] = calls.get(name, 0) + 1

        return count

    def noting(name: str, matrix: Tensor) -> Any:
        def note(module: nn.Module, arguments: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.requires_grad:
                # The output of a layer with a bias is a view, and its query another view of the same numbers.
                ran.append(_Ran(name, matrix, output if output._base is None else output._base, dict(calls)))

        return note

    named = [(name, module, weight_matrix(module)) for name, module in model.named_modules()]
    hooks = [module.register_forward_hook(noting(name, matrix)) for name, module, matrix in named if matrix is not None]
    hooks += [module.register_forward_pre_hook(counting(name)) for name, module, _ in named]
    try:
        return traced(model, args, kwargs, 0), ran
    except Exception as error:  # a model of another library may raise any error
        got = f"inputs that it does not run on ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
        raise InputError("inputs of one pass of the model", got=got, fix="pass inputs=, as the model gets them") from error
    finally:
        for hook in hooks:
            hook.remove()


def _layer_matrices(model: nn.Module, run: Traced, index: int, ran: list[_Ran]) -> LayerMatrices:
    point, parts, reads = run.points[index], list[Tensor](), list[frozenset[int]]()
    for kind in KINDS:
        tensor = getattr(point, kind)
        if tensor is None or not tensor.requires_grad:
            raise _refusal(
                f"no {kind} that can be followed to the stream (a linear token mixer, or attention in another layout)"
            )
        reads.append(_reached(run, index, tensor))
        source = _last_map(tensor, ran, point.layer)
        first = tensor.reshape(-1, *tensor.shape[-2:])[: point.heads if tensor.ndim < 4 else tensor.shape[-3], 0]
        parts.append(torch.stack([source.matrix[_rows(features, source, kind)] for features in first]).detach().double())
    query, key, value = parts
    output = output_matrix(model, point.layer, len(query), value.shape[1])
    if isinstance(output, str):
        raise _refusal(output)
    key, value = (part.repeat_interleave(len(query) // len(part), 0) for part in (key, value))
    return LayerMatrices(point.layer, query, key, value, output.double().transpose(0, 1), tuple(reads))


def _reached(run: Traced, index: int, tensor: Tensor) -> frozenset[int]:
    """The earlier calls whose outputs reach this tensor by linear paths."""
    run.forget()
    weights = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0)).to(tensor)
    run.follow((tensor * weights).sum(), [])
    reached = [number for number, point in enumerate(run.points[:index]) if _passes(point)]
    run.forget()
    return frozenset(reached)


def _passes(point: Point) -> bool:
    return point.gradient is not None and bool(point.gradient.any())


def _last_map(tensor: Tensor, ran: list[_Ran], layer: str) -> _Ran:
    """The last linear map on the paths to this tensor. Raises if the layer has another one before it."""
    outputs = [entry.output for entry in ran]
    if not outputs:
        raise _refusal(_NO_MAP)
    gradients = torch.autograd.grad(tensor.double().square().sum(), outputs, retain_graph=True, allow_unused=True)
    on_path = [entry for entry, gradient in zip(ran, gradients, strict=True) if gradient is not None and bool(gradient.any())]
    if not on_path:
        raise _refusal(_NO_MAP)
    last = on_path[-1]
    call = last.calls.get(layer)
    before = [entry for entry in on_path[:-1] if entry.name.startswith(f"{layer}.") and entry.calls.get(layer) == call]
    if before:
        raise _refusal(f"{last.name} behind {before[-1].name}, a product of two matrices")
    return last


def _rows(features: Tensor, source: _Ran, kind: str) -> Tensor:
    """The numbers of the map's outputs that became the features (D,) of a head, in the order of the features."""
    numbers = torch.arange(len(features), device=features.device)
    plain = _marked(features, torch.ones_like(numbers), source)
    used = plain.nonzero().flatten()
    order, exact = torch.zeros(len(used), device=features.device, dtype=torch.long), True
    for scale in (_BASE**power for power in range(len(f"{len(features) - 1:x}"))):  # the digits of the last feature's number
        digits = _marked(features, numbers // scale % _BASE, source)[used] / plain[used]
        order += digits.round().long() * scale
        exact &= bool(((digits - digits.round()).abs() < 0.1).all())
    sorted_numbers, columns = order.sort()
    if not exact or not torch.equal(sorted_numbers, numbers):
        raise _refusal(f"a {kind} that is no selection of the outputs of {source.name}")
    return used[columns]


def _marked(features: Tensor, factors: Tensor, source: _Ran) -> Tensor:
    """The gradient of a weighted sum of a head's features with respect to the outputs of the map."""
    [gradient] = torch.autograd.grad((features.double() * factors).sum(), [source.output], retain_graph=True)
    return gradient.double().reshape(-1, len(source.matrix)).sum(0)


def _refusal(got: str) -> InputError:
    return InputError("a layer whose query, key and value are outputs of linear maps", got=got, fix="choose another layer")
