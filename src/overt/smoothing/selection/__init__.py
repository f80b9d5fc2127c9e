"""Estimates without the truth: the noise level, the risk of each bandwidth, the mixture of heads, the band."""
