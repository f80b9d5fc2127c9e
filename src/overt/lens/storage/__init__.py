"""Recordings in memory and in files."""
