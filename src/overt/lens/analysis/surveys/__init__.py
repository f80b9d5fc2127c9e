"""Every head over a corpus: what it does on average, with intervals, and its strongest texts."""
