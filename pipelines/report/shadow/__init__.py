"""The shadow report: what a hook that only observed would have done, as one page to be signed.

The hook's own view of its ledger is in `remediation.shadow`.
"""
