"""A recurrence over a stretch of positions as matrices, by a triangular system instead of steps."""

import torch
from torch import Tensor

from overt.lens.linear.decays import Decays


class Stretch:
    """The effect of a stretch of N positions on the values written in it and on the state S before it.

    Position i's probe reads y_i = Σ_{j<i} (p_i · k_j) v_j + Σ_{j<i} (p_i · u_j) y_j + p_iᵀ S, where each product includes the
    decays between both positions: a triangular system (the UT transform; Yang et al. 2024, "Parallelizing Linear Transformers with
    the Delta Rule over Sequence Length", section 3). An output is then o_t = Σ_j (q_t · k_j) v_j + Σ_j (q_t · u_j) y_j + q_tᵀ S.

    Shapes: query, key, erase and probe (B, H, N, D), log_decay (B, H, N, 1 or D), all of one dtype.

    weights (B, H, N, N): the weight of each value for each query. asking (B, H, N, D): each query's factor of the state before.
    written (B, H, D, N): each value's contribution to the state after the stretch, as columns.
    carried (B, H, D, D): the factor of the state before the stretch; without erasure one factor for each row, (B, H, 1 or D, 1).
    """

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        log_decay: Tensor | None,
        erase: Tensor | None,
        probe: Tensor | None,
        reads: str,
    ):
        decays = Decays(log_decay, key.shape[2])
        start, end = decays.from_start(), decays.to_position(key.shape[2] - 1)
        start = start.to(key.dtype) if isinstance(start, Tensor) else key.new_ones(*key.shape[:2], key.shape[2] + 1, 1)
        # Reading the state after a position equals reading the state before it and also the position's own key.
        earlier = query if log_decay is None or reads == "before" else query * log_decay.exp()
        readers, writers = [earlier] if probe is None else [earlier, probe], [key] if erase is None else [key, erase]
        products = decays.products(readers, writers)
        if reads == "after":
            for writer, product in zip(writers, products[0], strict=True):
                product.diagonal(0, -2, -1).add_((query * writer).sum(-1))
        self.weights: Tensor = products[0][0]
        self.asking: Tensor = earlier * start[:, :, :-1]
        self.written: Tensor = (key * end).to(key.dtype).mT
        self.carried: Tensor = start[:, :, -1:].mT
        if erase is not None and probe is not None:
            key_products, erase_products = products[1]
            value_factors, state_factors = _solved(key_products, erase_products, probe * start[:, :, :-1])
            left = (erase * end).to(key.dtype).mT  # (B, H, D, N)
            identity = torch.eye(key.shape[-1], dtype=key.dtype, device=key.device)
            self.weights = self.weights + products[0][1] @ value_factors
            self.asking = self.asking + products[0][1] @ state_factors
            self.written = self.written + left @ value_factors
            self.carried = identity * self.carried + left @ state_factors


def _solved(key_products: Tensor, erase_products: Tensor, state_factors: Tensor) -> tuple[Tensor, Tensor]:
    """Each probe's reading, as factors of the values (B, H, N, N) and of the rows of the state before (B, H, N, D)."""
    size = key_products.shape[-1]
    system = torch.eye(size, dtype=key_products.dtype, device=key_products.device) - erase_products
    sides = torch.cat([key_products, state_factors], dim=-1)
    both = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    return both[..., :size], both[..., size:]
