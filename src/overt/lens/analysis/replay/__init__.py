"""What a server answered, run once more through the same weights: which part of its prompt each token read, and which it needed."""
