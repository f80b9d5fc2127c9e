"""When torch's CPU kernels are faster in half precision than the native core, which computes it in float32: measured.

Without matrix units the core was faster at every length and width in `docs/results/dot-more.json`, except for few queries and many keys.
With them (AMX), torch was faster beyond 128 queries or keys, except in bfloat16 if the core uses the same units: there the
core took half of torch's time or less.
"""

import torch

from overt import native
from overt.attention.kernels.call import Call

DTYPES = (torch.float16, torch.bfloat16)
_SHORT = 128  # queries and keys up to which the core is faster than torch with matrix units
_FEW = range(2, 9)  # numbers of queries for which torch's kernel is faster if there are many keys


def _supported(name: str) -> bool:
    """Whether torch reports this feature of the processor."""
    check = getattr(torch.cpu, name, None)
    return bool(check and check())


MATRIX_UNITS = {
    torch.bfloat16: _supported("_is_amx_tile_supported"),
    torch.float16: _supported("_is_amx_fp16_supported"),
}


def torch_is_faster(call: Call) -> str | None:
    """Why torch's kernel was faster for this kind of call in half precision; None if the native core was."""
    dtype, queries, keys = call.query.dtype, call.queries, call.keys
    if dtype == torch.bfloat16 and _core_has_matrix_units():
        return None
    if MATRIX_UNITS[dtype] and max(queries, keys) > _SHORT:
        return f"beyond {_SHORT} queries or keys torch's kernel is faster in half precision, by the processor's matrix units"
    grouped = call.key.shape[:-2] != call.query.shape[:-2]
    if dtype == torch.bfloat16 and queries in _FEW and keys > _SHORT and not grouped and not _differentiated(call):
        return "for a few queries against many keys torch's kernel is faster in bfloat16"
    return None


def _core_has_matrix_units() -> bool:
    # torch.compile cannot trace into the core
    return not torch.compiler.is_compiling() and native.available() and native.unit() == "amx"


def _differentiated(call: Call) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (call.query, call.key, call.value))
