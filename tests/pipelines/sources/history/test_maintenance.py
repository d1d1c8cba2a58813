"""Planned work comes from any CSV file by a mapping, like all other history."""

from datetime import UTC, datetime

from features.tables import CORE_MAINTENANCE
from pipelines.sources.history.files import read_history

MAPPING = """
file: {format: csv, time_zone: Europe/Berlin, null_values: ["", "-"]}
tables:
  core/maintenance:
    columns: {node: host, start: from, end: until, kind: who, reason: what}
    values: {kind: {ops: maintenance, robot: own_action}}
"""
CSV = """host,from,until,who,what
n1,2026-01-05 08:00,2026-01-05 09:30,ops,new fans
n2,2026-01-05 08:00,-,robot,drained by score
n3,2026-01-05 08:00,2026-01-05 07:00,ops,typing error
n4,2026-01-05 08:00,-,guest,nobody knows
"""


def test_a_maintenance_file_is_read_by_a_mapping(tmp_path):
    (tmp_path / "work.csv").write_text(CSV)
    (tmp_path / "work.yaml").write_text(MAPPING)
    now = datetime(2026, 2, 1, tzinfo=UTC)
    result = read_history(tmp_path / "work.csv", tmp_path / "work.yaml", ingested_at=now)
    frame = result.table("core/maintenance")
    assert CORE_MAINTENANCE.enforce(frame).rejects.is_empty()
    start = datetime(2026, 1, 5, 7, tzinfo=UTC)
    assert frame.rows() == [
        ("n1", start, datetime(2026, 1, 5, 8, 30, tzinfo=UTC), "maintenance", "new fans"),
        ("n2", start, None, "own_action", "drained by score"),
    ]
    assert sorted(result.quarantine["rule"]) == [
        "end is before start", "kind not in maintenance|own_action",
    ]  # fmt: skip
