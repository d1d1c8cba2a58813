"""What is over is removed, many small files become few, and a person is forgotten on request.

How files are written is in `pipelines.storage` and `pipelines.landing`.
"""
