"""The hook: policy, guards, ledger and actuators, run as a process of its own.

No training code and no Dagster; importing it loads neither mlflow nor lightgbm.
"""
