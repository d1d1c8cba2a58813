"""Readers of the outside world's formats: text and files in, raw tables and quarantine out.

Nothing is re-exported here, and nothing is deduplicated or joined (that is `features`).
"""
