"""`forewarn config`: all documents of an installation read, held against each other and shown.

What a section of the settings is stands in `pipelines.sections`.
"""
