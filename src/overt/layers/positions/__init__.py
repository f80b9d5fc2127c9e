"""Where tokens stand: positions that are added, rotated in, or scored."""
