"""The settings of a run, and the recipe that they are read from."""
