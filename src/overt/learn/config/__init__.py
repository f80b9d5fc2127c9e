"""The settings of a run, and the recipe that contains them."""
