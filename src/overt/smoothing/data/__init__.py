"""The input: series and tables, their times, options and condition."""
