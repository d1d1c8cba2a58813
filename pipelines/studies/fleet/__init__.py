"""The study of synthetic fleets: learned on some, judged on others, beside the ceiling.

Fleets are simulated in `simulation.fleet`.
"""
