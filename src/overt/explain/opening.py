"""The initial word of a page: its strongest link leads to another content word."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from overt.explain.encoded import Encoded, Word

# _FUNCTION, _PRONOUNS: English and French words without a meaning of their own. A pronoun may be the query of the link, not its key.
_FUNCTION = (
    "a an the this that these those of to in on at by for from with as and or but nor so if than not no is are was were be been "
    "being am do does did has have had will would can could shall should may might must s t ll re ve don doesn didn isn wasn "
    "le la les l un une des de du d et ou à au aux en dans est sont ont"
)
_PRONOUNS = (
    "i you he she it we they me him her us them my your his its our their je tu il elle on nous vous ils elles me te se lui leur "
    "mon ma mes ton ta tes son sa ses notre nos votre vos leurs ce c j m n qu que qui y"
)
FUNCTION, PRONOUNS = frozenset(_FUNCTION.split()), frozenset(_PRONOUNS.split())


class View(Protocol):
    """A head's weights (1, Q, K)."""

    def weights(self) -> Tensor:
        """All weights."""
        ...


class Opening(NamedTuple):
    """The word, and the index of its head among the compared heads."""

    word: Word
    head: int


def opening(heads: Sequence[View], source: Encoded, target: Encoded) -> Opening | None:
    """The query of the strongest link between content words, among links with the largest weight of their row.

    So the word's strongest link leads to no special token, no punctuation, not to the word itself and not to its spelling in the
    other text. Whole words come before pieces; None if no token has such a link. Pages choose by the same rule if the sentence changes
    (lens/viewer/web/data/content.js).
    """
    rows = [view.weights()[0].max(dim=-1) for view in heads]
    for pieces in (False, True):
        queries = [index for index in range(len(source.ids)) if _content(source, index, FUNCTION, pieces)]
        keys = {index for index in range(len(target.ids)) if _content(target, index, FUNCTION | PRONOUNS, pieces)}
        links = [
            (float(largest[query]), -head, -query)
            for head, (largest, strongest) in enumerate(rows)
            for query in queries
            if (key := int(strongest[query])) in keys and target.tokens[key].casefold() != source.tokens[query].casefold()
        ]
        if links:
            _, head, query = max(links)
            return Opening(Word(-query, (-query,)), -head)
    return None


def _content(text: Encoded, index: int, refused: frozenset[str], pieces: bool) -> bool:
    """Whether the token is a content word, and, unless `pieces` is True, a whole word."""
    token = text.tokens[index]
    if index in text.special or token.casefold() in refused or not any(map(str.isalnum, token)):
        return False
    start, stop = text.spans[index]
    return pieces or not (text.text[:start][-1:].isalnum() or text.text[stop:][:1].isalnum())
