"""One word's attention, explained: a model or a recipe, then the terminal, a picture or a page."""
