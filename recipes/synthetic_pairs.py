"""Training pairs that other models translated, for `added` in a recipe.

    python recipes/synthetic_pairs.py RECIPE --forward RUN [RUN ...] --backward RUN [RUN ...] --out FILE

A forward run translates the training sources, a backward run (of a recipe with `reversed = true`) the training targets. Each sentence and
its translation are a training pair, and the original pairs are among them (Nguyen et al. 2020, "Data Diversification"). Sources translated
from targets are Sennrich et al. 2016's back-translation, targets translated from sources Kim and Rush 2016's distillation. What is held out
is never read; a translation that comes to a held-out source by itself is left out when the recipe is read.
"""

import argparse
from pathlib import Path

import torch

from overt.files import whole
from overt.learn.config.recipe import read_recipe
from overt.learn.data.corpora import CorpusExample, read_corpus
from overt.learn.translator import Translator

BEAM = 4
TOKENS = 65_536  # at once on a GPU


def synthetic_pairs(
    examples: list[CorpusExample], forward: list[Translator], backward: list[Translator]
) -> list[CorpusExample]:
    """The examples, and what each translator makes of their sources or targets, each pair once."""
    sources, targets = (list(dict.fromkeys(side)) for side in zip(*examples, strict=True))
    pairs = dict.fromkeys(examples)
    for translator in forward:
        pairs |= dict.fromkeys(CorpusExample(*pair) for pair in zip(sources, _translated(translator, sources), strict=True))
    for translator in backward:
        pairs |= dict.fromkeys(CorpusExample(*pair) for pair in zip(_translated(translator, targets), targets, strict=True))
    return [pair for pair in pairs if pair.source and pair.target]


def main() -> None:
    """Read the arguments, translate, write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, help="whose training pairs are translated")
    parser.add_argument("--forward", type=Path, nargs="*", default=[], metavar="RUN", help="runs from source to target")
    parser.add_argument("--backward", type=Path, nargs="*", default=[], metavar="RUN", help="runs from target to source")
    parser.add_argument("--out", type=Path, required=True, help="source TAB target, a pair a line")
    arguments = parser.parse_args()
    translators = [[_loaded(run) for run in runs] for runs in (arguments.forward, arguments.backward)]
    examples = read_corpus(read_recipe(arguments.recipe).data).train
    pairs = synthetic_pairs(examples, *translators)
    with whole(arguments.out) as temporary:
        temporary.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    print(f"{arguments.out}: {len(pairs):,} pairs, of which {len(dict.fromkeys(examples)):,} are the originals")


def _loaded(run: Path) -> Translator:
    translator = Translator.load(run)
    if torch.accelerator.is_available():
        translator.model.to(torch.accelerator.current_accelerator())
    return translator


def _translated(translator: Translator, texts: list[str]) -> list[str]:
    tokens = 4096 if translator.device.type == "cpu" else TOKENS
    return [each.text for each in translator.translate(texts, beam=BEAM, tokens_per_batch=tokens)]


if __name__ == "__main__":
    main()
