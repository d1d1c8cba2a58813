"""Dagster's own settings of an installation, as the file `dagster.yaml` of its home folder.

Text and values only: the file is written by `pipelines.defs.dagster_instance`.
"""

from typing import Any, Final

import yaml
from sqlalchemy.engine import make_url

from pipelines.sections.secret_source import read_secret
from pipelines.settings import Settings

PASSWORD_VARIABLE: Final = "FOREWARN_DAGSTER_PASSWORD"  # noqa: S105 - its name, not the password

_RUNS_AT_ONCE: Final = 2
"""A run takes a core and half a gigabyte; a small machine has no more to give."""
_START_S: Final = 300
_POSTGRES_PORT: Final = 5432
# A scheduled tick that did nothing is worth nothing a week later; those that failed explain.
_TICKS_KEPT_DAYS: Final = {"skipped": 7, "success": 30, "started": 30, "failure": 90}


def dagster_yaml(settings: Settings) -> str:
    """The file; it names the variable that holds the database's password, never the password.

    Args:
        settings: The installation.
    """
    content: dict[str, Any] = {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},  # a sign-up window over every page
        "concurrency": {
            "runs": {"max_concurrent_runs": _RUNS_AT_ONCE},
            # By run: one that was killed holds no place, and one that waits takes no memory.
            "pools": {"default_limit": 1, "granularity": "run"},
        },
        "run_monitoring": {
            "enabled": True,
            "poll_interval_seconds": 30,
            "start_timeout_seconds": _START_S,
            "cancel_timeout_seconds": _START_S,
            "max_runtime_seconds": settings.schedule.longest_run_minutes * 60,
        },
        # Only of runs whose process was lost; what failed by itself has a rule of its own.
        "run_retries": {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False},
        "retention": {
            kind: {"purge_after_days": _TICKS_KEPT_DAYS} for kind in ("schedule", "sensor")
        },
    }
    if settings.storage.dagster.url:
        content["storage"] = {"postgres": {"postgres_db": _postgres(settings)}}
    return yaml.safe_dump(content, sort_keys=False)


def dagster_environment(settings: Settings) -> dict[str, str]:
    """What Dagster's processes need in their environment beside `DAGSTER_HOME`.

    Raises:
        SettingsError: The password cannot be read.
    """
    password = read_secret(settings.storage.dagster.password, what="storage.dagster.password")
    secret = {PASSWORD_VARIABLE: password} if password else {}
    return {"DAGSTER_DISABLE_TELEMETRY": "1", **secret}


def _postgres(settings: Settings) -> dict[str, Any]:
    chosen = settings.storage.dagster
    url = make_url(str(chosen.url))
    found: dict[str, Any] = {
        # Without it SQLAlchemy 2.1 takes psycopg 3, which dagster-postgres does not know.
        "scheme": "postgresql+psycopg2",
        "hostname": url.host or "",
        "port": url.port or _POSTGRES_PORT,
        "username": url.username,
        "db_name": url.database,
    }
    if url.query:
        found["params"] = dict(url.query)
    if chosen.password:
        found["password"] = {"env": PASSWORD_VARIABLE}
    return found
