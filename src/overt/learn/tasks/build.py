"""Build the task and the model of a recipe, for the training loop."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from overt.errors import InputError
from overt.files import make_folder
from overt.learn.config.settings import Recipe
from overt.learn.data.corpora import CorpusSplits, data_paths, read_corpus
from overt.learn.data.moses import Moses
from overt.learn.data.tokenizer import Tokenizer
from overt.learn.data.vocabulary import WordVocabulary, read_tokenizer
from overt.learn.tasks.labelling import LabellingTask
from overt.learn.tasks.language_model import LanguageModelTask
from overt.learn.tasks.starting import StartingModel, load_starting_weights, read_starting_model, starting_tokenizer
from overt.learn.tasks.translation import TranslationTask
from overt.models import from_config

_FORMATS = {"translate": ("lines", "pairs"), "tag": ("conllu",), "classify": ("labels",), "language": ("text",)}


def build_task(recipe: Recipe, folder: str | Path) -> tuple[Any, nn.Module]:
    """The task of a recipe on its data, and a model to train, initialized from the recipe's seed.

    With `start` in [training] the weights and the tokenizer are those of a finished model. The tokenizer is learned once and saved in
    `folder` as tokenizer.json. `task.corpus.notes` names skipped data, and the starting weights. Raises
    InputError for data that cannot be used, and for a model that does not fit.
    """
    if recipe.data.format not in _FORMATS[recipe.task]:
        names = " or ".join(map(repr, _FORMATS[recipe.task]))
        raise InputError(f"data of format {names} for the task {recipe.task!r}", got=repr(recipe.data.format))
    corpus = read_corpus(recipe.data)
    if not corpus.valid:
        fix = "name files in valid, or hold sources out of training: held_out = [500, 0]"
        raise InputError("validation examples", got="none in [data]", fix=fix)
    start = None if recipe.training.start is None else read_starting_model(recipe.training.start)
    tokenizer: Any = _tokenizer(recipe, corpus, Path(folder), start)
    sizes = {"words": tokenizer.words}
    match recipe.task:
        case "translate":
            task: Any = TranslationTask(corpus, tokenizer, recipe)
            sizes = {"source_words": tokenizer.words, "target_words": tokenizer.words}
        case "language":
            task = LanguageModelTask(corpus, tokenizer, recipe)
        case _:
            task = LabellingTask(corpus, tokenizer, recipe)
            sizes["tags" if recipe.task == "tag" else "classes"] = len(tokenizer.labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        model = from_config({**recipe.model, **sizes})
    if start:
        load_starting_weights(model, tokenizer, start)
        corpus.notes.append(start.note)
    return task, model


def _tokenizer(recipe: Recipe, corpus: CorpusSplits, folder: Path, start: StartingModel | None) -> Tokenizer | WordVocabulary:
    """The folder's tokenizer; if there is none, the starting model's, or one learned from the training examples."""
    path, tokens = folder / "tokenizer.json", recipe.tokens
    whole_words = recipe.task in {"tag", "classify"}
    if path.exists():
        saved = read_tokenizer(path)
        if isinstance(saved, WordVocabulary) != whole_words:
            kinds = ("pieces of words", "whole words")
            expected = f"a tokenizer of {kinds[whole_words]} for the task {recipe.task!r}"
            got = f"{path}, one of {kinds[not whole_words]}"
            raise InputError(expected, got=got, fix="choose another folder")
        return saved
    if start:
        tokenizer: Tokenizer | WordVocabulary = starting_tokenizer(start, recipe, corpus)
    elif whole_words:
        options = {"minimum_count": tokens.minimum_count, "lower": tokens.lower, "parts": tokens.parts}
        tokenizer = WordVocabulary.learn(corpus.train, **options)
    else:
        tokenizer = _learn_pieces(recipe, corpus)
    make_folder(folder)
    tokenizer.save(path)
    return tokenizer


def _learn_pieces(recipe: Recipe, corpus: CorpusSplits) -> Tokenizer:
    tokens = recipe.tokens
    texts, targets = [example.source for example in corpus.train], [example.target for example in corpus.train]
    moses = Moses(recipe.data.languages, tokens.lower) if tokens.moses else None
    if tokens.merges_file is None:
        options = {"lower": tokens.lower, "byte_fallback": tokens.byte_fallback}
        return Tokenizer.learn(texts, targets, merges=tokens.merges, moses=moses, **options)
    [merges] = data_paths(recipe.data, [tokens.merges_file])
    return Tokenizer.from_merges(merges, texts, targets, lower=tokens.lower, moses=moses)
