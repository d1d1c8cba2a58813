"""The forms in which a simulated fleet's telemetry can be delivered.

How each is written is in the other modules of `simulation.writers`.
"""

from typing import Literal

Form = Literal["parquet", "exposition"]
"""Parquet files by day, or every scrape as the exporter's own text."""
