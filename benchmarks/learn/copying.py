"""What an English-French translator copies, and what agrees: names, numbers, times, dates, and pronouns for things.

    OVERT_DATA=… python -m benchmarks.learn.copying [--beside FOLDER] [--data RECIPE] [--out docs/results/copying.json]

Sentences are patterns filled from lists. A name or number counts where the translation holds it, a time or date where it holds it as French
writes it, a verb where two people have its plural, a pronoun where it is il or elle as its noun asks. Names that the recipe's pairs or the
names of altered copies (recipes.variants.names) hold are left out first.
"""

import argparse
import itertools
import re
from pathlib import Path

from benchmarks import results
from overt.learn.config.recipe import read_recipe
from overt.learn.data.corpora import read_corpus
from overt.learn.translator import Translator
from recipes.variants import names as trained

NAMES = """
Anna Birgitte Bjarne Casimir Chidi Dagmar Desmond Dovydas Elsa Emeka Enrique Farouk Gudrun Hamza Henning Hikaru Ilse Imran Ingrid Jelena
Jovan Kaisa Kasper Laszlo Leandro Ludmila Maarten Malik Marjorie Mehmet Mirela Nadia Nasreen Noemi Oksana Ottavio Pedro Piotr Radek
Ramona Rosalind Sadia Sakura Siobhan Tariro Thandi Tomoko Ulrike Valerio Vikram Wanda Xiomara Yasmina Zdenek Zofia
"""
TOWNS = """
Aarhus Almaty Bamako Bilbao Bydgoszcz Cali Chennai Coimbra Debrecen Entebbe Espoo Gdynia Gomel Harare Iasi Joensuu Kaunas Kumasi Leuven
Lublin Malmo Maribor Nagpur Niksic Ostrava Plovdiv Poznan Recife Rijeka Sibiu Tromso Uberlandia Varna Wroclaw Zadar
"""
PERSON = (
    "My name is {}.",
    "{} is my best friend.",
    "Have you seen {} today?",
    "I am waiting for {}.",
    "{} works in a bank.",
    "This is {}'s book.",
    "I gave the letter to {}.",
    "Where does {} live?",
    "My name is {} and I am a student.",
    "Mr. {} is our neighbour.",
    "Good morning, Mrs. {}.",
)
TOWN = (
    "I live in {}.",
    "The train to {} is late.",
    "We come from {}.",
    "How far is it to {}?",
    "She was born in {} in 1975.",
    "{} is a beautiful city.",
)
PAIRS = ("{} and {} are tired.", "{} and {} live together.", "{} and {} have bought a house.")
PLURAL = re.compile(r"\b(?:sont|vivent|habitent|ont)\b")
YEARS = ("He was born in {}.", "The house was built in {}.", "It happened in {}.")
COUNTS = ("There are {} pages in this book.", "I paid {} euros.", "The number is {}.", "He has {} stamps.")
PHONES = ("My phone number is {}.", "Call me at {}.", "You can reach him at {}.")
TIMES = ("The film begins at {}.", "Wake me up at {}.", "We have to leave before {}.", "The plane lands at {}.")
DATES = ("She was born on {}.", "The exam is on {}.", "I arrived on {}.")
MONTHS = (("January", "janvier"), ("April", "avril"), ("August", "août"), ("November", "novembre"))
# Things and their gender, and what is said of them where "it" is the subject, and the object.
SUBJECTS = {"m": ("The dog", "The train", "The bird", "The cat", "The bus"), "f": ("The car", "The soup", "The door")}
OBJECTS = {"m": ("the book", "the coat", "the bag", "the hat"), "f": ("the car", "the house", "the shirt", "the table")}
SUBJECT_PRONOUN = ("{} stopped because it was too old.", "{} is not here because it was too slow.")
OBJECT_PRONOUN = ("I bought {} because it was cheap.", "I sold {}, but it was new.", "He wanted {} because it was beautiful.")


def cases(names: list[str], towns: list[str]) -> dict[str, list[tuple[str, str]]]:
    """By kind: sentences, and what their translation has to match."""
    years, counts = range(1901, 2031, 9), (7, 38, 112, 350, 999, 1205, 4096, 25677)
    phones = ("0471 556 203", "06 12 34 56 78", "555 0199", "020 7946 0958", "44 18 00", "0800 11 22 33")
    times = [
        (f"{h % 12 or 12}:{m:02} {'p.m.' if h > 11 else 'a.m.'}", f"{h}h{m:02}")
        for h, m in ((6, 45), (9, 20), (13, 5), (19, 30), (22, 15))
    ]
    times += [(f"{h}:{m:02}", f"{h}h{m:02}") for h, m in ((7, 10), (8, 55), (10, 40), (14, 25), (17, 5), (23, 50))]
    dates = [
        (f"{english} {day}{year}", f"{day} {french}{year.strip(',')}")
        for english, french in MONTHS
        for day in (4, 22)
        for year in ("", ", 1987")
    ]
    pairs = list(itertools.pairwise(names))
    return {
        "name copied": [(text.format(name), rf"\b{name}\b") for name in names for text in PERSON],
        "town copied": [(text.format(name), rf"\b{name}\b") for name in towns for text in TOWN],
        "two people have a plural verb": [(text.format(*pair), PLURAL.pattern) for pair in pairs for text in PAIRS],
        "year copied": [(text.format(year), rf"\b{year}\b") for year in years for text in YEARS],
        "number copied": [(text.format(count), rf"\b{count}\b") for count in counts for text in COUNTS],
        "telephone number copied": [(text.format(phone), rf"\b{phone}\b") for phone in phones for text in PHONES],
        "time as French writes it": [(text.format(time), rf"\b{french}\b") for time, french in times for text in TIMES],
        "date as French writes it": [(text.format(date), rf"\b{french}\b") for date, french in dates for text in DATES],
        "pronoun of the subject's gender": [
            (text.format(thing), _pronoun(gender))
            for gender, things in SUBJECTS.items()
            for thing in things
            for text in SUBJECT_PRONOUN
        ],
        "pronoun of the object's gender": [
            (text.format(thing), _pronoun(gender))
            for gender, things in OBJECTS.items()
            for thing in things
            for text in OBJECT_PRONOUN
        ],
    }


def _pronoun(gender: str) -> str:
    return r"(?:\b|')il (?:est|était)" if gender == "m" else r"(?:\b|')elle (?:est|était)"


def counts(translator: Translator, sentences_of: dict[str, list[tuple[str, str]]]) -> dict[str, list[int]]:
    """By kind: the sentences that are translated as they have to be, and all; each other one is printed."""
    result = {}
    for kind, sentences in sentences_of.items():
        translations = translator.translate([source for source, _ in sentences])
        missed = [
            (source, translation.text)
            for (source, pattern), translation in zip(sentences, translations, strict=True)
            if not re.search(pattern, translation.text)
        ]
        for source, text in missed:
            print(f"  {source} → {text}")
        result[kind] = [len(sentences) - len(missed), len(sentences)]
        print(f"{kind}: {result[kind][0]} of {len(sentences)}")
    return result


def main() -> None:
    """Translate, count, print each miss, and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="the folder of another translator, which is asked too")
    parser.add_argument(
        "--data", type=Path, default=Path("recipes/tatoeba-en-fr-box.toml"), help="a recipe whose names are left out"
    )
    results.takes_out(parser)
    arguments = parser.parse_args()
    known = {word for pair in read_corpus(read_recipe(arguments.data).data).train for word in re.findall(r"\w+", pair.source)}
    known |= {
        name
        for group in (trained.MEN, trained.WOMEN, trained.PLACES, trained.SURNAMES)
        for each in group
        for name in each.split("/")
    }
    names, towns = ([name for name in group if name not in known] for group in (NAMES.split(), TOWNS.split()))
    translators = {} if arguments.beside is None else {arguments.beside.name: Translator.load(arguments.beside)}
    translators["in the package"] = Translator.bundled()
    counted = {name: counts(translator, cases(names, towns)) for name, translator in translators.items()}
    results.write(arguments.out, names=len(names), towns=len(towns), counts=counted)


if __name__ == "__main__":
    main()
