"""The Parquet store and the files beneath it, on a disk or in a bucket.

What tables mean is in `features.tables`; what is removed, and when, in `pipelines.retention`.
"""
