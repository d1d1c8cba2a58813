"""A site's own records: any CSV or Parquet, by a mapping."""
