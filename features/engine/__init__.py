"""The feature engine: telemetry samples to buckets of exact integers to windows.

Features of events, history and jobs are not here; they rest on binary searches.
"""
