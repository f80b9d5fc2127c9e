"""`overt bench` and `overt bench smooth`."""
