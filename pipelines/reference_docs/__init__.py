"""The pages that are written from the code: contracts, settings, commands, API, features.

Run as `python -m pipelines.reference_docs`; guides are written by hand in `docs/`.
"""
