"""Recovery of a large training job, and the stack dumps that its hangs leave behind.

The synthetic fleet is in `simulation.fleet`; nothing that a production run needs.
"""
