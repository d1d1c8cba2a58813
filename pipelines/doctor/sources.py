"""Probes of `forewarn doctor` for the inputs: each is asked a little of what ingest asks it.

What ingest makes of the answers is said by `forewarn check-inputs` and `forewarn ingest`.
"""

import getpass
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from features.errors import ForewarnError
from pipelines.doctor.http_look import HttpLook
from pipelines.doctor.kubernetes import READS, missing_rights
from pipelines.doctor.probe import Finding, NamedProbe, Probe, State, beside, joined
from pipelines.sources.http.auth import safe_url
from pipelines.sources.http.client import Call, HttpClient
from pipelines.sources.http.settings import HttpLimits, HttpSettings
from pipelines.sources.prometheus.series import parse_matcher, selector
from pipelines.sources.site.input_base import FileInput
from pipelines.sources.site.listing import SiteInputs, load_inputs
from pipelines.sources.site.server_inputs import (
    KubernetesInput,
    PrometheusInput,
    ScrapeInput,
    SlurmInput,
)
from pipelines.sources.site.server_readers import auth_of
from pipelines.sources.slurm.commands import CommandRunner, LocalCommands
from remediation.actuators.exchange import Patience
from remediation.actuators.kubernetes_api import OfficialApi

METRICS: Final = "DCGM_FI_DEV_.+|nvidia_smi_.+"
"""Metrics of GPUs, by any exporter that is understood."""
_LIMITS: Final = HttpLimits(connect_s=4, read_s=8, total_s=10, attempts=1, max_bytes=64 << 20)
_STALE: Final = timedelta(minutes=10)
_ACCOUNTED: Final = frozenset({"accounting", "events"})
_DOWN: Final = re.compile(rb"DOWN", re.IGNORECASE)
_COMMAND_S: Final = 8.0


def source_probes(inputs: Path, *, now: datetime) -> Iterator[Probe]:
    """A probe of each input.

    Args:
        inputs: The list of inputs.
        now: The present.
    """
    try:
        listed = load_inputs(inputs)
    except ForewarnError as error:
        words, do = str(error), "See `forewarn config check`."
        yield NamedProbe("inputs", lambda: Finding("FAIL", words, do))
        return
    for spec in listed.spec.inputs:
        look = _SERVERS.get(type(spec), probe_files)
        yield NamedProbe(f"input {spec.label}", partial(look, listed, spec, now))


def probe_files(inputs: SiteInputs, spec: FileInput, now: datetime) -> Finding:
    """How many files there are, whether they can be read, and how old the newest is."""
    files = inputs.files(spec)
    if not files:
        return Finding("warn", f"no file matches {spec.path} yet", "")
    closed = [path for path in files if not os.access(path, os.R_OK)]
    newest = max(path.stat().st_mtime for path in files)
    age = now - datetime.fromtimestamp(newest, UTC)
    what = f"{len(files):,} files, the newest {_words(age)} old"
    if closed:
        do = f"Let {getpass.getuser()} read {closed[0]}."
        return Finding("FAIL", f"{what}; {len(closed)} cannot be read", do)
    return Finding("ok", what)


def probe_prometheus(inputs: SiteInputs, spec: PrometheusInput, now: datetime) -> Finding:
    """Whether it answers, has series of GPUs that the matchers let through, and fresh ones.

    Args:
        inputs: The list.
        spec: The server.
        now: The present.
    """
    del now  # its clock is held against ours when it answers
    folder = inputs.path.parent
    http = HttpSettings(
        spec.url,
        auth=auth_of(spec.auth, folder),
        ca_file=folder / spec.ca_file if spec.ca_file else None,
        limits=_LIMITS,
    )
    with closing(HttpClient(http)) as client:
        theirs = instant_query(client, "time()")
        ours = datetime.now(UTC)
        clock = beside(datetime.fromtimestamp(float(theirs[1]), UTC), ours)
        matchers = tuple(map(parse_matcher, spec.matchers))
        chosen = selector([parse_matcher(f'__name__=~"{METRICS}"'), *matchers])
        found = instant_query(client, f"count by (__name__) ({chosen})")
        counts = {one["metric"]["__name__"]: int(one["value"][1]) for one in found}
        if not counts:
            return joined(f"{spec.address} answers", clock, _no_series(client, spec))
        # Of one metric: timestamp() drops the names, and series that differ in nothing else are
        # refused. Those of an exporter are as old as each other.
        most = max(counts, key=lambda name: counts[name])
        of_most = selector([parse_matcher(f'__name__="{most}"'), *matchers])
        newest = instant_query(client, f"max(timestamp({of_most}))")
    age = timedelta(seconds=float(theirs[1]) - float(newest[0]["value"][1]))
    stale = (
        Finding("warn", "no newer sample", "See whether its targets are up (/targets).")
        if age > _STALE
        else None
    )
    what = f"{sum(counts.values()):,} series of GPUs, the newest sample {_words(age)} old"
    return joined(what, clock, stale)


def instant_query(client: HttpClient, query: str, *, at: datetime | None = None) -> Any:
    """The result of a PromQL query, as plain values.

    Args:
        client: The server.
        query: The query.
        at: The moment it is asked for; None: the server's present.

    Raises:
        HttpError: It does not answer, or refuses.
    """
    moment = () if at is None else (("time", f"{at.timestamp():.3f}"),)
    call = Call("GET", "/api/v1/query", (("query", query), *moment), what="a query")
    return client.fetch(call, lambda reply: orjson.loads(reply.body()))["data"]["result"]


def probe_scrape(inputs: SiteInputs, spec: ScrapeInput, now: datetime) -> Finding:
    """How many exporters answer with a page of metrics of GPUs."""
    del inputs, now

    def look(url: str) -> str | None:
        try:
            seen = HttpLook(url).ask()
        except ForewarnError as error:
            return str(error)
        if refusal := seen.refusal():
            return refusal.what
        is_gpu = re.search(rb"^(?:DCGM_FI_|nvidia_smi_)", seen.answer.body, re.MULTILINE)
        return None if is_gpu else f"{safe_url(url)}: no metric of a GPU is on its page"

    with ThreadPoolExecutor(max_workers=spec.concurrency) as pool:
        wrong = [said for said in pool.map(look, spec.urls) if said is not None]
    what = f"{len(spec.urls) - len(wrong)} of {len(spec.urls)} exporters answer"
    if not wrong:
        return Finding("ok", what)
    state: State = "FAIL" if len(wrong) == len(spec.urls) else "warn"
    return Finding(state, f"{what}; {wrong[0]}", "Start the exporters, or correct urls.")


def probe_slurm(
    inputs: SiteInputs,
    spec: SlurmInput,
    now: datetime,
    *,
    runner: CommandRunner | None = None,
) -> Finding:
    """Whether its commands are there, its controller answers, and accounting where it is asked.

    Args:
        inputs: The list.
        spec: The cluster.
        now: The present.
        runner: Runs commands; None: as the input says.
    """
    del inputs, now
    runs = runner or LocalCommands(prefix=spec.command_prefix)
    version = runs.run(["sinfo", "--version"], timeout=_COMMAND_S).decode().strip()
    ping = runs.run(["scontrol", "ping"], timeout=_COMMAND_S)
    n_nodes = len(set(runs.run(["sinfo", "-h", "-N", "-o", "%N"], timeout=_COMMAND_S).split()))
    what = f"{version}, {n_nodes:,} nodes"
    clock = None
    if spec.command_prefix:
        theirs = float(runs.run(["date", "+%s"], timeout=_COMMAND_S))
        clock = beside(datetime.fromtimestamp(theirs, UTC), datetime.now(UTC))
    down = (
        Finding("warn", "a controller is DOWN", "See `scontrol ping`.")
        if _DOWN.search(ping)
        else None
    )
    return joined(what, clock, down, _accounting(spec, runs))


def probe_kubernetes(inputs: SiteInputs, spec: KubernetesInput, now: datetime) -> Finding:
    """Whether it answers and lets this account list what is read."""
    del now
    config = inputs.path.parent / spec.kubeconfig if spec.kubeconfig else None
    patience = Patience(connect_s=4, read_s=8, total_s=10, max_bytes=1 << 20)
    with closing(OfficialApi(kubeconfig=config, context=spec.context, patience=patience)) as api:
        return missing_rights(api, READS, namespaces=spec.namespaces)


def _accounting(spec: SlurmInput, runs: CommandRunner) -> Finding | None:
    asked = sorted(_ACCOUNTED.intersection(spec.questions))
    if not asked:
        return None
    try:
        runs.run(["sacctmgr", "-n", "-P", "show", "cluster"], timeout=_COMMAND_S)
    except ForewarnError as error:
        return Finding(
            "FAIL",
            f"no accounting: {' '.join(str(error).split())[:200]}",
            f"Start slurmdbd, or take {' and '.join(asked)} out of this input's questions.",
        )
    return None


def _no_series(client: HttpClient, spec: PrometheusInput) -> Finding:
    """Why no series is found: none at all, or none that the matchers let through."""
    without = instant_query(client, f'count({{__name__=~"{METRICS}"}})')
    if spec.matchers and without:
        return Finding(
            "FAIL",
            f"no series of GPUs has {', '.join(spec.matchers)}, {without[0]['value'][1]} have not",
            "Correct matchers.",
        )
    return Finding(
        "FAIL", "it has no series of GPUs now", "Let it scrape dcgm-exporter on every node."
    )


def _words(age: timedelta) -> str:
    seconds = max(age.total_seconds(), 0)
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


_SERVERS: Final[Mapping[type, Callable[..., Finding]]] = {
    PrometheusInput: probe_prometheus,
    ScrapeInput: probe_scrape,
    SlurmInput: probe_slurm,
    KubernetesInput: probe_kubernetes,
}
