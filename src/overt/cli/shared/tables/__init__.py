"""Tables of series that commands read: separated values, Excel workbooks, Parquet."""
