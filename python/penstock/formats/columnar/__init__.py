"""Parquet and Arrow: rows in units that are decoded together, and small copies for random rows."""
