"""Shared parts of every picture and page: a canvas, and the formatting of numbers and letters."""
