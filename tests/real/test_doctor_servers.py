"""Probes of `forewarn doctor` on real servers: PostgreSQL, Prometheus, Alertmanager."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from features.errors import ForewarnError
from pipelines.doctor import hook as doctor_hook
from pipelines.doctor.schema_versions import stored_versions
from pipelines.doctor.servers import (
    probe_alertmanager,
    probe_bucket,
    probe_score_database,
    server_probes,
)
from pipelines.doctor.sources import probe_prometheus
from pipelines.orchestration.dagster_home import PASSWORD_VARIABLE, dagster_yaml
from pipelines.sections.serving import AlertmanagerSettings
from pipelines.serving.place import score_engine
from pipelines.serving.score_schema import writing
from pipelines.settings import settings_from
from pipelines.sources.site.listing import SiteInputs
from pipelines.sources.site.server_inputs import PrometheusInput
from remediation.hook_settings import HookSettings
from remediation.ledger.postgres import PostgresLedger, connect
from tests.real import alertmanager_server, postgres_server, prometheus_server, seaweed_server
from tests.real.alertmanager_server import AlertmanagerServer, Receiver
from tests.real.postgres_server import PostgresServer
from tests.real.prometheus_server import PrometheusServer
from tests.real.seaweed_server import SeaweedServer

pytestmark = [pytest.mark.real]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if postgres_server.PROGRAMS is None:
        pytest.skip(postgres_server.ABSENT)
    pytest.importorskip("psycopg", reason="psycopg (forewarn[postgres]) is not installed")
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    if prometheus_server.PROGRAM is None:
        pytest.skip(prometheus_server.ABSENT)
    with PrometheusServer(tmp_path_factory.mktemp("prometheus")) as server:
        ts = [int(time.time()) * 1000 - 1000]
        labels = {"job": "dcgm", "UUID": "GPU-1"}  # of one GPU all metrics have the same
        names = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE")
        server.write([({"__name__": name, **labels}, ts, [40.0]) for name in names])
        yield server


def look(url: str, folder: Path, **more: Any) -> Any:
    spec = PrometheusInput(kind="prometheus", url=url, **more)
    inputs: Any = SiteInputs(None, folder / "inputs.yaml")  # type: ignore[arg-type]
    return probe_prometheus(inputs, spec, datetime.now(UTC))


def test_a_prometheus_is_found_well_or_told_what_it_lacks(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    well = look(prometheus.url, tmp_path)
    assert (well.state, well.what.startswith("2 series of GPUs")) == ("ok", True)
    kept_out = look(prometheus.url, tmp_path, matchers=('job="other"',))
    assert (kept_out.state, kept_out.do) == ("FAIL", "Correct matchers.")
    with pytest.raises(ForewarnError, match="127.0.0.1:9"):
        look("http://127.0.0.1:9", tmp_path)


def test_a_score_database_on_a_server_tells_its_newest_tick_and_clock(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.database("scores")
    url = f"postgresql+psycopg://forewarn@/scores?host={postgres.folder}"
    content = {
        "site": "s",
        "inputs": "i.yaml",
        "data_root": "data",
        "start": "2026-01-01T00:00:00Z",
        "score_database": {"url": url},
    }
    settings = settings_from(content, origin=tmp_path / "forewarn.yaml")
    found = probe_score_database(settings)
    assert (found.state, "holds no tick yet" in found.what) == ("ok", True)
    assert stored_versions(settings)[0].state == "absent"
    engine = score_engine(settings)
    with writing(engine):
        pass
    engine.dispose()
    assert stored_versions(settings)[0].state == "same"
    gone = content | {"score_database": {"url": url.replace(str(postgres.folder), "/nowhere")}}
    gone_settings = settings_from(gone, origin=tmp_path / "forewarn.yaml")
    assert stored_versions(gone_settings)[0].state == "unreadable"


def test_dagster_on_a_server_is_found_by_the_password_that_the_settings_name(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dagster_postgres")
    monkeypatch.setenv(PASSWORD_VARIABLE, "")  # put back afterwards
    monkeypatch.delenv(PASSWORD_VARIABLE)
    postgres.database("dagster")
    (tmp_path / "password").write_text("word\n")
    url = f"postgresql://forewarn@/dagster?host={postgres.folder}"
    content = {
        "site": "s",
        "inputs": "i.yaml",
        "data_root": "data",
        "start": "2026-01-01T00:00:00Z",
        "storage": {"dagster": {"url": url, "password": {"file": str(tmp_path / "password")}}},
    }
    settings = settings_from(content, origin=tmp_path / "forewarn.yaml")
    home = tmp_path / "data" / "dagster"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text(dagster_yaml(settings))
    found = next(one for one in server_probes(settings, sends_test=False) if one.name == "dagster")
    assert "no daemon ever ran" in found.look().what


def hook_of(folder: Path, **ledger: Any) -> HookSettings:
    return HookSettings.model_validate(
        {
            "state": folder,
            "scores": {"folder": folder},
            "cluster": {"kind": "slurm"},
            "ledger": ledger,
        }
    )


def test_a_ledger_on_a_server_is_looked_at_and_never_made(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conninfo = postgres.database("ledger")
    monkeypatch.setenv("LEDGER", conninfo)
    hook = hook_of(tmp_path, postgres_variable="LEDGER")
    found = doctor_hook.probe_ledger(hook, now=datetime.now(UTC))
    assert (found.state, "not there yet" in found.what) == ("ok", True)
    with connect(conninfo) as connection:
        assert connection.execute("SELECT to_regclass('forewarn_ledger')").fetchone() == (None,)
    PostgresLedger(conninfo).close()
    found = doctor_hook.probe_ledger(hook, now=datetime.now(UTC))
    assert (found.state, found.what) == ("ok", "whole, 0 entries")
    # A clock of this machine that is an hour wrong.
    wrong = doctor_hook.probe_ledger(hook, now=datetime.now(UTC).replace(year=2020))
    assert (wrong.state, "ahead of this one" in wrong.what) == ("FAIL", True)
    monkeypatch.setenv("LEDGER", "host=/nowhere dbname=x password=s3cret")
    with pytest.raises(ForewarnError, match="See that the server runs") as caught:
        doctor_hook.probe_ledger(hook, now=datetime.now(UTC))
    assert "s3cret" not in str(caught.value)


def test_an_alertmanager_is_sent_a_test_only_where_that_is_asked_for(tmp_path: Path) -> None:
    if alertmanager_server.PROGRAM is None:
        pytest.skip(alertmanager_server.ABSENT)
    with Receiver() as receiver, AlertmanagerServer(tmp_path, receiver.url) as server:
        chosen = AlertmanagerSettings(url=server.url)
        assert probe_alertmanager(chosen, site="s", sends_test=False).state == "ok"
        assert server.alerts() == []
        assert probe_alertmanager(chosen, site="s", sends_test=True).state == "ok"
        (alert,) = server.alerts()
        assert alert["labels"]["alertname"] == "ForewarnDoctorTest"


@pytest.mark.slow
def test_a_bucket_is_written_read_and_left_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seaweed_server.PROGRAM is None:
        pytest.skip(seaweed_server.ABSENT)
    monkeypatch.setenv("KEY", seaweed_server.ACCESS_KEY)
    monkeypatch.setenv("SECRET", seaweed_server.SECRET_KEY)
    with SeaweedServer() as server:
        server.make_bucket("fleet")
        how = {
            "endpoint": server.url,
            "access_key": {"variable": "KEY"},
            "secret_key": {"variable": "SECRET"},
            "attempts": 1,
        }
        content = {
            "site": "s",
            "inputs": "i.yaml",
            "data_root": "data",
            "start": "2026-01-01T00:00:00Z",
            "storage": {"tables": "s3://fleet/lab", "object_store": how},
        }
        settings = settings_from(content, origin=tmp_path / "forewarn.yaml")
        names = [one.name for one in server_probes(settings, sends_test=False)]
        assert "bucket of tables" in names
        assert probe_bucket(settings, "s3://fleet/lab").state == "ok"
        assert server.client().list_objects_v2(Bucket="fleet").get("KeyCount", 0) == 0
        with pytest.raises(ForewarnError, match="there is no such bucket"):
            probe_bucket(settings, "s3://nowhere/lab")
