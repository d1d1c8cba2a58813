"""The warning policy: which scores become alerts, and how its values are chosen.

What is done about an alert is in `remediation`.
"""
