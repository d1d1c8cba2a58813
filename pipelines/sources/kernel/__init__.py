"""Kernel and fabric logs: lines about trouble."""
