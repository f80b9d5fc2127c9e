"""Examples for training, validation and test, read from the files that a recipe names."""

import hashlib
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from overt.errors import InputError
from overt.learn.config.settings import Data
from overt.learn.data.text_lines import read_lines


class Example(NamedTuple):
    """What a model is given, and what it should answer."""

    given: Any  # a text, or a list of words
    wanted: Any  # a text, a list of tags, or a label; "" where there is nothing to answer


class Corpus(NamedTuple):
    """The examples of each split, and what a user must be told of them."""

    train: list[Example]
    valid: list[Example]
    test: list[Example]
    notes: list[str]


def read_corpus(data: Data) -> Corpus:
    """Read the files of a recipe's `[data]` table; where no file is named for validation or test, sources are held out of training.

    Raises InputError for files that are not there, do not answer each other line by line, or do not hold what their format says.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "pairs.txt").write_text("Go.\\tVa !\\nGo!\\tAllez !\\nRun!\\tCours !\\nStop!\\tHalte !\\n")
    >>> corpus = read_corpus(Data(format="pairs", folder=str(folder), train=("pairs.txt",), held_out=(1, 1)))
    >>> [len(split) for split in corpus[:3]]
    [1, 1, 2]
    """
    notes: list[str] = []
    train, valid, test = (_read_split(data, split, notes) for split in ("train", "valid", "test"))
    take = (0 if valid else data.held_out[0], 0 if test else data.held_out[1])
    train, held_valid, held_test = hold_out(train, *take)
    if data.limit is not None:
        train = spread(train, data.limit)
    if data.join > 1:
        train, test = joined(train, data.join, shuffle=True), joined(test or held_test, data.join)
    return Corpus(train, valid or held_valid, test or held_test, notes)


def hold_out(examples: list[Example], valid: int, test: int) -> tuple[list[Example], list[Example], list[Example]]:
    """Split by source: all examples of so many sources go to validation and test, and none of those sources stays in training.

    Sources that differ in case, punctuation or spaces alone count as one, so that "Go." does not train for "Go!". Which ones are
    held out follows from their letters alone (the smallest SHA-256), whatever the order of the file.

    >>> split = [Example("Go.", "Va !"), Example("go!", "Allez !"), Example("Run!", "Cours !")]
    >>> [len(part) for part in hold_out(split, 0, 1)]
    [1, 0, 2]
    """
    if not valid and not test:
        return examples, [], []
    groups: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        groups[_letters(example.given)].append(example)
    if valid + test >= len(groups):
        raise InputError(
            "training keeps at least one source beside those held out",
            got=f"held_out = [{valid}, {test}] of {len(groups)} different sources",
            fix="hold out fewer",
        )
    order = sorted(groups, key=lambda letters: hashlib.sha256(letters.encode()).digest())
    tested, validated = set(order[:test]), set(order[test : test + valid])
    parts: tuple[list[Example], list[Example], list[Example]] = ([], [], [])
    for letters, group in groups.items():
        parts[2 if letters in tested else 1 if letters in validated else 0].extend(group)
    return parts


def spread(examples: list[Example], count: int) -> list[Example]:
    """At most so many examples, spread over the list, since files are often sorted by length.

    >>> [example.given for example in spread([Example(text, "") for text in "abcdef"], 3)]
    ['a', 'c', 'e']
    """
    count = min(count, len(examples))
    return [examples[number * len(examples) // count] for number in range(count)]


def joined(examples: list[Example], most: int, *, shuffle: bool = False) -> list[Example]:
    """Every line alone, then in twos, up to `most` neighbours joined to one line, so that each length has the same lines.

    >>> [example.given for example in joined([Example("a", "1"), Example("b", "2"), Example("c", "3")], 2)]
    ['a', 'b', 'c', 'a b']
    """
    longer = []
    for count in range(1, most + 1):
        order = list(examples)
        if shuffle:
            random.Random(count).shuffle(order)
        for start in range(0, len(order) - count + 1, count):
            group = order[start : start + count]
            longer.append(Example(*(" ".join(side) for side in zip(*group, strict=True))))
    return longer


def paths_of(data: Data, names: Sequence[str]) -> list[Path]:
    """Where files are: in the table's folder, which is looked up in the folder that OVERT_DATA names, where it names one."""
    folder = Path(os.environ.get("OVERT_DATA", "."), Path(data.folder).expanduser())
    return [folder / name for name in names]


def _read_split(data: Data, split: str, notes: list[str]) -> list[Example]:
    names = getattr(data, split)
    if not names:
        return []
    wanted = 2 if data.format == "lines" else 1
    if len(names) != wanted:
        files = "two files, source and target" if wanted == 2 else "one file"
        raise InputError(f'{split} names {files}, where format is "{data.format}"', got=", ".join(names), fix="name them so")
    examples = _FORMATS[data.format](paths_of(data, names), data.encoding)
    full = [example for example in examples if example.given and (example.wanted or data.format == "text")]
    if len(full) < len(examples):
        notes.append(f"{split}: {len(examples) - len(full)} of {len(examples)} lines are left out, since one side is empty")
    if not full:
        raise InputError(f"{split} holds at least one example", got=f"none in {', '.join(names)}", fix="check the files")
    return full


def _two_files(paths: list[Path], encoding: str) -> list[Example]:
    """Multi30k's form: line n of one file answers line n of the other."""
    sources, targets = (read_lines(path, encoding) for path in paths)
    if len(sources) != len(targets):
        raise InputError(
            "source and target answer each other line by line, so they have the same number of lines",
            got=f"{paths[0]} of {len(sources)} and {paths[1]} of {len(targets)} lines",
            fix="find where they part",
        )
    return [Example(source.strip(), target.strip()) for source, target in zip(sources, targets, strict=True)]


def _pairs(paths: list[Path], encoding: str) -> list[Example]:
    """Tatoeba's form: source TAB target, and perhaps more columns, which are not read."""
    examples = []
    for number, line in enumerate(read_lines(paths[0], encoding), 1):
        columns = [column.strip() for column in line.split("\t")]
        if line.strip() and len(columns) < 2:
            raise InputError(f"{paths[0]}, line {number}: source TAB target", got=repr(line), fix="put a tab between them")
        examples.append(Example(*columns[:2]) if line.strip() else Example("", ""))
    return examples


def _conllu(paths: list[Path], encoding: str) -> list[Example]:
    """Universal Dependencies: one word a line, its form in column 2 and its tag in column 4; an empty line ends a sentence."""
    examples, words, tags = [], [], []
    for number, line in enumerate([*read_lines(paths[0], encoding), ""], 1):
        columns = line.split("\t")
        # 3-4 is a contraction whose words follow, and 5.1 a word that was left out of the sentence.
        if line.startswith("#") or "-" in columns[0] or "." in columns[0]:
            continue
        if line.strip() and len(columns) != 10:
            raise InputError(f"{paths[0]}, line {number}: ten columns", got=f"{len(columns)}", fix="pass a CoNLL-U file")
        if line.strip():
            words.append(columns[1])
            tags.append(columns[3])
        elif words:
            examples.append(Example(words, tags))
            words, tags = [], []
    return examples


def _labels(paths: list[Path], encoding: str) -> list[Example]:
    """TREC's and SST-2's form: a label and words between spaces; of a label `HUM:ind` the coarse part, `HUM`, is taken."""
    examples = []
    for line in read_lines(paths[0], encoding):
        label, _, words = line.strip().partition(" ")
        examples.append(Example(words.split(), label.partition(":")[0]))
    return examples


def _texts(paths: list[Path], encoding: str) -> list[Example]:
    return [Example(line.strip(), "") for line in read_lines(paths[0], encoding)]


_FORMATS = {"lines": _two_files, "pairs": _pairs, "conllu": _conllu, "labels": _labels, "text": _texts}


def _letters(given: Any) -> str:
    """What makes two sources the same: their letters and digits; all signs where there are none."""
    text = given if isinstance(given, str) else " ".join(given)
    return "".join(letter for letter in text.casefold() if letter.isalnum()) or text
