"""Training tasks: translation, labels, language."""
