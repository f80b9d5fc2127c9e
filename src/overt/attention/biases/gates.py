"""Forgetting attention: gates that reduce the scores of earlier tokens."""

from typing import ClassVar

import torch
from torch import Tensor

from overt.attention.biases.base import Bias
from overt.attention.biases.lines import LineBias
from overt.attention.check import float_tensor
from overt.attention.pieces import piece, readable
from overt.errors import InputError

_LOGARITHMS = "log_gates of overt.biases.Forget to be logarithms of gates above 0 and at most 1"


@piece
class Forget(Bias):
    """Forgetting attention: Σ_{j<t≤i} log f_t is added to the score of query i and key j. Lin et al. 2025, section 3.

    `log_gates` (..., K), such as (B, H, K), has the logarithm of each token's gate f_t, as `torch.nn.functional.logsigmoid` gives
    it. The Q queries are the last of the K tokens, as under `Causal`; without that mask, a key after a query gains
    −Σ_{i<t≤j} log f_t, the sum of the gates between them. The sums are differences of float64 prefix sums, two numbers a token.
    Gradients reach the gates. Raises InputError for gates that are 0, above 1 or NaN, and for lengths other than the call's.

    >>> Forget(torch.tensor([-9.0, -1.0, -2.0])).bind(0, 2, 3).block(torch.arange(2), torch.arange(3))
    tensor([[-1.,  0.,  2.],
            [-3., -2.,  0.]], dtype=torch.float64)
    """

    log_gates: Tensor

    trailing: ClassVar[dict[str, int] | None] = {"log_gates": 1}

    def __post_init__(self) -> None:
        float_tensor("log_gates of overt.biases.Forget", self.log_gates)
        if self.log_gates.ndim < 1:
            raise InputError("log_gates of overt.biases.Forget (..., K)", got="()", fix="pass one number for each key")
        if not readable(self.log_gates):
            return
        with torch._C.DisableTorchFunction():
            least, largest = (number.item() for number in self.log_gates.detach().aminmax())
        if not -torch.inf < least <= largest <= 0:
            raise InputError(
                _LOGARITHMS,
                got=f"numbers from {least:g} to {largest:g}",
                fix="pass torch.nn.functional.logsigmoid(gates), or gates.log()",
            )

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """Compute prefix sums of the queries' gates, and negated prefix sums of all tokens' gates."""
        if self.log_gates.shape[-1] != keys or queries > keys:
            raise InputError(
                f"log_gates (..., {max(queries, keys)}) in overt.biases.Forget, one for each key, and no more queries than keys",
                got=f"{tuple(self.log_gates.shape)} for {queries} queries and {keys} keys",
                fix="pass the gates of all tokens that the keys are of",
            )
        sums = self.log_gates.double().cumsum(-1)
        return LineBias(sums[..., keys - queries :], -sums)

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The bias of these rows and keys, if there are as many queries as tokens: (..., rows, keys)."""
        length = self.log_gates.shape[-1]
        return self.bind(0, length, length).block(rows, keys)

    @property
    def leading(self) -> tuple[int, ...]:
        """The dimensions of the gates before the last."""
        return tuple(self.log_gates.shape[:-1])

    @property
    def source(self) -> Tensor:
        """The logarithms of the gates."""
        return self.log_gates
