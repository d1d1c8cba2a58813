"""Table contracts, time windows, incidents, labels and features: frames in, frames out.

No I/O, no Dagster, no MLflow, no pandas.
"""
