"""The whole flow in one process: the demonstration and the backfill of a record.

The steps themselves are in `pipelines.flow` and `pipelines.defs`.
"""
