"""What is learnt: translation, labels, language."""
