"""Kinds of input that are servers: Prometheus, exporters, Slurm, Kubernetes.

What all inputs have is in `pipelines.sources.site.input_base`; how each is asked in
`pipelines.sources.site.server_readers`.
"""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from features.errors import SettingsError
from pipelines.sources.http.auth import safe_url
from pipelines.sources.prometheus.series import parse_matcher
from pipelines.sources.site.input_base import (
    LONGEST_STEP_S,
    PresentInput,
    Section,
    WindowInput,
)
from pipelines.sources.slurm.pull import QUESTIONS, Question


def _as_address(url: str) -> str:
    if not url.startswith(("http://", "https://")) or safe_url(url) != url:
        raise ValueError("expected http://host:port or https://host:port, without a password")
    return url


def _as_matcher(text: str) -> str:
    try:
        parse_matcher(text)
    except SettingsError as error:
        raise ValueError(str(error)) from error
    return text


Address = Annotated[str, AfterValidator(_as_address)]


class Secret(Section):
    """Where the secret of a server is found; it is never in the list itself.

    Attributes:
        kind: How it is sent.
        env: Environment variable that holds it.
        file: File that holds it, relative to the list.
        user: User name of `basic`.
    """

    kind: Literal["bearer", "basic"] = "bearer"
    env: str | None = None
    file: Path | None = None
    user: str | None = None


class PrometheusInput(WindowInput):
    """Prometheus, Thanos, VictoriaMetrics or Mimir, by remote read or query_range.

    Attributes:
        url: Address, with a path prefix where there is one.
        auth: Where its secret is found.
        ca_file: Certificates to trust instead of the system's, relative to the list.
        matchers: Further conditions on the series, such as `job="dcgm"`.
        node_labels: Where the node's name is looked for, in order; None: the usual labels.
        replica_label: Label that tells apart replicas which scrape the same targets.
        interval_s: Time between scrapes; needed with `replica_label`.
        step_s: Grid of `query_range`, where the server has no remote read.
        protocol: How samples are asked for; auto: the best that is served.
    """

    kind: Literal["prometheus"]
    url: Address
    auth: Secret | None = None
    ca_file: Path | None = None
    matchers: tuple[Annotated[str, AfterValidator(_as_matcher)], ...] = ()
    node_labels: tuple[str, ...] | None = None
    replica_label: str | None = None
    interval_s: float | None = Field(None, gt=0, le=LONGEST_STEP_S)
    step_s: float = Field(60, gt=0, le=LONGEST_STEP_S)
    protocol: Literal["auto", "remote_read", "raw_query", "query_range"] = "auto"
    time_zone: None = None  # everything in it is UTC

    @property
    def address(self) -> str:
        """The server's address."""
        return safe_url(self.url)


class ScrapeInput(PresentInput):
    """Exporters, each asked once in every run.

    Attributes:
        urls: Addresses of their pages, `http://node001:9400/metrics`.
        nodes: Node by address, where the address does not say it.
        every_s: Time between runs, for coverage.
        timeout_s: Longest wait for an answer.
        concurrency: Exporters asked at the same time.
    """

    kind: Literal["scrape"]
    urls: tuple[Address, ...] = Field(min_length=1)
    nodes: dict[str, str] = Field(default_factory=dict)
    every_s: float | None = Field(None, gt=0, le=LONGEST_STEP_S)
    timeout_s: float = Field(5, gt=0, le=300)
    concurrency: int = Field(16, ge=1, le=256)
    time_zone: None = None

    @property
    def address(self) -> str:
        """How many are asked, and the first of them."""
        more = f" and {len(self.urls) - 1} more" if len(self.urls) > 1 else ""
        return safe_url(self.urls[0]) + more


class SlurmInput(WindowInput):
    """A live Slurm through its commands.

    Attributes:
        questions: What is asked; `accounting` and `events` need slurmdbd.
        command_prefix: What stands before every command, such as [ssh, login1].
        every_s: Time between runs, for coverage.
        timeout_s: Longest wait for a command.
    """

    kind: Literal["slurm"]
    questions: tuple[Question, ...] = QUESTIONS
    command_prefix: tuple[str, ...] = ()
    every_s: float | None = Field(None, gt=0, le=LONGEST_STEP_S)
    timeout_s: float = Field(300, gt=0, le=3600)
    window_minutes: int = Field(1440, ge=1, le=44_640)
    settle_minutes: int = Field(0, ge=0, le=1440)
    late_hours: int = Field(24, ge=0, le=168)
    time_zone: None = None  # it is asked for seconds since the epoch

    @property
    def window(self) -> timedelta:
        """Longest span of accounting asked for at once."""
        return min(timedelta(minutes=self.window_minutes), timedelta(hours=6))

    @property
    def address(self) -> str:
        """How the commands are reached."""
        return " ".join(("slurm", *self.command_prefix))


class KubernetesInput(PresentInput):
    """A live Kubernetes cluster through the official client.

    Attributes:
        kubeconfig: File with cluster and credentials, relative to the list; None: the service
            account of the pod, else the user's usual file.
        context: Context within it; None: the current one.
        namespaces: Namespaces of pods and jobs; empty: all.
        levels: Labels by level of place, such as {rack: [example.com/rack]}; None: the usual ones.
    """

    kind: Literal["kubernetes"]
    kubeconfig: Path | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    levels: dict[str, tuple[str, ...]] | None = None
    time_zone: None = None  # everything in it is UTC

    @property
    def address(self) -> str:
        """The context that is asked."""
        return f"kubernetes {self.context or '(current context)'}"
