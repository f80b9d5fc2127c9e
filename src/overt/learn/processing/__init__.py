"""Text that is not prose: its removal or replacement before translation, and its restoration afterwards."""
