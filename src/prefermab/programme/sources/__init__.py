"""Where tables come from: text files, Excel workbooks, Parquet files and databases."""
