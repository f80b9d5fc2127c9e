"""Altered copies of training pairs: new names, numbers and dates, careless typing, single words, long texts."""

from recipes.variants.altered import with_variants

__all__ = ["with_variants"]
