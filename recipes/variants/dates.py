"""Sentences with other times of day and dates than they had: English and French write them in their own ways.

Tatoeba has a hundred times with minutes and a few dozen dates, half of them spelled out; its hours and weekdays are contexts for more.
"""

import random
import re
from collections.abc import Callable
from typing import NamedTuple

from overt.learn.data.corpora import CorpusExample

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_FRENCH_MONTHS = "janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|novembre|décembre"
_DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_FRENCH_DAYS = "lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche"
_HOURS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_FRENCH_HOURS = (
    "une|deux|trois|quatre|cinq|six|sept|huit|neuf|dix|onze|douze|treize|quatorze|quinze|seize|dix-sept|dix-huit|dix-neuf|vingt"
)

# "at six o'clock", "before 9:00 p.m." and "six heures et demie", "21h", with the word before the English time.
_TIME = re.compile(
    rf"\b(at|by|until|till|before|after) (?:\d{{1,2}}(?::\d\d)?|{_HOURS})"
    r"(?: o'clock| ?[ap]\.m\.?)?(?: in the (?:morning|evening|afternoon))?(?=[ .?!,])"
)
_FRENCH_TIME = re.compile(
    rf"\b(?:\d{{1,2}} ?[hH:] ?\d\d|(?:\d{{1,2}}|{_FRENCH_HOURS}) (?:heures?|h)(?: (?:et )?"
    r"(?:demie|quart|trente|quinze|quarante-cinq|vingt|\d\d))?|\d{1,2}h)\b(?: (?:du matin|du soir|de l'après-midi))?"
)
# "on May 3rd", "on the 3rd of May", "on Monday" and "le 3 mai", "lundi".
_DATE = re.compile(
    rf"\b(on) (?:(?:the )?\d{{1,2}}(?:st|nd|rd|th)? (?:of )?(?:{_MONTHS})(?:,? (?:in )?\d{{4}})?"
    rf"|(?:{_MONTHS}) \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|(?:{_DAYS}))(?=[ .?!,])(?! (?:morning|evening|night|afternoon))"
)
_FRENCH_DATE = re.compile(
    rf"\b(?:le )?(?:(?:\d{{1,2}}|1er) (?:{_FRENCH_MONTHS})(?: \d{{4}})?|(?:{_FRENCH_DAYS}))\b(?! (?:matin|soir|après))"
)


class Dated(NamedTuple):
    """An example with one time or date, and where it is in the source and in the target."""

    example: CorpusExample
    spans: tuple[tuple[int, int], tuple[int, int]]
    pick: Callable[[random.Random], tuple[str, str]]  # another one in both languages

    def altered(self, generator: random.Random) -> CorpusExample:
        """The example with another time or date."""
        both = zip(self.example, self.spans, self.pick(generator), strict=True)
        return CorpusExample(*(f"{text[:start]}{new}{text[end:]}".replace("..", ".") for text, (start, end), new in both))


def dated(examples: list[CorpusExample]) -> list[Dated]:
    """The examples that hold one time of day or one date on both sides.

    >>> [found] = dated([CorpusExample("I got up at six.", "Je me suis levé à six heures.")])
    >>> found.altered(random.Random(1))
    CorpusExample(source='I got up at 3:00 a.m.', target='Je me suis levé à 3h00.')
    """
    kinds = ((_TIME, _FRENCH_TIME, _new_time), (_DATE, _FRENCH_DATE, _new_date))
    result = []
    for example in examples:
        for english, french, pick in kinds:
            sources, targets = list(english.finditer(example.source)), list(french.finditer(example.target))
            if len(sources) == len(targets) == 1:
                start = sources[0].end(1) + 1 if pick is _new_time else sources[0].start()
                result.append(Dated(example, ((start, sources[0].end()), targets[0].span()), pick))
    return result


def _new_time(generator: random.Random) -> tuple[str, str]:
    """A time of day, in twelve hours with or without a.m. and p.m., or in 24 hours."""
    hour, minute = generator.randint(1, 12), generator.choice((0, 15, 30, 45, generator.randrange(60), generator.randrange(60)))
    english, half = f"{hour}:{minute:02}", generator.choice(("", "", "a.m.", "p.m.", "24"))
    if half == "24":
        hour = generator.randint(0, 23)
        english = f"{hour}:{minute:02}"
    elif half:
        english += f" {half}"
        hour = hour % 12 + 12 * (half == "p.m.")
    return english, f"{hour}h{minute:02}"


def _new_date(generator: random.Random) -> tuple[str, str]:
    """A day of a month, with or without a year, as British, Americans or neither write it."""
    number, day = generator.randrange(12), generator.randint(1, 28)
    month, french_month = (names.split("|")[number] for names in (_MONTHS, _FRENCH_MONTHS))
    year = f" {generator.randint(1900, 2039)}" if generator.random() < 0.5 else ""
    ordinal = f"{day}{'th' if day in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"
    written = generator.choice((str(day), ordinal))
    forms = (f"{month} {written}{',' * bool(year)}{year}", f"{written} {month}{year}", f"the {ordinal} of {month}{year}")
    return f"on {generator.choice(forms)}", f"le {'1er' if day == 1 else day} {french_month}{year}"
