"""Several models under one score: members, their parallel and cascade ensembles, sliding training.

Calibration, thresholds and storage are those of every model, elsewhere in `models`.
"""
