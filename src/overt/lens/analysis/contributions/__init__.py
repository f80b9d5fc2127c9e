"""The terms that the parts of a language model add to a logit, which sum to it."""
