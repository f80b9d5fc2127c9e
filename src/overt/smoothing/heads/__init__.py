"""What one head computes: its keys, and the fast way to attend by each kind of keys."""
