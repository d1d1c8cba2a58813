"""Replay of the drain policy on a recorded history: what it would have saved, and what it cost.

Re-exports nothing; reading tables and writing pages is in `pipelines.studies.replay.report`.
"""
