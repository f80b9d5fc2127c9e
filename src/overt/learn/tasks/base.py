"""From a recipe to what the training loop takes: the task and its model."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from overt.errors import InputError
from overt.files import make_folder
from overt.learn.config.settings import Recipe
from overt.learn.data.corpora import Corpus, paths_of, read_corpus
from overt.learn.data.moses import Moses
from overt.learn.data.tokenizer import Tokenizer
from overt.learn.data.vocabulary import WordVocabulary, read_tokenizer
from overt.learn.tasks.labelling import Labelling
from overt.learn.tasks.language import Language
from overt.learn.tasks.translation import Translation
from overt.models import from_config

_FORMATS = {"translate": ("lines", "pairs"), "tag": ("conllu",), "classify": ("labels",), "language": ("text",)}


def task_of(recipe: Recipe, folder: str | Path) -> tuple[Any, nn.Module]:
    """The task of a recipe on its data, and a model to train, whose first weights follow from the recipe's seed.

    Tokens are learned once and kept in `folder` as tokenizer.json. `task.corpus.notes` says what of the data was left out. Raises
    InputError for data that cannot be used.
    """
    if recipe.data.format not in _FORMATS[recipe.task]:
        names = " or ".join(map(repr, _FORMATS[recipe.task]))
        raise InputError(f"the task {recipe.task!r} reads data of format {names}", got=repr(recipe.data.format))
    corpus = read_corpus(recipe.data)
    if not corpus.valid:
        fix = "name files as valid, or hold some sources out of training: held_out = [500, 0]"
        raise InputError("training is measured on validation examples", got="none in [data]", fix=fix)
    tokenizer: Any = _tokenizer(recipe, corpus, Path(folder))
    sizes = {"words": tokenizer.words}
    match recipe.task:
        case "translate":
            task: Any = Translation(corpus, tokenizer, recipe)
            sizes = {"source_words": tokenizer.words, "target_words": tokenizer.words}
        case "language":
            task = Language(corpus, tokenizer, recipe)
        case _:
            task = Labelling(corpus, tokenizer, recipe)
            sizes["tags" if recipe.task == "tag" else "classes"] = len(tokenizer.labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        return task, from_config({**recipe.model, **sizes})


def _tokenizer(recipe: Recipe, corpus: Corpus, folder: Path) -> Tokenizer | WordVocabulary:
    """The folder's tokenizer, learned from the training examples where there is none yet."""
    path, tokens = folder / "tokenizer.json", recipe.tokens
    whole_words = recipe.task in {"tag", "classify"}
    if path.exists():
        held = read_tokenizer(path)
        if isinstance(held, WordVocabulary) != whole_words:
            got = f"{path} of {'whole words' if not whole_words else 'pieces of words'}"
            raise InputError(f"the task {recipe.task!r} goes on with its own tokens", got=got, fix="choose another folder")
        return held
    if whole_words:
        counted = {"minimum_count": tokens.minimum_count, "lower": tokens.lower, "parts": tokens.parts}
        tokenizer: Tokenizer | WordVocabulary = WordVocabulary.learn(corpus.train, **counted)
    else:
        tokenizer = _pieces(recipe, corpus)
    make_folder(folder)
    tokenizer.save(path)
    return tokenizer


def _pieces(recipe: Recipe, corpus: Corpus) -> Tokenizer:
    tokens = recipe.tokens
    texts, targets = [example.given for example in corpus.train], [example.wanted for example in corpus.train]
    moses = Moses(recipe.data.languages, tokens.lower) if tokens.moses else None
    if tokens.merges_file is None:
        return Tokenizer.learn(texts, targets, merges=tokens.merges, lower=tokens.lower, moses=moses)
    [merges] = paths_of(recipe.data, [tokens.merges_file])
    return Tokenizer.from_merges(merges, texts, targets, lower=tokens.lower, moses=moses)
