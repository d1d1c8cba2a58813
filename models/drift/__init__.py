"""Drift of inputs and of calibration since training, and what it is called.

What is done about it is in `pipelines.flow.steps.drift`.
"""
