"""A simulated cluster on which everything goes wrong: for replays and for proofs about the hook.

The synthetic fleet with its telemetry is in `simulation.fleet`.
"""
