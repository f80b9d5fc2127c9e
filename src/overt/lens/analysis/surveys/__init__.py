"""Statistics of every head over a corpus, with intervals, and each head's strongest texts."""
