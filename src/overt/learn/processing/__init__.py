"""Text that is not prose: what the model does not read, what it reads in its place, and how the translation gets it back."""
