"""Other ways to dot-product attention on the CPU: grouped heads packed by hand, torch.compile, FlexAttention and ONNX Runtime."""

import importlib.util
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from overt.bench.cases import DOTS, DotKind, Inputs, padded_lengths, scattered_pairs
from overt.bench.contenders.contender import Contender, Run, Unable, differentiated
from overt.bench.contenders.dots import document_ids, tensor_mask

_MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operators


def contenders(work: str) -> list[Contender]:
    """Those that serve this kind of work, besides overt and torch's fused kernel."""
    kind = DOTS[work]
    if kind.dropout or kind.biased or (kind.documents and kind.backward):
        return []
    # ONNX Runtime's operators would take these as a mask of all pairs alone.
    of_all_pairs = kind.documents or kind.tensor in ("causal", "scattered")
    usable: dict[str, tuple[Callable[..., tuple[Run, str]], bool]] = {
        "torch.compile": (_compiled, not kind.documents),
        "torch SDPA, heads packed": (_packed, kind.group > 1),
        "FlexAttention": (_flex, not kind.backward),
        "ONNX Runtime": (_onnx, not kind.backward and not of_all_pairs and not work.startswith("half")),
    }
    return [Contender(name, partial(prepare, kind=kind)) for name, (prepare, serves) in usable.items() if serves]


def _packed(inputs: Inputs, kind: DotKind) -> tuple[Run, str]:
    """The query heads of a group as rows of one head, as transformers calls it for decoding: one query each, so that no mask is needed."""

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        rows = query.unflatten(-3, (-1, kind.group)).flatten(-3, -2)  # (B, H / group, group · Q, D)
        output = functional.scaled_dot_product_attention(rows, key, value)
        return output.unflatten(-2, (kind.group, -1)).flatten(-4, -3)

    return differentiated(attention, inputs.tensors[:3]), ""


def _compiled(inputs: Inputs, kind: DotKind) -> tuple[Run, str]:
    """torch.compile of the formula; it knows some forms of it as its fused kernel's."""
    mask = _visible(inputs, kind)

    def formula(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = (tensor.repeat_interleave(kind.group, -3) if kind.group > 1 else tensor for tensor in (key, value))
        scores = query @ key.mT / query.shape[-1] ** 0.5
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(-1) @ value

    torch.compiler.reset()  # else it gives up after eight shapes
    return differentiated(torch.compile(formula, dynamic=False), inputs.tensors[:3]), "the formula"


def _flex(inputs: Inputs, kind: DotKind) -> tuple[Run, str]:
    """torch's FlexAttention, compiled, with a block mask where there is a mask; forward only, since it has no other pass on a CPU."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask, (rows, keys) = _rule(inputs, kind), (inputs.query.shape[-2], inputs.key.shape[-2])
    batch = len(inputs.query) if kind.tensor == "padding" else None
    block_mask = None if mask is None else create_block_mask(mask, batch, None, rows, keys, device="cpu")
    torch.compiler.reset()
    compiled: Any = torch.compile(flex_attention, dynamic=False)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return compiled(query, key, value, block_mask=block_mask, enable_gqa=kind.group > 1)

    return differentiated(attention, inputs.tensors[:3]), "compiled"


def _onnx(inputs: Inputs, kind: DotKind) -> tuple[Run, str]:
    """ONNX Runtime's MultiHeadAttention, and for a step over cached keys GroupQueryAttention."""
    for package in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            raise Unable(f"not installed: pip install {package}")
    if inputs.query.dtype != torch.float32:
        raise Unable("its operators take float32 on a CPU")
    return (_grouped if kind.group > 1 else _multi_head)(inputs, kind)


def _multi_head(inputs: Inputs, kind: DotKind) -> tuple[Run, str]:
    heads = inputs.query.shape[-3]
    feeds = {
        name: tensor.transpose(-3, -2).flatten(-2).contiguous().numpy()  # (B, N, H · D)
        for name, tensor in zip(("query", "key", "value"), inputs.tensors[:3], strict=True)
    }
    names = [*feeds]
    if kind.tensor == "padding":
        feeds["lengths"] = np.array(padded_lengths(len(inputs.query), inputs.key.shape[-2]), np.int32)
        names += ["", "lengths"]
    model = _model("MultiHeadAttention", names, ["output"], feeds, num_heads=heads, unidirectional=int(kind.causal))

    def run(upstream: Tensor | None) -> dict[str, Tensor]:
        [output] = _session(model, torch.get_num_threads()).run(None, feeds)
        return {"output": torch.from_numpy(output).unflatten(-1, (heads, -1)).transpose(-3, -2)}

    return run, "MultiHeadAttention"


def _grouped(inputs: Inputs, kind: DotKind) -> tuple[Run, str]:
    """The last key and value are the new ones, and the others cached: it writes them into the cache, which is its result's memory too."""
    query, key, value = inputs.tensors[:3]
    cached, heads = key.shape[-2], query.shape[-3]
    feeds = {
        "query": query.transpose(-3, -2).flatten(-2).contiguous().numpy(),
        "key": key[..., -1:, :].transpose(-3, -2).flatten(-2).contiguous().numpy(),
        "value": value[..., -1:, :].transpose(-3, -2).flatten(-2).contiguous().numpy(),
        "past_key": key.contiguous().numpy(),
        "past_value": value.contiguous().numpy(),
        "seqlens": np.full(len(query), cached - 1, np.int32),
        "total": np.array(cached, np.int32),
    }
    options = {"num_heads": heads, "kv_num_heads": heads // kind.group}
    model = _model("GroupQueryAttention", [*feeds], ["output", "present_key", "present_value"], feeds, **options)

    def run(upstream: Tensor | None) -> dict[str, Tensor]:
        threads = torch.get_num_threads()
        binding = bound(threads)
        _session(model, threads).run_with_iobinding(binding)
        return {"output": torch.from_numpy(binding.get_outputs()[0].numpy()).unflatten(-1, (heads, -1)).transpose(-3, -2)}

    @cache
    def bound(threads: int) -> Any:
        import onnxruntime

        binding = _session(model, threads).io_binding()
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_output("output", "cpu")
        for name in ("key", "value"):
            binding.bind_ortvalue_output(f"present_{name}", values[f"past_{name}"])
        return binding

    return run, "GroupQueryAttention"


def _model(operator: str, inputs: list[str], outputs: list[str], feeds: dict[str, np.ndarray], **attributes: Any) -> bytes:
    """A model of one operator."""
    from onnx import TensorProto, helper

    def info(name: str) -> Any:
        kind = TensorProto.INT32 if feeds[name].dtype == np.int32 else TensorProto.FLOAT
        return helper.make_tensor_value_info(name, kind, feeds[name].shape)

    node = helper.make_node(operator, inputs, outputs, domain=_MICROSOFT, **attributes)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], operator, [info(name) for name in feeds], results)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=9).SerializeToString()


@cache
def _session(model: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _visible(inputs: Inputs, kind: DotKind) -> Tensor | None:
    """The mask as a bool tensor, for the cases that have one."""
    if kind.causal:
        rows, keys = inputs.query.shape[-2], inputs.key.shape[-2]
        return torch.ones(rows, keys, dtype=torch.bool).tril()
    return tensor_mask(inputs, kind)


def _rule(inputs: Inputs, kind: DotKind) -> Callable[..., Tensor] | None:
    """The mask as FlexAttention takes it: whether a query may attend to a key, from their numbers."""
    keys = inputs.key.shape[-2]
    if kind.documents:
        ids = document_ids(kind, keys)
        return lambda entry, head, row, column: ids[row] == ids[column]
    if kind.tensor == "padding":
        lengths = torch.tensor(padded_lengths(len(inputs.query), keys))
        return lambda entry, head, row, column: column < lengths[entry]
    if kind.tensor == "scattered":
        pairs = scattered_pairs(inputs.query.shape[-2], keys)
        return lambda entry, head, row, column: pairs[row, column]
    if kind.causal or kind.tensor == "causal":
        return lambda entry, head, row, column: column <= row
    return None
