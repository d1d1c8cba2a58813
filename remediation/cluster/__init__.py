"""The cluster as the hook sees it: nodes and jobs, reasons stamped on nodes, the hold-out.

Live clusters are read in `remediation.actuators`.
"""
