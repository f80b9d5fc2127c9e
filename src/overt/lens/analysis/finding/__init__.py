"""Heads that connect the words of a reader's own pairs, chosen on one half of the texts and measured on the other."""
