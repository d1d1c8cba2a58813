"""Versions of models, their aliases and their files; the only place that knows MLflow.

What a version holds is `models.bundle`; whether it may be promoted says `models.evaluation.gate`.
"""
