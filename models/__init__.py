"""Splits, training, calibration, evaluation, reasons and the model registry.

No knowledge of sources or of Dagster; only `models.registry.model_registry` imports mlflow.
"""
