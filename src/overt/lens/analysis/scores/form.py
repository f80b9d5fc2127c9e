"""A score as a product of query and key, whose two factors are split one after the other."""

from typing import NamedTuple

import torch
from torch import Tensor

from overt.attention.scores import Bilinear, Cosine, Dot
from overt.errors import InputError
from overt.lens.head import Head


class ProductForm(NamedTuple):
    """score_j = scale_j · q W k_j for the keys of one row, in float64, before a softcap. W is the identity if `matrix` is None.

    `softcap` is the bound on the scores, and `frozen` names the factors that the scale holds constant.
    """

    scale: Tensor
    matrix: Tensor | None
    softcap: float | None
    frozen: tuple[str, ...] = ()

    def toward_keys(self, query: Tensor) -> Tensor:
        """Vectors (K, D) whose products with the keys are the scores of the query (D,)."""
        query = query.double() if self.matrix is None else query.double() @ self.matrix
        return self.scale[:, None] * query

    def toward_query(self, keys: Tensor) -> Tensor:
        """Vectors (K, D) whose products with the query are the scores of the keys (K, D)."""
        keys = keys.double() if self.matrix is None else keys.double() @ self.matrix.mT
        return self.scale[:, None] * keys


@torch.no_grad()
def product_form(head: Head, row: int) -> ProductForm:
    """The scores of one query of a head as products. Raises InputError if they are no product of query and key."""
    score, query, keys = head.call.score, head.query[0, row].double(), head.key[0].double()
    if not query.numel():
        raise InputError(
            "a head whose query and key were recorded",
            got=f"{head.layer}, of which the weights alone are known",
            fix="choose a head of a layer that multiplies query and key; recording.layers lists them",
        )
    if isinstance(score, Dot):
        cap = None if score.softcap is None else float(_row_numbers(head, score.softcap, row)[0])
        return ProductForm(_row_numbers(head, score.factor(query), row), None, cap)
    if isinstance(score, Bilinear):
        matrix = score.weight.detach().double()
        return ProductForm(_row_numbers(head, 1.0, row), matrix if matrix.ndim == 2 else matrix[head.index_in_call], None)
    if isinstance(score, Cosine):
        lengths = query.norm() * keys.norm(dim=-1)
        scale = _row_numbers(head, score.scale, row) / torch.where(lengths == 0, 1, lengths)
        return ProductForm(scale, None, None, ("the lengths of query and key, in the cosine",))
    raise InputError(
        "a score that is a product of query and key: overt.Dot, overt.Bilinear or overt.Cosine",
        got=f"{type(score).__name__} in {head.layer}",
        fix="overt.lens.ablate measures what such a head does",
    )


def _row_numbers(head: Head, number: float | Tensor, row: int) -> Tensor:
    """A number of the score form, expanded to each key of one row, (K,)."""
    tensor = torch.as_tensor(number, dtype=torch.float64, device=head.call.query.device)
    if not tensor.ndim:
        return tensor.expand(head.keys)
    return head.part_of(tensor.expand(*head.call.batch, head.queries, head.keys))[0, row]
