"""Local polynomial regression in time: by definition, on evenly spaced points, and in the native core."""
