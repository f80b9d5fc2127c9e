"""Sentences in which "it" refers to a thing, made of two pairs of English and French: il where the thing is le, elle where it is la.

As an object it is l' for both, and the participle agrees: "la clé … je l'ai perdue".

Tatoeba has a few hundred sentences whose pronoun refers to a noun of the same sentence, too few to learn that it agrees with the noun.
"""

import random
import re
from collections import Counter, defaultdict
from typing import NamedTuple

from overt.learn.data.corpora import CorpusExample

# French determiners that show a noun's gender; mon, ton and son stand before feminine vowels too.
_GENDERS = {"m": "le un ce cet du au", "f": "la une cette ma ta sa"}
_GENDER_OF = {word: gender for gender, words in _GENDERS.items() for word in words.split()}
_DETERMINER = r"(?:l['’]|(?:le|la|un|une|ce|cet|cette|mon|ma|ton|ta|son|sa|notre|votre|leur) )"
_FRENCH_NOUN = re.compile(rf"\b({'|'.join(_GENDER_OF)}) ([a-zà-ÿœ]+)")
_THE = r"(?:the|a|an|this|that|my|your|his|her|our|their)"
_PERSON = re.compile(r"\b([a-z]+) who\b")
# "The soup is hot." and "La soupe est chaude."
_STATE = re.compile(rf"{_THE} ([a-z]+) (?:is|was) ((?!for |on |in |at |a |an |the )[a-z ]+)\.", re.IGNORECASE)
_FRENCH_STATE = re.compile(rf"{_DETERMINER}([a-zà-ÿœ]+) (?:est|était) ([a-zà-ÿœ ]+)\.", re.IGNORECASE)
# A sentence about a thing, and one about a person that ends with a thing.
_SUBJECT = re.compile(rf"{_THE} ([a-z]+) (?!is |was |and |of )[^,;?!]+\.", re.IGNORECASE)
_FRENCH_SUBJECT = re.compile(rf"{_DETERMINER}([a-zà-ÿœ]+) (?!est |était |et |de |d')[^,;?!]+\.", re.IGNORECASE)
_OBJECT = re.compile(rf"(?:I|You|He|She|We|They|Tom|Mary) [^,;?!]*\b{_THE} ([a-z]+)\.")
_FRENCH_OBJECT = re.compile(rf"[^,;?!]*[ '’]{_DETERMINER}([a-zà-ÿœ]+)\.")
# "I lost it." and "Je l'ai perdu."; each person's sentences go on with the person's own.
_ACTION = re.compile(r"(?:I|He|She|We|They) ([a-z]+) it\.")
_FRENCH_ACTION = re.compile(r"(?:Je|Il|Elle|Nous|Ils|Elles) l['’](?:ai|a|avons|ont) ([a-zà-ÿ]+[éiust])\.")
_PERSONS = {"I": "je l'ai", "He": "il l'a", "She": "elle l'a", "We": "nous l'avons", "They": "ils l'ont"}
_STARTS = {"I": ("Je ", "J'"), "He": ("Il ",), "She": ("Elle ",), "We": ("Nous ",), "They": ("Ils ",)}
_NEXT = ((" and", " et"), (" and then", " et puis"), (", but", ", mais"))
_PRONOUN = {"m": "il", "f": "elle"}
_TENSES = (("is", "est"), ("was", "était"))
_JOINTS = (
    ("{} because it {} {}.", "{} parce qu'{} {} {}."),
    ("{}, but it {} {}.", "{}, mais {} {} {}."),
    ("{} and it {} {}.", "{} et {} {} {}."),
)
_MAX_WORDS = 12, 4  # of a sentence, and of what is said of a thing
_SURE = 0.9  # the least share of a noun's determiners that have its gender


class Antecedents(NamedTuple):
    """By gender: sentences about a thing, those of them that hold a noun of the other gender too, and what is said of such things.

    `actions` are what persons did to a thing, of either gender: a past tense and a participle.
    """

    sentences: dict[str, list[CorpusExample]]
    ambiguous: dict[str, list[CorpusExample]]
    states: dict[str, list[CorpusExample]]
    actions: list[CorpusExample]

    def pick(self, generator: random.Random) -> CorpusExample:
        """A sentence that goes on with "it" and what is said of another thing of the same gender; half are ambiguous ones.

        A third go on with what a person did to the thing, if the sentence is about that person.
        """
        gender = generator.choice([candidate for candidate in _PRONOUN if self.sentences[candidate] and self.states[candidate]])
        if self.actions and generator.random() < 1 / 3:
            sentence = generator.choice(self.sentences[gender])
            person = sentence.source.partition(" ")[0]
            if sentence.target.startswith(_STARTS.get(person, ())):
                return _continued(sentence, person, gender, generator.choice(self.actions), generator.choice(_NEXT))
        ambiguous = self.ambiguous[gender] if generator.random() < 0.5 else []
        sentence, state = generator.choice(ambiguous or self.sentences[gender]), generator.choice(self.states[gender])
        english, french = generator.choice(_JOINTS)
        verb, french_verb = generator.choice(_TENSES)
        target = french.format(sentence.target[:-1].rstrip(), _PRONOUN[gender], french_verb, state.target)
        return CorpusExample(english.format(sentence.source[:-1], verb, state.source), target)


def antecedents(examples: list[CorpusExample]) -> Antecedents | None:
    """The parts of such sentences; None where there are not enough of them, as in other languages.

    >>> soup = CorpusExample("The soup is hot.", "La soupe est chaude.")
    >>> parts = antecedents([soup, CorpusExample("I see the car.", "Je vois la voiture.")])
    >>> parts.pick(random.Random(0))
    CorpusExample(source='I see the car, but it was hot.', target='Je vois la voiture, mais elle était chaude.')
    """
    genders = _genders(examples)
    persons = {word for example in examples for word in _PERSON.findall(example.source)}
    sentences: dict[str, list[CorpusExample]] = defaultdict(list)
    ambiguous: dict[str, list[CorpusExample]] = defaultdict(list)
    states: dict[str, list[CorpusExample]] = defaultdict(list)
    actions: list[CorpusExample] = []
    for example in examples:
        if len(example.source.split()) > _MAX_WORDS[0]:
            continue
        if action := _both(_ACTION, _FRENCH_ACTION, example):
            actions.append(CorpusExample(action[0][1], action[1][1]))
        state = _both(_STATE, _FRENCH_STATE, example)
        if state and (gender := genders.get(state[1][1].lower())) and len(state[0][2].split()) <= _MAX_WORDS[1]:
            states[gender].append(CorpusExample(state[0][2], state[1][2]))
        for english, french in ((_SUBJECT, _FRENCH_SUBJECT), (_OBJECT, _FRENCH_OBJECT)):
            pair = _both(english, french, example)
            noun = pair[0][1].lower() if pair else ""
            if pair and noun not in persons and not noun.endswith("s") and (gender := genders.get(pair[1][1].lower())):
                sentences[gender].append(example)
                others = {genders.get(other) for _, other in _FRENCH_NOUN.findall(example.target.lower())}
                if others & (_PRONOUN.keys() - {gender}):
                    ambiguous[gender].append(example)
    usable = any(sentences[gender] and states[gender] for gender in _PRONOUN)
    return Antecedents(sentences, ambiguous, states, actions) if usable else None


def _continued(
    sentence: CorpusExample, person: str, gender: str, action: CorpusExample, joint: tuple[str, str]
) -> CorpusExample:
    """A sentence about a person and a thing, and what that person did to the thing."""
    subject = person if person == "I" else person.lower()
    source = f"{sentence.source[:-1]}{joint[0]} {subject} {action.source} it."
    ending = "e" if gender == "f" else ""
    return CorpusExample(source, f"{sentence.target[:-1].rstrip()}{joint[1]} {_PERSONS[person]} {action.target}{ending}.")


def _both(
    english: re.Pattern[str], french: re.Pattern[str], example: CorpusExample
) -> tuple[re.Match[str], re.Match[str]] | None:
    pair = english.fullmatch(example.source), french.fullmatch(example.target)
    return pair if all(pair) else None  # pyright: ignore[reportReturnType]


def _genders(examples: list[CorpusExample]) -> dict[str, str]:
    """The gender of each French noun whose determiners agree."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for example in examples:
        for determiner, noun in _FRENCH_NOUN.findall(example.target.lower()):
            counts[noun][_GENDER_OF[determiner]] += 1
    sure = {noun: count.most_common(1)[0] for noun, count in counts.items()}
    return {noun: gender for noun, (gender, times) in sure.items() if times >= _SURE * counts[noun].total()}
