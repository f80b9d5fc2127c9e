"""How the texts of a corpus come to a model: from files, as token ids, in batches that are padded or packed."""
