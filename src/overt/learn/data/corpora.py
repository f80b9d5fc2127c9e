"""Examples for training, validation and test, read from the files that a recipe names."""

import hashlib
import os
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from overt.errors import InputError
from overt.learn.config.settings import Data
from overt.learn.data.text_lines import read_lines


class CorpusExample(NamedTuple):
    """An example: the input of a model, and its expected output."""

    source: Any  # a text, or a list of words
    target: Any  # a text, a list of tags, or a label; "" for a language model


class CorpusSplits(NamedTuple):
    """The examples of each split, and notes for the user, such as the number of skipped lines."""

    train: list[CorpusExample]
    valid: list[CorpusExample]
    test: list[CorpusExample]
    notes: list[str]
    held_out: bool = False  # whether sources of validation or test were moved out of training
    added: Sequence[CorpusExample] = ()  # further training pairs, which do not train the tokenizer


def read_corpus(data: Data) -> CorpusSplits:
    """Read the files of a recipe's `[data]` table; without files for validation or test, sources are held out of training.

    Raises InputError for files that do not exist, do not match each other line by line, or do not have the named format.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "pairs.txt").write_text("Go.\\tVa !\\nGo!\\tAllez !\\nRun!\\tCours !\\nStop!\\tHalte !\\n")
    >>> corpus = read_corpus(Data(format="pairs", folder=str(folder), train=("pairs.txt",), held_out=(1, 1)))
    >>> [len(split) for split in corpus[:3]]
    [1, 1, 2]
    """
    notes: list[str] = []
    train, valid, test = (_read_split(data, split, notes) for split in ("train", "valid", "test"))
    sizes = (0 if valid else data.held_out[0], 0 if test else data.held_out[1])
    train, split_valid, split_test = hold_out(train, *sizes)
    if any(sizes) and data.languages[:1] == ("en",):
        train, split_valid = without_contracted_copies(train, split_valid, split_test, notes)
    if data.limit is not None:
        train = spread_sample(train, data.limit)
    if data.join > 1:
        train, test = join_neighbours(train, data.join, shuffle=True), join_neighbours(test or split_test, data.join)
    valid, test = valid or split_valid, test or split_test
    splits = [train, valid, test, _read_added(data, [*valid, *test], notes)]
    if data.reversed:
        splits = [[CorpusExample(target, source) for source, target in split] for split in splits]
    return CorpusSplits(*splits[:3], notes, held_out=any(sizes), added=splits[3])


def hold_out(
    examples: list[CorpusExample], valid: int, test: int
) -> tuple[list[CorpusExample], list[CorpusExample], list[CorpusExample]]:
    """Split by source: all examples of `valid` and of `test` sources leave the training split, so no source is in two splits.

    Sources that differ only in case, punctuation or spaces count as one: with "Go!" in the test, "Go." is not in training. The sources
    with the smallest SHA-256 of their letters are held out, independently of the order of the file.

    >>> split = [CorpusExample("Go.", "Va !"), CorpusExample("go!", "Allez !"), CorpusExample("Run!", "Cours !")]
    >>> [len(part) for part in hold_out(split, 0, 1)]
    [1, 0, 2]
    """
    if not valid and not test:
        return examples, [], []
    groups: dict[str, list[CorpusExample]] = defaultdict(list)
    for example in examples:
        groups[_letters(example.source)].append(example)
    if valid + test >= len(groups):
        raise InputError(
            "at least one source that is not held out, for training",
            got=f"held_out = [{valid}, {test}] of {len(groups)} different sources",
            fix="hold out fewer",
        )
    order = sorted(groups, key=lambda letters: hashlib.sha256(letters.encode()).digest())
    tested, validated = set(order[:test]), set(order[test : test + valid])
    parts: tuple[list[CorpusExample], list[CorpusExample], list[CorpusExample]] = ([], [], [])
    for letters, group in groups.items():
        parts[2 if letters in tested else 1 if letters in validated else 0].extend(group)
    return parts


def without_contracted_copies(
    train: list[CorpusExample], valid: list[CorpusExample], test: list[CorpusExample], notes: list[str]
) -> tuple[list[CorpusExample], list[CorpusExample]]:
    """The training and validation splits without English sources that equal held-out ones except for contractions.

    "I am tired." leaves training if "I'm tired." is in the test or in validation; the test is unchanged.

    >>> without_contracted_copies([CorpusExample("I am 2.", ""), CorpusExample("Go.", "")], [], [CorpusExample("I'm 2!", "")], [])[0]
    [CorpusExample(source='Go.', target='')]
    """
    tested = {without_contractions(example.source) for example in test}
    valid_remaining = [example for example in valid if without_contractions(example.source) not in tested]
    held_out = tested | {without_contractions(example.source) for example in valid}
    remaining = [example for example in train if without_contractions(example.source) not in held_out]
    counts = len(train) - len(remaining), len(valid) - len(valid_remaining)
    if any(counts):
        notes.append(
            f"left out, as held-out sources with or without contractions: {counts[0]} of training, {counts[1]} of validation"
        )
    return remaining, valid_remaining


def without_contractions(source: str) -> str:
    """The letters of an English sentence, equal for "they're" and "they are"; ambiguous 's, 'd, is, has, had, would are removed.

    >>> without_contractions("He's sure they can't come."), without_contractions("He is sure they cannot come!")
    ('hesuretheycannotcome', 'hesuretheycannotcome')
    """
    text = source.casefold().replace("’", "'")
    for contracted, full in _CONTRACTIONS:
        text = re.sub(contracted, full, text)
    return _letters(text)


def spread_sample(examples: list[CorpusExample], count: int) -> list[CorpusExample]:
    """At most `count` examples, evenly spaced in the list, since files are often sorted by length.

    >>> [example.source for example in spread_sample([CorpusExample(text, "") for text in "abcdef"], 3)]
    ['a', 'c', 'e']
    """
    count = min(count, len(examples))
    return [examples[number * len(examples) // count] for number in range(count)]


def join_neighbours(examples: list[CorpusExample], max_lines: int, *, shuffle: bool = False) -> list[CorpusExample]:
    """Every line alone, then joined in groups of 2, 3, … up to `max_lines` neighbours, so that each length has the same lines.

    >>> [example.source for example in join_neighbours([CorpusExample("a", "1"), CorpusExample("b", "2"), CorpusExample("c", "3")], 2)]
    ['a', 'b', 'c', 'a b']
    """
    longer = []
    for count in range(1, max_lines + 1):
        order = list(examples)
        if shuffle:
            random.Random(count).shuffle(order)
        for start in range(0, len(order) - count + 1, count):
            group = order[start : start + count]
            longer.append(CorpusExample(*(" ".join(side) for side in zip(*group, strict=True))))
    return longer


def data_paths(data: Data, names: Sequence[str]) -> list[Path]:
    """The paths of data files: in the table's folder, which is relative to the folder in OVERT_DATA, if that is set."""
    folder = Path(os.environ.get("OVERT_DATA", "."), Path(data.folder).expanduser())
    return [folder / name for name in names]


def _read_split(data: Data, split: str, notes: list[str]) -> list[CorpusExample]:
    names = getattr(data, split)
    if not names:
        return []
    count = 2 if data.format == "lines" else 1
    if len(names) != count:
        files = "two files, source and target," if count == 2 else "one file"
        expected = f'{files} in {split} for the format "{data.format}"'
        raise InputError(expected, got=", ".join(names), fix=f"correct {split} in [data]")
    examples = _FORMATS[data.format](data_paths(data, names), data.encoding)
    full = [example for example in examples if example.source and (example.target or data.format == "text")]
    if len(full) < len(examples):
        notes.append(f"{split}: {len(examples) - len(full)} of {len(examples)} lines left out: one side is empty")
    if not full:
        raise InputError(f"at least one example for {split}", got=f"none in {', '.join(names)}", fix="check the files")
    return full


def _read_added(data: Data, held_out: list[CorpusExample], notes: list[str]) -> list[CorpusExample]:
    """The added pairs, without those whose source is held out: a translation may equal a held-out sentence by chance."""
    examples = [example for name in data.added for example in _pairs([Path(name)], data.encoding) if example.source]
    english = data.languages[:1] == ("en",)
    keys = (_letters, without_contractions) if english else (_letters,)
    out = {key(example.source) for example in (held_out if examples else ()) for key in keys}
    remaining = [example for example in examples if out.isdisjoint(key(example.source) for key in keys)]
    if examples:
        notes.append(
            f"{len(remaining):,} pairs added from {', '.join(data.added)}; {len(examples) - len(remaining):,} left out, as held-out sources"
        )
    return remaining


def _two_files(paths: list[Path], encoding: str) -> list[CorpusExample]:
    """The format of Multi30k: line n of one file is the translation of line n of the other."""
    sources, targets = (read_lines(path, encoding) for path in paths)
    if len(sources) != len(targets):
        raise InputError(
            "source and target files with the same number of lines",
            got=f"{paths[0]} with {len(sources)} and {paths[1]} with {len(targets)} lines",
            fix="find the first line at which they differ",
        )
    return [CorpusExample(source.strip(), target.strip()) for source, target in zip(sources, targets, strict=True)]


def _pairs(paths: list[Path], encoding: str) -> list[CorpusExample]:
    """The format of Tatoeba: source TAB target; further columns are ignored."""
    examples = []
    for number, line in enumerate(read_lines(paths[0], encoding), 1):
        columns = [column.strip() for column in line.split("\t")]
        if line.strip() and len(columns) < 2:
            raise InputError("source TAB target", got=f"{line!r} ({paths[0]}, line {number})", fix="put a tab between them")
        examples.append(CorpusExample(*columns[:2]) if line.strip() else CorpusExample("", ""))
    return examples


def _conllu(paths: list[Path], encoding: str) -> list[CorpusExample]:
    """Universal Dependencies: one word a line, its form in column 2 and its tag in column 4; an empty line ends a sentence."""
    examples, words, tags = [], [], []
    for number, line in enumerate([*read_lines(paths[0], encoding), ""], 1):
        columns = line.split("\t")
        # The id 3-4 is a contraction whose words follow, and 5.1 is an empty node.
        if line.startswith("#") or "-" in columns[0] or "." in columns[0]:
            continue
        if line.strip() and len(columns) != 10:
            raise InputError("ten columns", got=f"{len(columns)} ({paths[0]}, line {number})", fix="pass a CoNLL-U file")
        if line.strip():
            words.append(columns[1])
            tags.append(columns[3])
        elif words:
            examples.append(CorpusExample(words, tags))
            words, tags = [], []
    return examples


def _labels(paths: list[Path], encoding: str) -> list[CorpusExample]:
    """The format of TREC and SST-2: a label and words, separated by spaces; a label `HUM:ind` is read as its coarse part `HUM`."""
    examples = []
    for line in read_lines(paths[0], encoding):
        label, _, words = line.strip().partition(" ")
        examples.append(CorpusExample(words.split(), label.partition(":")[0]))
    return examples


def _texts(paths: list[Path], encoding: str) -> list[CorpusExample]:
    return [CorpusExample(line.strip(), "") for line in read_lines(paths[0], encoding)]


# _CONTRACTIONS, in order: irregular ones first; the ambiguous ones are deleted last.
_CONTRACTIONS = (
    (r"\bcan't\b", "can not"),
    (r"\bwon't\b", "will not"),
    (r"\bshan't\b", "shall not"),
    (r"\blet's\b", "let us"),
    (r"n't\b", " not"),
    (r"'m\b", " am"),
    (r"'re\b", " are"),
    (r"'ve\b", " have"),
    (r"'ll\b", " will"),
    (r"'[sd]\b|\b(?:is|has|had|would)\b", ""),
)

_FORMATS = {"lines": _two_files, "pairs": _pairs, "conllu": _conllu, "labels": _labels, "text": _texts}


def _letters(source: Any) -> str:
    """The letters and digits of a source, which identify it; all its characters if it has none."""
    text = source if isinstance(source, str) else " ".join(source)
    return "".join(letter for letter in text.casefold() if letter.isalnum()) or text
