"""Statistics of a recording: roles, summaries, output norms, and the check against the model."""
