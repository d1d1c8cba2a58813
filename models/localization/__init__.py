"""Which machines to evict when a training job hangs or slows: stacks, collectives, replay.

Files are read in `pipelines.sources.stacks`; nothing is evicted here.
"""
