"""The board: server-rendered pages that an on-call engineer keeps open.

Nothing is scored, decided or acted on here; the HTTP API is in `pipelines.api`.
"""
