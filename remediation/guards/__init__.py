"""The guards: whether a decision may be carried out now, by count, by time, by its alerts.

What is decided is in `remediation.policy`.
"""
