"""The largest difference that rounding may cause between two correct computations of a linear recurrence."""

from dataclasses import replace

import torch
from torch import Tensor

from overt.lens.linear.chunks import Chunks
from overt.lens.linear.decays import ZERO, Decays
from overt.lens.linear.recurrence import Recurrence

WINDOW = 256  # the most positions over which models cumulate logs of decays and add up products


def rounding_bound(recurrence: Recurrence, rows: Tensor, output: Tensor, sums: torch.dtype) -> Tensor:
    """The rounding bound of these queries' outputs, `output` (B, H, rows, E), for sums in the dtype `sums`: (B, H, rows, E).

    Errors are relative, of size ε of this dtype, with random signs, so their squares add up:

    - The state S is rounded at each of the n = t − i + 1 positions from i to t, and a sum over D features D times. Its entries are
      sums of the written terms k_i v_iᵀ and u_i y_iᵀ, where y_i = p_iᵀ S is the probe's reading. A query reads them through the decays
      a_ti between both positions: Σ_i (n + D) Σ_d (q_td a_tid)² (k_id² v_ie² + u_id² y_ie²), and a start state S through
      Σ_d (t + D) (q_td a_td)² S_de². Erasing only shortens r, so this term ignores it.
    - A probe's reading is also a sum, with an error of the root of D Σ_d p_id² M_ide, where M has the squares of the terms of S. The
      key u_i writes this error, which adds Σ_i Σ_d (q_td a_tid u_id)² D Σ_d' p_id'² M_id'e.
    - Models in chunks use a_ti = exp(g_t − g_i) of cumulated logs, with an error of ε |g| ≤ ε Γ_t, the sum of |log a| over the last
      `WINDOW` positions. One decay per head moves the weights by Γ_t W_ti, all together by g_t and separately by g_i:
      Γ_t² (o_te² + Σ_i W_ti² v_ie²). Decays by feature add Γ_td² to n + D.
    - Weights times values are added up over at most `WINDOW` positions: WINDOW Σ_i W_ti² v_ie².

    The bound is four times ε times the root of the sum. A normalizer divides it, and is itself a sum of weights, which adds
    4 ε |o_te| (WINDOW Σ_i W_ti²)^½.
    """
    ready = recurrence.double().ready()
    weights, squares = Chunks(ready).weights(rows.tolist()), ready.value.square()
    sum_error = WINDOW * (weights.square() @ squares)
    error = _state_errors(ready, rows) + sum_error
    if ready.log_decay is not None and ready.log_decay.shape[-1] == 1:
        gamma = _cumulated(ready, rows).square()
        error = error + gamma * (output.square() + sum_error / WINDOW)
    if ready.normalizer is not None:
        error = error + output.square() * WINDOW * weights.square().sum(-1, keepdim=True)
    return 4 * torch.finfo(sums).eps * error.sqrt()


def stored(output: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest error of storing an output in a dtype: ε times its size plus the dtype's smallest number.

    >>> float(stored(torch.zeros(()), torch.float16))
    5.960464477539063e-08
    """
    limits = torch.finfo(dtype)
    return limits.eps * output.abs() + limits.tiny * limits.eps


def _state_errors(ready: Recurrence, rows: Tensor) -> Tensor:
    """The squares of the errors of the state, as each query reads them: (B, H, rows, E)."""
    features, value = ready.query.shape[-1], ready.value.square()  # D, (B, H, K, E)
    doubled = None if ready.log_decay is None else 2 * ready.log_decay
    start = None if ready.start is None else ready.start.square()
    squared = Recurrence(ready.key.square(), ready.key.square(), value, doubled, reads="before", start=start)
    written = [(squared.key, value)]
    probe_error = None
    if ready.erase is not None and ready.probe is not None:
        probing = replace(ready, query=ready.probe, reads="before", diagonal=None, normalizer=None)
        read, erase, probe = Chunks(probing).output().square(), ready.erase.square(), ready.probe.square()
        written.append((erase, read))
        erasing = replace(squared, query=probe, key=erase, value=read, start=None)
        probe_error = features * (Chunks(replace(squared, query=probe)).output() + Chunks(erasing).output())
    decays, gamma = Decays(doubled, ready.keys), _cumulated(ready, rows)
    errors = []
    for index, row in enumerate(rows.tolist()):
        last = row + ready.keys - ready.queries - int(ready.reads == "before")
        asking = ready.query[:, :, row, None].square() * decays.to_position(last)  # (B, H, i, D)
        times = torch.arange(last + 1, 0, -1, device=rows.device)[:, None] + features  # (i, 1)
        by_feature = gamma[:, :, index, None].square() if gamma.shape[-1] > 1 else 0.0
        sizes = [((times + by_feature) * asking * key[:, :, : last + 1]).sum(-1)[:, :, None] for key, _ in written]
        error = sum((size @ term[:, :, : last + 1] for size, (_, term) in zip(sizes, written, strict=True)), torch.zeros(()))
        if probe_error is not None:
            error = error + (asking * written[1][0][:, :, : last + 1]).sum(-1)[:, :, None] @ probe_error[:, :, : last + 1]
        if start is not None:
            left = decays.from_start()
            left = left[:, :, last + 1, None] if isinstance(left, Tensor) else left
            error = error + (last + 1 + features) * ((ready.query[:, :, row, None].square() * left) @ start)
        errors.append(error)
    result = torch.cat([error.to(value).expand(*value.shape[:2], 1, value.shape[-1]) for error in errors], dim=2)
    return result if ready.normalizer is None else result / ready.normalizer[:, :, rows, None].square()


def _cumulated(ready: Recurrence, rows: Tensor) -> Tensor:
    """Γ: the sum of |log a| over the last positions that each query's state has read, (B, H, rows, 1 or D)."""
    if ready.log_decay is None:
        return ready.query.new_zeros(*ready.query.shape[:2], len(rows), 1)
    sizes = torch.where(ready.log_decay < ZERO, 0, ready.log_decay.abs()).cumsum(2)
    sizes = torch.nn.functional.pad(sizes, (0, 0, 1, 0))
    stop = rows + ready.keys - ready.queries + 1
    return sizes[:, :, stop] - sizes[:, :, (stop - WINDOW).clamp(min=0)]
