"""A server's answer, run again through the same weights: which parts of its prompt each token read, and which it needed."""
