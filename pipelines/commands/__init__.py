"""The commands of `forewarn`, one module per family: arguments in, one call, words out.

No logic: each command's work is in the module it names.
"""
