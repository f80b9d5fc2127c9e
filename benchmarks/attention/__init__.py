"""Attention timed at length: kinds of work, and other libraries, beyond those of `overt bench`."""
