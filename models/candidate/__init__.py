"""From a feature matrix and labels to a candidate, what the test rows say of it, and its card.

Promotion is in `models.registry`; boosters are trained in `models.training`.
"""
