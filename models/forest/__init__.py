"""Raw scores of a LightGBM booster by a packed forest, bit for bit those of LightGBM.

Training is in `models.training`.
"""
