"""`forewarn init`: writes the files of a site from its live cluster, and checks them.

It asks people nothing, changes no cluster and overwrites no file. What is asked of clusters is in
the modules beside this one, what is written in `pipelines.site_init.files`.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from features.errors import SettingsError
from pipelines.config.check import ConfigReport, check_config
from pipelines.doctor.examination import Examination, examine
from pipelines.settings import load_settings
from pipelines.site_init.facts import KubernetesFacts, PrometheusFacts, SlurmFacts
from pipelines.site_init.files import HOOK, INPUTS, SETTINGS, SITE, site_files
from pipelines.site_init.kubernetes import look_at_kubernetes
from pipelines.site_init.prometheus import look_at_prometheus
from pipelines.site_init.slurm import look_at_slurm
from pipelines.sources.http.auth import safe_url
from pipelines.sources.http.client import HttpClient
from pipelines.sources.http.settings import HttpLimits, HttpSettings
from pipelines.sources.kubernetes.client import OfficialApi
from pipelines.sources.slurm.commands import CommandRunner, LocalCommands

Scheduler = Literal["slurm", "kubernetes"]

_SERVED: Final = "site.yaml"
"""The settings by the name under which units and pods read them."""
_LIMITS: Final = HttpLimits(connect_s=5, read_s=60, total_s=120, attempts=2, max_bytes=64 << 20)
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a person gave the command.

    Attributes:
        out: Folder to write.
        scheduler: slurm or kubernetes; None: what is found here.
        prometheus: Address of a Prometheus; None: none is asked.
        prefix: What stands before every command of Slurm.
        kubeconfig: Of Kubernetes.
        context: In it.
        site: Name of the site; None: the cluster's.
        runner: Runs Slurm's commands; None: this machine does.
    """

    out: Path
    scheduler: Scheduler | None = None
    prometheus: str | None = None
    prefix: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    context: str | None = None
    site: str | None = None
    runner: CommandRunner | None = None


@dataclass(frozen=True)
class Written:
    """A site that was written.

    Attributes:
        folder: Its folder.
        scheduler: slurm or kubernetes.
        found: What was found, in words.
        config: What `forewarn config check` says of it.
        examination: What `forewarn doctor` says of it.
    """

    folder: Path
    scheduler: Scheduler
    found: tuple[str, ...]
    config: ConfigReport
    examination: Examination

    @property
    def exit_code(self) -> int:
        """2: the files have errors, which is our fault; 1: something cannot work; else 0."""
        return 2 if self.config.exit_code == 2 else self.examination.exit_code

    def words(self) -> str:
        """What was found, whether it works, and what comes next."""
        settings = self.folder / SETTINGS
        lines = [
            *self.found,
            f"Written: {', '.join((SETTINGS, INPUTS, SITE, HOOK))} in {self.folder}",
            "",
            self.config.words(),
            "",
            self.examination.words(),
            "",
            "Next:",
            f"  export FOREWARN_SETTINGS={settings.absolute()}",
            "  forewarn backfill         # makes the past, from the inputs to published scores",
            "  forewarn dev --schedules  # the pages, and every hour from now on",
            f"  forewarn remediate plan --hook {(self.folder / HOOK).absolute()}",
            *_service_words(self.folder.absolute(), self.scheduler),
        ]
        return "\n".join(lines)


def _service_words(folder: Path, scheduler: Scheduler) -> list[str]:
    """Where the services of `deploy/` look for what was written, and what they need changed."""
    if scheduler == "slurm":
        return [
            f"As services, whose units read /etc/forewarn/{_SERVED} (docs/deployment.md), as root:",
            f"  install -D -m 0644 {folder / SETTINGS} /etc/forewarn/{_SERVED}",
            f"  install -m 0644 {folder / INPUTS} {folder / SITE} /etc/forewarn/",
            "  install -m 0644 deploy/slurm/hook.yaml /etc/forewarn/  # the hook's",
            f"  # in {_SERVED}: data_root: /var/lib/forewarn-scores, schedule: {{scores: false}}",
        ]
    return [
        f"As services, whose pods read {_SERVED} and inputs.yaml of their overlay:",
        f"  cp {folder / INPUTS} deploy/kubernetes/overlays/small/",
        f"  # then copy site, start and split from {folder / SETTINGS} to",
        f"  # {_SERVED} there; leave kubeconfig and context out, as pods have accounts",
    ]


def init_site(asked: Asked, *, now: datetime, say: Callable[[str], None]) -> Written:
    """Looks at the cluster, writes the site and checks it.

    Args:
        asked: What is wanted.
        now: The present.
        say: Told of progress.

    Raises:
        SettingsError: The folder holds a site already, or no cluster is found.
        SourceError: The cluster or the Prometheus does not answer.
    """
    _refuse_known(asked.out)
    scheduler, cluster, words = _cluster(asked, say)
    found = [words]
    prometheus = None
    if asked.prometheus is not None:
        say(f"Asking {safe_url(asked.prometheus)}")
        with closing(HttpClient(HttpSettings(asked.prometheus, limits=_LIMITS))) as client:
            prometheus = look_at_prometheus(client, now=now)
        found.append(_telemetry_words(prometheus))
    name = asked.site or _name(cluster)
    _write(asked.out, site_files(cluster, prometheus, site=name, now=now))
    say("Checking what was written")
    path, hook = asked.out / SETTINGS, asked.out / HOOK
    config = check_config(path, hook=hook, environment=os.environ, now=now)
    examination = Examination(())
    if config.exit_code < 2:
        examination = examine(load_settings(path), hook=hook, now=now, timeout_s=_TIMEOUT_S)
    return Written(asked.out, scheduler, tuple(found), config, examination)


def _cluster(
    asked: Asked, say: Callable[[str], None]
) -> tuple[Scheduler, SlurmFacts | KubernetesFacts, str]:
    if (asked.scheduler or _scheduler_here(asked)) == "slurm":
        say("Asking Slurm")
        slurm = look_at_slurm(
            asked.runner or LocalCommands(prefix=asked.prefix), prefix=asked.prefix
        )
        accounting = "accounting answers" if slurm.has_accounting else "no accounting"
        return (
            "slurm",
            slurm,
            (
                f"{slurm.version}, cluster {slurm.cluster}: {slurm.n_gpus:,} GPUs in "
                f"{slurm.n_gpu_nodes:,} of {slurm.n_nodes:,} nodes, partitions "
                f"{', '.join(slurm.partitions)}; {accounting}; "
                f"{'switches are known' if slurm.has_topology else 'no switches are known'}"
            ),
        )
    say("Asking Kubernetes")
    with closing(OfficialApi(kubeconfig=asked.kubeconfig, context=asked.context)) as api:
        found = look_at_kubernetes(api, kubeconfig=asked.kubeconfig, context=asked.context)
    return (
        "kubernetes",
        found,
        (
            f"Kubernetes {found.address}: {found.n_gpus:,} GPUs in {found.n_gpu_nodes:,} of "
            f"{found.n_nodes:,} nodes, racks by {found.rack_label or 'no usual label'}, "
            f"{len(found.exporters)} pods of dcgm-exporter"
        ),
    )


def _telemetry_words(found: PrometheusFacts) -> str:
    jobs = ", ".join(f"{job or '(no job)'} {count:,}" for job, count in found.jobs.items())
    every = (
        "interval not known yet" if found.interval_s is None else f"every {found.interval_s:g} s"
    )
    since = "the last hour only" if found.since is None else f"{found.since:%Y-%m-%d %H:%M}Z on"
    return (
        f"{found.url}: {found.n_gpus:,} GPUs by {found.metric} (jobs: {jobs}), {every}, "
        f"from {since}, node in label {found.node_label or 'instance'}"
    )


def _scheduler_here(asked: Asked) -> Scheduler:
    """The scheduler of this machine.

    Raises:
        SettingsError: There is none.
    """
    if asked.prefix or shutil.which("scontrol"):
        return "slurm"
    usual = Path(os.environ.get("KUBECONFIG", "~/.kube/config")).expanduser()
    if asked.kubeconfig or os.environ.get("KUBERNETES_SERVICE_HOST") or usual.exists():
        return "kubernetes"
    raise SettingsError(
        "neither Slurm's commands nor a kubeconfig is here. Run it where they are, or name them: "
        "--slurm --via 'ssh login1', or --kubernetes --kubeconfig FILE."
    )


def _name(cluster: SlurmFacts | KubernetesFacts) -> str:
    if isinstance(cluster, SlurmFacts):
        return cluster.cluster
    return cluster.context or "kubernetes"


def _refuse_known(folder: Path) -> None:
    known = [name for name in (SETTINGS, INPUTS, SITE, HOOK) if (folder / name).exists()]
    if known:
        raise SettingsError(
            f"{folder} has {', '.join(known)} already, and nothing is overwritten. Name another "
            f"folder with --out."
        )


def _write(folder: Path, texts: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
