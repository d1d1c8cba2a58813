"""Fault types: forecast before a failure, diagnosed once it has begun, judged type by type.

The catalogue of faults is read in `pipelines.sources.catalogue`.
"""
