"""Conversions of torch's multi-head attention: its masks, its weights, and its replacement inside a model."""
