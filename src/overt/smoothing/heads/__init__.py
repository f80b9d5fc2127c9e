"""What one head computes: its keys, and a fast method for each kind of keys."""
