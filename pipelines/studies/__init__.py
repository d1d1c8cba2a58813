"""Studies on a record or on synthetic fleets: survival, lost time, tuning, scheduling, recovery.

Nothing here runs in the hourly flow.
"""
