"""Writes a synthetic fleet in the raw formats a real site delivers.

Nothing is simulated here.
"""
