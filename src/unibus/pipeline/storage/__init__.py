"""The tables of a lake: their columns, their Parquet files, and their Delta logs."""
