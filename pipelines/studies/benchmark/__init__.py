"""`forewarn benchmark`: a record read by its mapping, a protocol run on it, the result as a page.

The protocol itself runs in `models.benchmark`; mappings are in `pipelines/mappings`.
"""
