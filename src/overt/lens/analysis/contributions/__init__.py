"""What each part of a language model adds to a logit, such that the parts sum to it."""
