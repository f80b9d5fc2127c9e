"""Scores with learned matrices, from the states of a sequence to the score of each pair.

h_i is the state of the query, h_j that of the key; D is their width, A the width of their projections.

| name       | f(h_i, h_j)                       | learned                       | value matrix | source                               |
|------------|-----------------------------------|-------------------------------|--------------|--------------------------------------|
| "additive" | v · tanh(W h_i + U h_j)           | W (A, D), U (A, D), v (A)     | no           | Bahdanau et al. 2015, appendix A.1.2 |
| "concat"   | v · tanh([W, U] · [h_i; h_j])     | the same: one matrix, cut     | no           | Luong et al. 2015, section 3.1       |
| "general"  | h_i · W h_j                       | W (D, D)                      | no           | Luong et al. 2015, section 3.1       |
| "dot"      | (W h_i) · (U h_j) / √A            | W (A, D), U (A, D)            | yes (D, D)   | Vaswani et al. 2017, section 3.2     |
| "cosine"   | β cos(W h_i, h_j)                 | W (D, D), β > 0               | no           | Graves et al. 2014, section 3.3.1    |
| "gaussian" | −‖W h_i − U h_j‖² / (2 √A)        | W (A, D), U (A, D)            | no           | Tsai et al. 2019, section 3          |

No matrix has a bias. The Gaussian's bandwidth is A^¼: where all projected vectors have one norm, this gives the weights of the
scaled dot product. In Graves et al. the network computes the factor β at each step; here it is one learned number. Without projections
"dot" is h_i · h_j, "cosine" cos(h_i, h_j) and "gaussian" −‖h_i − h_j‖² / 2; the other scores need their learned parameters.

Matrices start uniform as in Glorot and Bengio 2010, v uniform within ±1/√A, so that all weights start nearly equal, and β
at √D, with which the scaled cosines of independent vectors have variance 1.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from overt.attention.scores import Additive, Bilinear, Cosine, Dot, Gaussian
from overt.errors import InputError, KindError
from overt.layers.parts.registered import SAVED_NAME, RegisteredPiece


class Scoring(nn.Module):
    """A score with its parameters: `queries` and `keys` project states, `score()` compares the projections.

    `query_features` is None if the query is a learned vector of `query_width` numbers, which is not projected, and no state.
    """

    query_width: int

    def __init__(self):
        super().__init__()
        self.query: nn.Linear | None = None
        self.key: nn.Linear | None = None

    def queries(self, states: Tensor) -> Tensor:
        """The queries of these states: (..., Q, D) to (..., Q, A)."""
        return states if self.query is None else self.query(states)

    def keys(self, states: Tensor) -> Tensor:
        """The keys of these states: (..., K, D) to (..., K, A)."""
        return states if self.key is None else self.key(states)

    def score(self) -> Any:
        """The score with the current parameters."""
        raise NotImplementedError

    def _project(self, query_features: int | None, key_features: int | None, width: int) -> None:
        self.query_width = width
        self.query = None if query_features is None else matrix(query_features, width)
        self.key = None if key_features is None else matrix(key_features, width)


class AdditiveScoring(Scoring):
    """v · tanh(W h_i + U h_j)."""

    def __init__(self, query_features: int | None, key_features: int, width: int):
        super().__init__()
        self._project(query_features, key_features, width)
        self.weight: nn.Parameter = vector(width)

    def score(self) -> Additive:
        """Additive, with v."""
        return Additive(self.weight)


class DotScoring(Scoring):
    """(W h_i) · (U h_j) / √A."""

    def __init__(self, query_features: int | None, key_features: int, width: int):
        super().__init__()
        self._project(query_features, key_features, width)

    def score(self) -> Dot:
        """The scaled dot product."""
        return Dot()


class GeneralScoring(Scoring):
    """h_i · W h_j."""

    def __init__(self, query_features: int | None, key_features: int, width: int):
        super().__init__()
        self.query_width: int = key_features if query_features is None else query_features
        self.weight: nn.Parameter = nn.Parameter(nn.init.xavier_uniform_(torch.empty(self.query_width, key_features)))

    def score(self) -> Bilinear:
        """Bilinear, with W."""
        return Bilinear(self.weight)


class CosineScoring(Scoring):
    """β cos(W h_i, h_j), with β > 0, since its logarithm is the parameter."""

    def __init__(self, query_features: int | None, key_features: int, width: int):
        super().__init__()
        self._project(query_features, None, key_features)
        self.log_strength: nn.Parameter = nn.Parameter(torch.tensor(math.log(key_features) / 2))

    def score(self) -> Cosine:
        """Cosine, with β."""
        return Cosine(scale=self.log_strength.exp())


class GaussianScoring(Scoring):
    """−‖W h_i − U h_j‖² / (2 √A)."""

    def __init__(self, query_features: int | None, key_features: int, width: int):
        super().__init__()
        self._project(query_features, key_features, width)

    def score(self) -> Gaussian:
        """Gaussian, of bandwidth A^¼."""
        return Gaussian(bandwidth=self.query_width**0.25)


class CustomScoring(Scoring):
    """A caller's score, f(h_i, h_j), or with projections f(W h_i, U h_j)."""

    def __init__(self, score: Any, query_features: int | None, key_features: int, width: int, projections: bool):
        super().__init__()
        if projections:
            self._project(query_features, key_features, width)
        else:
            self.query_width = key_features
        setattr(self, SAVED_NAME, RegisteredPiece(score))

    def score(self) -> Any:
        """The caller's score."""
        return getattr(self, SAVED_NAME).current()


LEARNED: dict[str, Callable[[int | None, int, int], Scoring]] = {
    "additive": AdditiveScoring,
    "concat": AdditiveScoring,
    "general": GeneralScoring,
    "dot": DotScoring,
    "cosine": CosineScoring,
    "gaussian": GaussianScoring,
}
PLAIN: dict[str, Dot | Cosine | Gaussian] = {"dot": Dot(scale=1.0), "cosine": Cosine(), "gaussian": Gaussian(bandwidth=1.0)}


def scoring(
    score: Any, query_features: int | None, key_features: int, width: int | None = None, projections: bool | None = None
) -> Scoring:
    """The scoring of a name in the table above, or of a caller's score.

    `width` is A, by default the key's features. `projections=None` learns matrices for a name and none for the caller's score.
    """
    if isinstance(score, str):
        if score not in LEARNED:
            raise InputError(
                "score as one of " + ", ".join(LEARNED),
                got=repr(score),
                fix="choose one of them, or pass a score object",
            )
        if projections is not False:
            return LEARNED[score](query_features, key_features, width or key_features)
        if score not in PLAIN:
            raise InputError(
                f'projections for the score "{score}", which is made of learned matrices',
                got="projections=False",
                fix='use "dot", "cosine" or "gaussian", or keep the projections',
            )
        score = PLAIN[score]
    elif not callable(score) or isinstance(score, type):
        raise KindError(
            "score as a name or a callable, (query, key) -> (..., Q, K)",
            got=repr(score),
            fix="pass one of " + ", ".join(LEARNED) + ", or an object of overt.scores",
        )
    return CustomScoring(score, query_features, key_features, width or key_features, projections is True)


def has_value_matrix(score: Any, projections: bool | None) -> bool:
    """Whether the table gives this score a value matrix."""
    return isinstance(score, str) and score == "dot" and projections is not False


def matrix(features: int, width: int) -> nn.Linear:
    """A learned matrix without a bias, from `features` to `width`, uniform as in Glorot and Bengio 2010, equation 16."""
    linear = nn.Linear(features, width, bias=False)
    nn.init.xavier_uniform_(linear.weight)
    return linear


def vector(width: int) -> nn.Parameter:
    """A learned vector, uniform within ±1/√width."""
    return nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))
