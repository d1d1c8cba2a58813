"""Alerts for a Prometheus Alertmanager: firing, kept up and resolved by its API, version 2.

Which alerts there are is known to `alert_book`. Alertmanager takes the same alert any number of
times, by its labels; nothing is lost when it or we are down for a while.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from features.errors import SettingsError, SourceError
from pipelines.serving.alert_book import Alert, AlertBook
from pipelines.serving.score_database import Tick
from remediation.actuators.exchange import NoAnswerError, Patience, exchange

NODE_ALERT: Final = "ForewarnNodeFailureLikely"
COVERAGE_ALERT: Final = "ForewarnCoverageLow"
_PATH: Final = "/api/v2/alerts"
_BATCH: Final = 500
_PATIENCE: Final = Patience(connect_s=5.0, read_s=10.0, total_s=30.0, max_bytes=1 << 20)


def payload(
    book: AlertBook, *, site: str, tick: Tick | None = None, min_coverage: float = 0.0
) -> list[dict[str, Any]]:
    """What Alertmanager is to know: open alerts, those closed of late, and our own health.

    Args:
        book: The alerts.
        site: The site, a label.
        tick: The newest tick; None: its coverage is not looked at.
        min_coverage: Below this share of scored GPUs `ForewarnCoverageLow` fires. It ends by
            itself when the scores expire: from then on `forewarn_scores_age_seconds` is to tell.
    """
    # One message per node and horizon, the newest alert's: an old end would end a new alert.
    newest = {(one.node, one.horizon_h): one for one in (*book.closed, *book.open)}
    told = [_node_alert(one, site) for one in newest.values()]
    if tick is not None and min_coverage > 0:
        is_low = tick.coverage < min_coverage
        words = f"{1 - tick.coverage:.0%} of GPUs have no score; a failure there is not foreseen"
        told.append(
            {
                "labels": {"alertname": COVERAGE_ALERT, "site": site, "severity": "warning"},
                "annotations": {"summary": words},
                "startsAt": tick.as_of.isoformat(),
                # Of an alert that never fired, that it is over says nothing to anyone.
                "endsAt": (tick.expires_at if is_low else tick.published_at).isoformat(),
            }
        )
    return told


def send(
    url: str,
    alerts: Sequence[Mapping[str, Any]],
    *,
    token: str | None = None,
    ca_file: str | None = None,
) -> None:
    """Posts alerts.

    Args:
        url: Base address.
        alerts: From `payload`.
        token: Bearer token.
        ca_file: Certificates of its authority; None: the system's.

    Raises:
        SettingsError: The token cannot be sent.
        SourceError: It does not answer, or refuses some.
    """
    import urllib3

    if token is not None and not (token.isascii() and token.isprintable()):
        # The library's own message would show it.
        raise SettingsError("serving.alertmanager.token: it holds what no header can carry")

    pool = urllib3.PoolManager(ca_certs=ca_file) if ca_file else urllib3.PoolManager()
    headers = {"Content-Type": "application/json", "User-Agent": "forewarn"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    address = url.rstrip("/") + _PATH
    refused: list[str] = []
    for first in range(0, len(alerts), _BATCH):
        body = orjson.dumps(alerts[first : first + _BATCH])
        try:
            answer = exchange(pool, "POST", address, headers=headers, body=body, patience=_PATIENCE)
        except NoAnswerError as error:
            raise SourceError(f"Alertmanager {url}: {error}") from error
        if not answer.is_fine:
            # It takes what it can of a batch, and of the ones after it.
            said = answer.body.decode(errors="replace")[:200]
            refused.append(f"HTTP {answer.status} {said}")
    if refused:
        raise SourceError(f"Alertmanager {url}: {refused[0]}")


def _node_alert(alert: Alert, site: str) -> dict[str, Any]:
    ends: datetime = alert.closed_at or alert.ends_at
    fault = f", most likely {alert.fault_type}" if alert.fault_type else ""
    return {
        "labels": {
            "alertname": NODE_ALERT,
            "site": site,
            "node": alert.node,
            "horizon": f"{alert.horizon_h}h",
            "severity": "warning",
        },
        "annotations": {
            "summary": f"{alert.node}: failure within {alert.horizon_h} h at {alert.score:.0%}"
            f"{fault}",
            "probability": f"{alert.score:.4f}",
            "threshold": f"{alert.threshold:.4f}",
            "reasons": "; ".join(alert.reasons),
            "model_version": alert.model_version,
            "resolved_because": alert.why_closed,
        },
        "startsAt": alert.as_of.isoformat(),
        "endsAt": ends.isoformat(),
    }
