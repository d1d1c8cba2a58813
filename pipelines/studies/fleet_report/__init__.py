"""The page that holds a synthetic fleet against its own parameters and published laws.

Fleets are simulated in `simulation.fleet`.
"""
