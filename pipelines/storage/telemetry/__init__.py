"""The packed store of core/gpu_telemetry: its layout, its files and their encoding.

Reading telemetry from exporters is in `pipelines.sources.telemetry`.
"""
