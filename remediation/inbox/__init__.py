"""The inbox of people's requests: its folders, its keys, and what accepted requests mean.

How a request is written and signed is in `remediation.signed_requests`.
"""
