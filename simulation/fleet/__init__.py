"""A synthetic fleet: its truth (hardware, incidents, jobs) and what monitoring sees of it.

No file is written here (see `simulation.writers`).
"""
