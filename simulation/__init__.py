"""The synthetic fleet with known truth, and later replay and scheduling simulations.

Nothing that a production run needs.
"""
