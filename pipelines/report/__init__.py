"""The report of an installation and the pages of a model version: values in, text and plots out.

Values are gathered elsewhere; nothing is computed that a table does not hold.
"""
