"""Nodes that the hook holds: how far a hold has come, its end, its return, what a crash left.

Taking a node is in `remediation.hook`.
"""
