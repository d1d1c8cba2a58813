"""Time lost to failures of training jobs: ETTR, checkpoint intervals, the ladder of an incident.

Nothing is simulated here (see `simulation.recovery`), and nothing acts.
"""
