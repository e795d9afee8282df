"""Plans for more people than fit into memory: reads and writes folders of Parquet files."""
