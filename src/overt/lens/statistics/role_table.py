"""The roles of a recording's heads as a list that prints as a table."""

from overt.lens.statistics.roles import Role


class Roles(list[Role]):
    """A list of `Role`, one for each head in the order of the calls. Printed, it is a table.

    Roles of repetitions stand with the interval of their score, the number of queries and the chance baseline.

    >>> print(Roles([Role("encoder.layer.0", 0, 11, "previous token", 0.98, {}), Role("encoder.layer.10", 10, 3, "content", 0.7, {})]))
    call  layer             head  role            score
       0  encoder.layer.0     11  previous token   0.98
      10  encoder.layer.10     3  content          0.70
    """

    def __str__(self) -> str:
        names = ("call", "layer", "head", "role", "score", "")
        rows = [names, *(_row(item) for item in self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        words = ("layer", "role", "")  # are aligned at the left, numbers at the right
        return "\n".join(
            "  ".join(
                cell.ljust(width) if name in words else cell.rjust(width)
                for cell, width, name in zip(row, widths, names, strict=True)
            ).rstrip()
            for row in rows
        )

    __repr__ = __str__


def _row(role: Role) -> tuple[str, ...]:
    evidence = "" if role.decisive is None else str(role.decisive).partition(" ")[2]  # without the share, which is the score
    return str(role.number), role.layer, str(role.head), role.role, f"{role.score:.2f}", evidence
