"""The roles of a recording's heads as a list that prints as a table."""

from overt.drawing.numbers import columns
from overt.lens.statistics.roles import Role


class Roles(list[Role]):
    """A list of `Role`, one for each head in the order of the calls. Printed, it is a table.

    Roles of repetitions stand with the interval of their score, the number of queries and the chance baseline.

    >>> print(Roles([Role("encoder.layer.0", 0, 11, "previous token", 0.98, {}), Role("encoder.layer.10", 10, 3, "content", 0.7, {})]))
    head   layer             role                        score
    L0H11  encoder.layer.0   usually the previous token   0.98
    L10H3  encoder.layer.10  no simple pattern            0.70
    """

    def __str__(self) -> str:
        return "\n".join(columns([("head", "layer", "role", "score", ""), *map(_row, self)], right=["score"]))

    __repr__ = __str__


def _row(role: Role) -> tuple[str, ...]:
    evidence = "" if role.decisive is None else str(role.decisive).partition(" ")[2]  # without the share, which is the score
    return role.name, role.layer, role.words, f"{role.score:.2f}", evidence
