"""The ledger: entries and their hash chain, where they are kept, and what they mean at present.

Who may write to it is in `remediation.lease`.
"""
