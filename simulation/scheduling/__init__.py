"""Training jobs on a training cluster and on idle inference servers, scheduled as Lyra does.

The cost and the order of reclaimed servers are the hook's own, in `remediation`.
"""
