"""Probes of `forewarn doctor` for the servers that scores are kept in and told to, and for our own.

Inputs are in `doctor_sources`. Nothing is sent to people unless a test alert is asked for.
"""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import orjson
import sqlalchemy as sa

from features.errors import SourceError
from pipelines.api.access import open_access, parse_address
from pipelines.doctor.http_look import HttpLook
from pipelines.doctor.probe import Finding, NamedProbe, Probe, State, beside, joined
from pipelines.flow.scale_slurm import check_jobs
from pipelines.orchestration.dagster_home import dagster_environment
from pipelines.sections.scale_out import SlurmWorkers
from pipelines.sections.secret_source import read_secret
from pipelines.sections.serving import AlertmanagerSettings, EventWebhookSettings
from pipelines.serving import score_reader
from pipelines.serving.place import score_engine
from pipelines.serving.score_schema import name_of
from pipelines.settings import Settings
from pipelines.sources.http.auth import safe_url
from pipelines.storage.bucket_owner import OwnedBucket
from pipelines.storage.object_paths import bucket_path

_CONNECT_S: Final = 4.0
_LIVE: Final = "/api/v1/health/live"
_DAEMON_LATE: Final = timedelta(minutes=5)
_TEST_ALERT: Final = "ForewarnDoctorTest"
_TEST_LASTS: Final = timedelta(minutes=1)


def server_probes(settings: Settings, *, sends_test: bool) -> Iterator[Probe]:
    """Probes of every server that the settings name.

    Args:
        settings: The installation.
        sends_test: Whether Alertmanager is sent an alert that ends by itself.
    """
    yield NamedProbe("score database", lambda: probe_score_database(settings))
    alertmanager, webhook = settings.serving.alertmanager, settings.serving.webhook
    if alertmanager is not None:
        yield NamedProbe(
            "alertmanager",
            lambda: probe_alertmanager(alertmanager, site=settings.site, sends_test=sends_test),
        )
    if webhook is not None:
        yield NamedProbe("webhook", lambda: probe_webhook(webhook))
    yield NamedProbe("api", lambda: probe_own(settings, settings.api.listen))
    yield NamedProbe("board", lambda: probe_own(settings, settings.board.listen))
    if (scheduler := settings.scale_out.scheduler) is not None:
        yield NamedProbe("dask scheduler", lambda: probe_dask(scheduler))
    if (slurm := settings.scale_out.slurm) is not None:
        yield NamedProbe("slurm workers", lambda: probe_slurm_workers(slurm))
    for what, url in (
        ("tables", settings.storage.tables),
        ("artifacts", settings.storage.artifacts),
    ):
        if url is not None:
            yield NamedProbe(f"bucket of {what}", partial(probe_bucket, settings, url))
    tables = settings.store_root
    if not isinstance(tables, Path) and isinstance(tables.bucket, OwnedBucket):
        yield NamedProbe("owner of tables", partial(probe_owner, tables.bucket))
    if (home := _dagster_home(settings)) is not None:
        yield NamedProbe("dagster", lambda: probe_dagster(settings, home))


def probe_score_database(settings: Settings) -> Finding:
    """Whether it can be reached and read, and what its clock says."""
    engine = score_engine(settings)
    file = engine.url.database
    if engine.dialect.name == "sqlite" and not Path(str(file)).exists():
        return Finding("warn", f"{name_of(engine)} is not there yet", "The first tick makes it.")
    clock = None
    try:
        tick = score_reader.latest_tick(engine)  # first: it says in words why none can be read
        if engine.dialect.name != "sqlite":
            with engine.connect() as connection:
                theirs = connection.execute(sa.text("SELECT clock_timestamp()")).scalar_one()
            clock = beside(theirs, datetime.now(UTC))
    finally:
        engine.dispose()
    newest = "holds no tick yet" if tick is None else f"newest tick {tick.as_of:%Y-%m-%d %H:%M}Z"
    return joined(f"{name_of(engine)}: {newest}", clock)


def probe_alertmanager(chosen: AlertmanagerSettings, *, site: str, sends_test: bool) -> Finding:
    """Whether it answers us; a test alert only where one is asked for.

    Args:
        chosen: Where it is.
        site: The site, a label of the test alert.
        sends_test: Whether to send it.
    """
    base = chosen.url.rstrip("/")
    token = read_secret(chosen.token, what="serving.alertmanager.token")
    seen = HttpLook(f"{base}/api/v2/status", token, chosen.ca_file).ask()
    if refusal := seen.refusal():
        return refusal
    sent = None
    if sends_test:
        now = datetime.now(UTC)
        alert = {
            "labels": {"alertname": _TEST_ALERT, "site": site, "severity": "none"},
            "annotations": {"summary": "A test by forewarn doctor; it ends by itself."},
            "startsAt": now.isoformat(),
            "endsAt": (now + _TEST_LASTS).isoformat(),
        }
        kind = {"Content-Type": "application/json"}
        look = HttpLook(f"{base}/api/v2/alerts", token, chosen.ca_file, kind)
        sent = look.ask("POST", orjson.dumps([alert])).refusal()
    is_taken = sends_test and sent is None
    words = f"{safe_url(base)} answers" + (f", and took {_TEST_ALERT}" if is_taken else "")
    return joined(words, seen.clock(), sent)


def probe_webhook(chosen: EventWebhookSettings) -> Finding:
    """Whether it can be connected to, and shows a certificate that is trusted; nothing is sent."""
    read_secret(chosen.key, what="serving.webhook.key")
    return probe_connection(chosen.url, ca_file=chosen.ca_file)


def probe_connection(url: str, *, ca_file: Path | None = None) -> Finding:
    """Connects, by TLS where the address says so, and says nothing.

    Args:
        url: The address.
        ca_file: Certificates of its authority; None: the system's.

    Raises:
        OSError: It cannot be connected to.
    """
    parts = urlsplit(url)
    is_tls = parts.scheme in ("https", "tls")
    host, port = str(parts.hostname), parts.port or (443 if is_tls else 80)
    shown = f"{host}:{port}"
    try:
        with closing(socket.create_connection((host, port), timeout=_CONNECT_S)) as plain:
            if parts.scheme != "https":
                return Finding("ok", f"{shown} takes connections")
            context = ssl.create_default_context(cafile=ca_file)
            with context.wrap_socket(plain, server_hostname=host) as secure:
                return _certificate(shown, secure)
    except ssl.SSLError as error:
        do = "Name its authority's certificates as ca_file, or renew its certificate."
        return Finding("FAIL", f"{shown}: {error.reason or error}", do)
    except OSError as error:
        do = f"Start it, or let this machine through to {shown}."
        return Finding("FAIL", f"{shown}: {error.strerror or error}", do)


def probe_own(settings: Settings, listen: str) -> Finding:
    """Whether our own server may be started there, or answers already.

    Args:
        settings: The installation; tokens are read as the server would.
        listen: Address and port.

    Raises:
        SettingsError: It could not be started: the address, or a token.
    """
    access, address = open_access(settings, listen=listen), parse_address(listen)
    host = "127.0.0.1" if address.host in ("0.0.0.0", "::", "") else address.host  # noqa: S104
    tokens = f"{len(access.tokens)} tokens"
    try:
        socket.create_connection((host, address.port), timeout=_CONNECT_S).close()
    except socket.gaierror as error:
        do = f"Correct the name {host}, or this machine's DNS."
        return Finding("FAIL", f"{listen}: {error.strerror}", do)
    except OSError:
        return Finding("ok", f"{listen} is free, so it is not running; {tokens}")
    named = f"[{host}]" if ":" in host else host
    seen = HttpLook(f"http://{named}:{address.port}{_LIVE}").ask()
    if seen.answer.is_fine:
        return Finding("ok", f"{listen} answers; {tokens}")
    return Finding(
        "FAIL",
        f"something else listens on {listen}: HTTP {seen.answer.status}",
        f"See what it is (ss -ltnp 'sport = :{address.port}'), or choose another port.",
    )


def probe_dask(scheduler: str) -> Finding:
    """Whether the scheduler takes connections; what its workers see is `forewarn`'s own check."""
    return probe_connection(scheduler)


def probe_slurm_workers(slurm: SlurmWorkers) -> Finding:
    """Whether Slurm would run the jobs of a scaled-out run; none is submitted.

    Args:
        slurm: What jobs are asked for.

    Raises:
        SettingsError: It would not; the text says why.
    """
    check_jobs(slurm)
    return Finding("ok", "sbatch --test-only takes the workers' jobs")


def probe_bucket(settings: Settings, url: str) -> Finding:
    """Puts a small object into a bucket, reads it, lists it and takes it away again.

    Args:
        settings: The installation.
        url: Bucket and prefix.

    Raises:
        ObjectStoreError: One of it fails; the text says which, and what right it needs.
    """
    local = settings.data_root / "buckets"
    folder = bucket_path(url, how=settings.storage.object_store, local=local) / ".doctor"
    one, content = folder / uuid4().hex, b"forewarn doctor"
    one.write_bytes(content)
    try:
        is_same = one.read_bytes() == content and one.exists()
    finally:
        one.unlink()
    if not is_same:
        do = "Use a store that reads what was written: tables are replaced in place."
        return Finding("FAIL", f"{url}: what was put is not what is read", do)
    return Finding("ok", f"{url}: an object can be put, read, listed and removed")


def probe_owner(tables: OwnedBucket) -> Finding:
    """Whether this installation is the one that writes the tables.

    Args:
        tables: The bucket and prefix.

    Raises:
        BucketOwnerError: It is not; the text says which is, and how to take over.
    """
    owner = tables.owner()
    if owner is None:
        return Finding("ok", "nobody has written there yet: the first that writes owns it")
    if not tables.identity.exists():  # a look must not make it
        return Finding(
            "FAIL",
            f"{tables.url}/{tables.prefix} is written by {owner.words()}, and never was from here",
            "Name another prefix as storage.tables; or, if the other will never write again: "
            f"forewarn take-over --from {owner.host}",
        )
    tables.check()
    return Finding("ok", f"{tables.url}/{tables.prefix} is written by this installation")


def probe_dagster(settings: Settings, home: Path) -> Finding:
    """Whether Dagster's daemons are alive.

    Args:
        settings: The installation, which says where the database's password is found.
        home: Its home folder.

    Raises:
        SettingsError: The password cannot be read.
        SourceError: Its instance cannot be read.
    """
    from pipelines.defs.daemon_state import last_heartbeats

    os.environ.update(dagster_environment(settings))  # its file names the password's variable
    found = last_heartbeats(home) if _is_used(home) else {}
    start = "Start `dagster-daemon run`, or `forewarn dev`: nothing runs by schedule without it."
    if not found:
        return Finding("warn", f"{home}: no daemon ever ran", start)
    ages = {kind: datetime.now(UTC) - at for kind, at in found.items()}
    late = sorted(kind.lower() for kind, age in ages.items() if age > _DAEMON_LATE)
    if late:
        state: State = "FAIL" if len(late) == len(found) else "warn"
        return Finding(state, f"{home}: no sign of life from {', '.join(late)}", start)
    return Finding("ok", f"{home}: {len(found)} daemons are alive")


def _is_used(home: Path) -> bool:
    """Whether Dagster kept anything: opening a home makes the files of one that was never used."""
    try:
        is_elsewhere = "storage:" in (home / "dagster.yaml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        is_elsewhere = False
    return is_elsewhere or (home / "history" / "runs.db").exists()


def _dagster_home(settings: Settings) -> Path | None:
    """Dagster's home, where one is used; None: none is."""
    if named := os.environ.get("DAGSTER_HOME"):
        return Path(named)
    home = settings.data_root / "dagster"
    return home.absolute() if (home / "dagster.yaml").exists() else None


def _certificate(shown: str, secure: ssl.SSLSocket) -> Finding:
    """How long the server's certificate still holds."""
    until = str((secure.getpeercert() or {}).get("notAfter", ""))
    if not until:
        raise SourceError(f"{shown}: the server shows no certificate")
    left = datetime.fromtimestamp(ssl.cert_time_to_seconds(until), UTC) - datetime.now(UTC)
    what = f"{shown} takes connections, its certificate holds for {left.days} days"
    if left < timedelta(days=14):
        return Finding("warn", what, "Renew the certificate.")
    return Finding("ok", what)
