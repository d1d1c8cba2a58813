"""Judges scores and alerts: metrics, baselines, leaks, outcomes, and the gate for candidates.

Nothing is trained for use here; thresholds are chosen in `models.policies`.
"""
