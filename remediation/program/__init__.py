"""The hook as a program: rounds, the loop, plan files, requests, status, reasons and metrics.

What is decided, guarded and journaled in a round is in the packages beside it.
"""
