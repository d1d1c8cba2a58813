"""Dagster assets, one module per room of the data; bodies call one pure function each.

No logic worth testing without Dagster.
"""
