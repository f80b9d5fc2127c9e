"""Statements about I, you, he, she, we and they: with names for the pronouns, and several in one sentence."""

import random
import re
from collections import defaultdict
from typing import NamedTuple

from overt.learn.data.corpora import CorpusExample
from recipes.variants.names import new_name

_SUBJECTS = {
    "I": ("Je ", "J'"),
    "You": ("Tu ", "Vous "),
    "He": ("Il ",),
    "She": ("Elle ",),
    "We": ("Nous ",),
    "They": ("Ils ", "Elles "),
}
_JOINTS = ((" and ", " et "), (", and ", ", et "), (", but ", ", mais "), (", so ", ", alors "), (" because ", " parce que "))
_MAX_WORDS = 10  # of a statement


class Statement(NamedTuple):
    """An English subject and what is said of it, and the French sentence in the two parts that answer to these."""

    subject: str
    predicate: str
    french_subject: str
    french_predicate: str

    @property
    def example(self) -> CorpusExample:
        """The whole sentence."""
        return CorpusExample(f"{self.subject} {self.predicate}.", f"{self.french_subject}{self.french_predicate}.")

    def inside(self, *, bare: bool) -> tuple[str, str]:
        """Both sides as they stand after the first words of a sentence; `bare`, the English one without its subject."""
        subject = self.subject if self.subject == "I" else self.subject.lower()
        english = self.predicate if bare else f"{subject} {self.predicate}"
        return english, self.french_subject[0].lower() + self.french_subject[1:] + self.french_predicate


class Statements(NamedTuple):
    """Statements by their English subject."""

    by_subject: dict[str, list[Statement]]

    def named(self, generator: random.Random) -> CorpusExample:
        """A statement about people who have names: "Ruth and Karl are late.", "Ruth et Karl sont en retard."."""
        subject = generator.choice([pronoun for pronoun in ("He", "She", "We", "They") if pronoun in self.by_subject])
        statement = generator.choice(self.by_subject[subject])
        like = "Mary" if statement.french_subject.startswith("Elle") else "Tom"
        (first, french_first), (second, french_second) = (new_name(like, generator) for _ in range(2))
        match subject:
            case "He" | "She":
                english, french = first, french_first
            case "We":
                english, french = f"{first} and I", f"{french_first} et moi"
            case _:
                english, french = f"{first} and {second}", f"{french_first} et {french_second}"
        return CorpusExample(f"{english} {statement.predicate}.", f"{french} {statement.french_predicate}.")

    def coordinated(self, generator: random.Random) -> CorpusExample:
        """Two or three statements in one sentence, half of them about the same subject, which English may say once.

        One of tu and vous translates "you" in all of them.
        """
        subjects, subject = list(self.by_subject), generator.choice(list(self.by_subject))
        other = generator.choice(("Tu ", "Vous "))
        if generator.random() < 0.3:
            return self._listed([self._pick(subject, other, generator) for _ in range(3)], generator)
        source, target = (text[:-1] for text in self._pick(subject, other, generator).example)
        for _ in range(generator.choice((1, 1, 2))):
            same = generator.random() < 0.5
            statement = self._pick(subject if same else generator.choice(subjects), other, generator)
            joint, french_joint = generator.choice(_JOINTS)
            english, french = statement.inside(bare=same and joint == " and ")
            if french_joint.endswith("que ") and french[0] in "ei":
                french_joint = " parce qu'"
            source, target = source + joint + english, target + french_joint + french
        return CorpusExample(f"{source}.", f"{target}.")

    def continued(self, example: CorpusExample, generator: random.Random) -> CorpusExample:
        """An example and a statement in one sentence: "My name is Karl and I live here."."""
        english, french = self._pick(generator.choice(list(self.by_subject)), "Tu ", generator).inside(bare=False)
        joint, french_joint = generator.choice(_JOINTS[:3])
        return CorpusExample(
            f"{example.source[:-1]}{joint}{english}.", f"{example.target[:-1].rstrip()}{french_joint}{french}."
        )

    @staticmethod
    def _listed(group: list[Statement], generator: random.Random) -> CorpusExample:
        """What one subject does, one after another: "We sang, danced, and went home."."""
        first, (second, french_second), (third, french_third) = (
            group[0].example,
            *(clause.inside(bare=True) for clause in group[1:]),
        )
        comma = generator.choice(("", ","))
        source = f"{first.source[:-1]}, {second}{comma} and {third}."
        return CorpusExample(source, f"{first.target[:-1]}, {french_second} et {french_third}.")

    def _pick(self, subject: str, excluded: str, generator: random.Random) -> Statement:
        """A statement about a subject, of those whose French subject is not the excluded one if there are others."""
        statements = self.by_subject[subject]
        tries = generator.choices(statements, k=8)
        return next(
            (statement for statement in (*tries, *statements) if statement.french_subject not in (excluded, "Elles ")), tries[0]
        )


def statements(examples: list[CorpusExample]) -> Statements | None:
    """The short statements that begin with the same person on both sides; None where there are none, as in other languages.

    >>> pairs = [("I sing.", "Je chante."), ("He left.", "Il est parti."), ("They are late.", "Ils sont en retard.")]
    >>> found = statements([CorpusExample(*pair) for pair in pairs])
    >>> found.named(random.Random(5))
    CorpusExample(source='Krie and Mr. Martin are late.', target='Krie et M. Martin sont en retard.')
    >>> found.coordinated(random.Random(3))
    CorpusExample(source='I sing and they are late.', target='Je chante et ils sont en retard.')
    """
    result: dict[str, list[Statement]] = defaultdict(list)
    for source, target in examples:
        subject, _, predicate = source[:-1].partition(" ")
        french = next((pronoun for pronoun in _SUBJECTS.get(subject, ()) if target.startswith(pronoun)), "")
        plain = source.endswith(".") and target.endswith(".") and not re.search(r"[.,;:!?…\"«]", source[:-1] + target[:-1])
        if french and plain and len(source.split()) <= _MAX_WORDS:
            result[subject].append(Statement(subject, predicate, french, target[len(french) : -1].rstrip()))
    return Statements(dict(result)) if result.keys() - {"I", "You"} else None
