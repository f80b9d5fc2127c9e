"""Code shared by commands: output, input, and loading of models."""
