"""How each kind of server is asked for a window of time.

What may be set is in `pipelines.sources.site.server_inputs`; each server has its own source module.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pipelines.sources.http.auth import Auth
from pipelines.sources.http.settings import HttpSettings
from pipelines.sources.kubernetes.client import OfficialApi
from pipelines.sources.kubernetes.nodes import LEVELS
from pipelines.sources.kubernetes.pull import KubernetesQuery, pull_kubernetes
from pipelines.sources.prometheus.client import PrometheusClient, PrometheusSettings
from pipelines.sources.prometheus.pull import pull_prometheus
from pipelines.sources.result import SourceResult
from pipelines.sources.site.server_inputs import (
    KubernetesInput,
    PrometheusInput,
    ScrapeInput,
    Secret,
    SlurmInput,
)
from pipelines.sources.slurm.commands import LocalCommands, PatientRunner
from pipelines.sources.slurm.pull import SlurmAsk, pull_slurm
from pipelines.sources.telemetry.scrape import ScrapeSettings, pull_scrape
from pipelines.storage.store import Span

_LATELY: Final = timedelta(hours=1)
_HISTORY: Final = frozenset({"accounting", "events"})


@dataclass(frozen=True)
class Asking:
    """What a server is asked with beside its own settings.

    Attributes:
        span: The time asked for.
        folder: Folder of the list of inputs, where relative paths start.
        site: Name of the site.
        ingested_at: When it is asked, UTC.
    """

    span: Span
    folder: Path
    site: str
    ingested_at: datetime


def ask_server(spec: Any, asking: Asking) -> Iterator[SourceResult]:
    """Asks a server for one window of time.

    Args:
        spec: A server input.
        asking: What is asked.

    Raises:
        SourceError: The server does not answer, or not in full.
        SettingsError: A secret or a certificate is not where it should be.
    """
    return _ASKERS[type(spec)](spec, asking)


def _prometheus(spec: PrometheusInput, asking: Asking) -> Iterator[SourceResult]:
    http = HttpSettings(
        spec.url,
        auth=auth_of(spec.auth, asking.folder),
        ca_file=asking.folder / spec.ca_file if spec.ca_file else None,
    )
    settings = PrometheusSettings(
        http,
        matchers=spec.matchers,
        replica_label=spec.replica_label,
        interval=timedelta(seconds=spec.interval_s) if spec.interval_s else None,
        step=timedelta(seconds=spec.step_s),
        protocol=spec.protocol,
    )
    if spec.node_labels is not None:
        settings = replace(settings, node_labels=spec.node_labels)
    with closing(PrometheusClient(settings)) as client:
        yield from pull_prometheus(
            client,
            asking.span.start,
            asking.span.end,
            ingested_at=asking.ingested_at,
            site=asking.site,
        )


def _scrape(spec: ScrapeInput, asking: Asking) -> Iterator[SourceResult]:
    settings = ScrapeSettings(
        timeout_s=spec.timeout_s,
        concurrency=spec.concurrency,
        site=asking.site,
        every_s=spec.every_s,
    )
    yield from pull_scrape(
        spec.urls,
        ingested_at=asking.ingested_at,
        now=lambda: datetime.now(UTC),
        nodes=spec.nodes,
        settings=settings,
    )


def _slurm(spec: SlurmInput, asking: Asking) -> Iterator[SourceResult]:
    """Of an earlier window only what has a history is asked; the rest is as it is now."""
    is_now = asking.span.end >= asking.ingested_at - _LATELY
    questions = [word for word in spec.questions if is_now or word in _HISTORY]
    ask = SlurmAsk(
        questions=questions,
        window=spec.window,
        timeout_s=spec.timeout_s,
        site=asking.site,
        every_s=spec.every_s,
    )
    runner = PatientRunner(runner=LocalCommands(prefix=spec.command_prefix))
    yield from pull_slurm(
        runner, asking.span.start, asking.span.end, ingested_at=asking.ingested_at, ask=ask
    )


def _kubernetes(spec: KubernetesInput, asking: Asking) -> Iterator[SourceResult]:
    query = KubernetesQuery(
        namespaces=spec.namespaces, site=asking.site, levels=spec.levels or LEVELS
    )
    config = asking.folder / spec.kubeconfig if spec.kubeconfig else None
    with closing(OfficialApi(kubeconfig=config, context=spec.context)) as api:
        yield from pull_kubernetes(
            api, asking.span.start, asking.span.end, query=query, ingested_at=asking.ingested_at
        )


def auth_of(secret: Secret | None, folder: Path) -> Auth | None:
    """Where an input's secret is found.

    Args:
        secret: As the list says.
        folder: Folder of the list.
    """
    if secret is None:
        return None
    file = folder / secret.file if secret.file else None
    return Auth(secret.kind, env=secret.env, file=file, user=secret.user)


_ASKERS: Final[Mapping[type, Callable[[Any, Asking], Iterator[SourceResult]]]] = {
    PrometheusInput: _prometheus,
    ScrapeInput: _scrape,
    SlurmInput: _slurm,
    KubernetesInput: _kubernetes,
}
