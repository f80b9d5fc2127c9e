"""What comes in, and files: series, options, tables, CSV and Parquet."""
