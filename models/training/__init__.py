"""Training of the failure score: splits, binned rows, boosters and the search of their values.

Calibration, thresholds and judgement are elsewhere in `models`.
"""
