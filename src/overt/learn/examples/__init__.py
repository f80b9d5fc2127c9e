"""Small tasks that show one thing each."""
