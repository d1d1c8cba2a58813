"""Sources, Parquet store, Dagster definitions, publishing, the report and the CLI.

No logic worth testing without Dagster: that lives in the rooms below.
"""
