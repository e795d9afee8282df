"""Plans for rosters larger than memory: a folder of Parquet files in, one out."""
