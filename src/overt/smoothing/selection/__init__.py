"""Choosing without the truth: the level of the noise, the risk of each bandwidth, the mixture of heads."""
