"""Seasons: attention whose key is the phase within a period."""
