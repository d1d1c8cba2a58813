"""`forewarn init`: the files of a site, written from what its live cluster says.

Checks of what was written are in `pipelines.config` and `pipelines.doctor`.
"""
