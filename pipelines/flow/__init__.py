"""The steps of the main flow: features, training, scores, published files, drift, long spans.

Dagster is in `pipelines.defs`; the long-lived scorer is in `pipelines.serving`.
"""
