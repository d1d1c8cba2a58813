"""Nodes, pods, jobs and events of Kubernetes, saved or live."""
