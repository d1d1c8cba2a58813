"""The sections of the settings file as typed values, and where their values come from.

The whole of the settings is in `pipelines.settings`; checks across documents are in
`pipelines.config`.
"""
