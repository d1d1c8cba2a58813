"""The rolling-origin benchmark of the failure score on a real history.

Records are read, and pages written, in `pipelines.studies.benchmark`.
"""
