"""From text files to batches of tensors."""
