"""The command `overt`: one file a command; each parses, calls, prints."""
