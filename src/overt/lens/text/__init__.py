"""The text that a model read: token ids as words, by any tokenizer."""
