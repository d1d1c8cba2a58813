"""Actuators: what carries an action out on the cluster, or only records it.

No decision is made here.
"""
