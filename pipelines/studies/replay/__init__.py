"""The replay report: what a drain policy would have saved on a recorded history.

The replay itself runs in `simulation.replay`.
"""
