"""Placeholders: words that a model copies, and reads in place of a protected span.

In 28 sentences the bundled translator copied each of these names and numbers 27 times, "☃" 18 times and "@" never.
"""

import re
from collections.abc import Iterator

# _NAMES: one piece of the bundled translator's vocabulary, and equal in English and French.
_NAMES = ("Tom", "John", "Jack", "Boston", "Tokyo", "Osaka", "Kyoto", "Jackson", "Paris")
# _NUMBERS: French writes them in digits, unlike "30".
_NUMBERS = ("350", "250", "450", "650", "750", "850", "950")
_DAYS = (("May 3", "3 mai"), ("May 4", "4 mai"), ("May 5", "5 mai"), ("May 6", "6 mai"))
_UNIT = r"(?: ?(?:dollars?|\$))?"


def placeholders(text: str, languages: tuple[str, ...]) -> dict[str, Iterator[tuple[str, str]]]:
    """For each kind of span, the placeholders that do not occur in the text, and the patterns of their translations.

    Amounts and dates have placeholders only for English to French; other translators use names for all kinds.

    >>> next(placeholders("Tom lives in Boston.", ("en", "fr"))["named"])
    ('John', '\\\\bJohn\\\\b')
    """
    present = set(re.findall(r"\w+", text))
    names = iter([(name, rf"\b{name}\b") for name in _NAMES if name not in present])
    if languages != ("en", "fr"):
        return dict.fromkeys(("named", "number", "amount", "date"), names)
    numbers = iter([number for number in _NUMBERS if number not in present])
    days = iter([(english, rf"\b{written}\b") for english, written in _DAYS if english not in text])
    return {
        "named": names,
        "number": ((number, rf"(?<!\d){number}(?!\d)(?: ?%)?") for number in numbers),
        "amount": ((f"{number} dollars", rf"(?<!\d){number}(?!\d){_UNIT}") for number in numbers),
        "date": days,
    }
