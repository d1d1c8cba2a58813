"""The document of supported fields."""

from pathlib import Path

from pipelines.sources.telemetry.field_table import field_table

PAGE = Path(__file__).parents[4] / "docs/telemetry_fields.md"


def test_the_document_is_what_the_code_says():
    assert PAGE.read_text(encoding="utf-8") == field_table(), (
        "run python -m pipelines.sources.telemetry.field_table > docs/telemetry_fields.md"
    )
