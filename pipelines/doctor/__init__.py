"""`forewarn doctor`: what an installation names, probed at once, with what to do about it.

Nothing is repaired here; documents are checked in `pipelines.config`.
"""
