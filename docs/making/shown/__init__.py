"""The tables of measured results, for every page that shows them: read from docs/results, never typed.

A module for each page that states results; others show some of its tables too. Each function returns Markdown. What `result(name)`
gives is results/NAME.json, which a benchmark wrote with its command and its machine.
"""

from typing import Any


def machine(measured: dict[str, Any]) -> str:
    """What it was measured on."""
    facts = measured["machine"]
    threads = measured.get("threads") or facts.get("threads") or facts["processors"]
    message = [
        facts["processor"].replace("(R)", ""),
        f"{threads} thread{'' if threads == 1 else 's'}",
        f"Python {facts['python']}",
    ]
    packages = {"torch": facts["torch"].partition("+")[0], "KeOps": facts.get("pykeops"), "Keras": facts.get("keras")}
    return ", ".join([*message, *(f"{name} {version}" for name, version in packages.items() if version), made(measured)])


def made(measured: dict[str, Any]) -> str:
    """Which code measured, and when."""
    commit, date = measured["commit"], measured["date"]
    return (
        f"commit {commit} of {date}" if commit and date else f"commit {commit or 'not recorded'}, date {date or 'not recorded'}"
    )


def runs(count: int | None) -> str:
    """How many runs each figure rests on, where its file says so."""
    return "the number of runs is not recorded" if count is None else f"{count} run{'' if count == 1 else 's'} each"


def seconds(taken: float) -> str:
    """A time in the unit that suits it, with three digits."""
    return f"{taken:.3g} s" if taken >= 1 else f"{taken * 1e3:.3g} ms"


def interval(result: dict[str, Any], sign: str = "") -> str:
    """A share with its interval."""
    low, high = result["interval"]
    return f"{result['right']:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]".replace("-", "−")
