"""Retention and compaction of tables that lie in a bucket of a real S3 server."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from features.tables import CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS
from pipelines.retention.chores import retain
from pipelines.retention.tables import TablesArea
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore
from tests.real import seaweed_server

pytestmark = [pytest.mark.real, pytest.mark.slow]

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_days_are_compacted_and_go_in_a_bucket_as_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seaweed_server.PROGRAM is None:
        pytest.skip(seaweed_server.ABSENT)
    monkeypatch.setenv("KEY", seaweed_server.ACCESS_KEY)
    monkeypatch.setenv("SECRET", seaweed_server.SECRET_KEY)
    (tmp_path / "inputs.yaml").write_text(
        "site: lab\ntime_zone: UTC\ninputs:\n"
        "  - {kind: kernel_log, path: 'logs/*.log', may_be_absent: true}\n"
    )
    with seaweed_server.SeaweedServer() as server:
        server.make_bucket("fleet")
        how = {
            "endpoint": server.url,
            "access_key": {"variable": "KEY"},
            "secret_key": {"variable": "SECRET"},
        }
        site = Settings.model_validate(
            {"site": "lab", "inputs": tmp_path / "inputs.yaml", "data_root": tmp_path / "data"}
            | {"start": T0, "storage": {"tables": "s3://fleet/lab", "object_store": how}}
        )
        store = TableStore(site.store_root)
        empty = dict.fromkeys(CORE_GPU_TELEMETRY.schema)
        sample = pl.DataFrame(
            [empty | {"gpu_uuid": "g", "ts": T0, "node": "n"}], schema=CORE_GPU_TELEMETRY.schema
        )
        store.write(CORE_GPU_TELEMETRY, sample, span=Span(T0, T0 + HOUR))
        event = dict.fromkeys(CORE_HEALTH_EVENTS.schema) | {
            "event_id": "e", "ts": T0 + HOUR, "node": "n", "kind": "xid", "count": 1
        }  # fmt: skip
        rows = pl.DataFrame([event], schema=CORE_HEALTH_EVENTS.schema)
        store.write(CORE_HEALTH_EVENTS, rows, span=Span(T0, T0 + 4 * HOUR), generation=3)
        late = T0 + 210 * DAY
        for _ in range(2):
            assert not retain(site, [TablesArea(site, late, grace_s=-1)], now=late).problems
        assert not store.has(CORE_GPU_TELEMETRY)
        assert [path.name for path in store.files(CORE_HEALTH_EVENTS)] == [
            "2026-01-05-00000f.parquet"
        ]
        assert store.read(CORE_HEALTH_EVENTS).equals(rows)
        assert set(store.generations(CORE_HEALTH_EVENTS).values()) == {3}
        with_client = server.client().list_objects_v2(Bucket="fleet")["Contents"]
        assert sum("health_events/" in one["Key"] for one in with_client) == 1
