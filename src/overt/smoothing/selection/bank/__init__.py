"""The default smoother: a bank of heads, their mixture, and many short series at once."""
