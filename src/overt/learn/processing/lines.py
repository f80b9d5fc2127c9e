"""Lines of a file that are no sentences: code is copied, and each cell of a table is translated separately."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_ROW = re.compile(r"\s*\|.*\|\s*")
_CELL = re.compile(r"(?:\\\||[^|])+")
# _SIGN: a call, a comparison or assignment, an index, a name with an underscore: no sentence contains one.
_SIGN = r"(?:\w\(|[=!<>+*/-]=|=>|->|::| [<>] [\w-]|\w\[[\w:'\"-]*\]|\w_\w)"
_CODE = re.compile(
    r"\s*(?:"
    r"\$ [A-Za-z./~].*"  # a command after its prompt
    r"|(?:def|class|fn|func|function) \w+ ?[(:{].*"
    r"|(?:public|private|static|const|let|var|export|return|using|package|namespace)\b.*[;{]"
    r"|(?:from [\w.]+ )?import [\w.*{}, ]+(?: as \w+)?;?|#include ?[<\"].*|using \w+;"
    rf"|(?:if|elif|for|while|with|except|switch|match|return|assert|raise|yield|await|print)\b.*{_SIGN}.*"
    r"|(?:else|try|finally|do|while (?:True|1|not \w+)|lambda [\w, ]+)\s?[:{].*|echo [\"'$].*"
    r"|@?[\w.]+(?:\[[^\]]*\])?\(.*\)[;:,]?(?:\s*(?:#|//).*)?"
    r"|(?:(?:const|let|var|int|float|double|auto|string|bool)\s)?[\w.]+(?:\[[^\]]*\])?(?:: ?\w[\w\[\], ]*)?"
    r" ?(?:[-+*/%|&:]?=)(?!=) ?(?!.*(?:[A-Za-z]+ ){4})\S.*"
    r"|[\[\](){}<>;,]+"
    r"|\w+::\w.*;|.*(?:\w\(.*\)|[\])}\"']);|.*[\w)] \{"
    r"|(?:SELECT\b.*\bFROM|INSERT INTO|UPDATE \w+ SET|CREATE TABLE)\b.*"
    r"|(?:sudo )?(?:git|pip3?|npm|npx|yarn|docker|apt(?:-get)?|conda|cargo|brew|uv|kubectl)"
    r" [a-z][a-z-]*\b(?! (?:a|an|is|was|and|or|the)\b)[^,!?]*"
    r"|(?:sudo |cd |ls |rm |cp |mv |mkdir |chmod |curl |wget |ssh |python3? |node |bash )(?:-\w|[\w./~:-]*[./~])\S*.*"
    r")\s*"
)


class LinePart(NamedTuple):
    """A part of a line, to be translated or `copied`."""

    text: str
    copied: bool = False


def parts_of_lines(lines: Iterable[str]) -> Iterator[list[LinePart]]:
    """Split each line of a file into parts; a Markdown fence contains code up to the next fence.

    >>> for parts in parts_of_lines(["| the dog | 12 |", "x = f(y)", "How are you?"]):
    ...     print([part.text for part in parts if not part.copied])
    ['the dog', '12']
    []
    ['How are you?']
    """
    fence = ""
    for line in lines:
        match = _FENCE.match(line)
        if match and (not fence or match[1].startswith(fence)):
            fence = "" if fence else match[1]
            yield [LinePart(line, copied=True)]
        elif fence or _CODE.fullmatch(line):
            yield [LinePart(line, copied=True)]
        elif _ROW.fullmatch(line):
            yield [*_cells(line)]
        else:
            yield [LinePart(line)]


def _cells(line: str) -> Iterator[LinePart]:
    """The cells of a row, and the text between them."""
    start = 0
    for match in _CELL.finditer(line):
        cell = match.group().strip()
        first = match.start() + len(match.group()) - len(match.group().lstrip())
        if cell:
            yield LinePart(line[start:first], copied=True)
            yield LinePart(cell)
            start = first + len(cell)
    yield LinePart(line[start:], copied=True)
