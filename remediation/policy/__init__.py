"""The policy: what each action on a node costs, and the cheapest adequate one in a sentence.

Whether it may be done is in `remediation.guards`.
"""
