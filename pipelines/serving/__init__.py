"""Scores as a service: the scorer's loop, its database, outcomes, metrics, alerts and webhooks.

The HTTP API is in `pipelines.api`, the pages in `pipelines.board`; neither is known here.
"""
