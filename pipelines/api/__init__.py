"""The HTTP API: what of an installation can be read, and asked of the hook, from elsewhere.

Pages for people are in `pipelines.board`; scores are made in `pipelines.serving`.
"""
