"""The texts of a corpus on their way to a model: from files, as token ids, in padded or packed batches."""
