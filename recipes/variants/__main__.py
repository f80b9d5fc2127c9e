"""Altered copies of a recipe's training pairs, for `added` in the recipe.

    python -m recipes.variants RECIPE --share 3.0 --out runs/variants.tsv

`--share` is their number, as a share of the pairs; `training.seed` of the recipe is their seed. `altered.with_variants` names the kinds.
What is held out is never read.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from overt.errors import InputError
from overt.files import whole
from overt.learn.config.recipe import read_recipe
from overt.learn.data.corpora import read_corpus
from recipes.variants.altered import with_variants


def main() -> None:
    """Read the arguments, alter, write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, help="whose training pairs are altered")
    parser.add_argument("--share", type=float, default=1.0, help="altered copies for each pair, up to 10")
    parser.add_argument("--out", type=Path, required=True, help="source TAB target, a pair a line")
    arguments = parser.parse_args()
    if not 0 < arguments.share <= 10:
        raise InputError("--share above 0 and up to 10", got=repr(arguments.share), fix="pass 1 for as many copies as pairs")
    recipe = read_recipe(arguments.recipe, files=False)
    if recipe.task != "translate":
        raise InputError("a recipe of a translation", got=f"task {recipe.task!r}", fix="leave its pairs as they are")
    pairs = read_corpus(replace(recipe.data, added=())).train
    altered = with_variants(pairs, arguments.share, recipe.training.seed)[len(pairs) :]
    with whole(arguments.out) as temporary:
        temporary.write_text("".join(f"{source}\t{target}\n" for source, target in altered), encoding="utf-8")
    print(f"{arguments.out}: {len(altered):,} altered copies of {len(pairs):,} pairs")


if __name__ == "__main__":
    main()
