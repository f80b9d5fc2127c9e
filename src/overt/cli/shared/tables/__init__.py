"""Tables of series as input of commands: separated values, Excel workbooks, Parquet."""
