"""What the inputs give, kept once as received: ingest, the landing and its journal, refusals.

Formats of sources are in `pipelines.sources`; what is removed again, in `pipelines.retention`.
"""
