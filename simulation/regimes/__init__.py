"""Parameter files of synthetic fleets, and how to load one.

The meaning of each parameter is in `simulation.fleet.regime`.
"""
