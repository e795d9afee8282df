"""Reads tables from text files, Excel workbooks, Parquet files and databases."""
