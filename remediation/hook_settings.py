"""The hook's own settings file: where scores, ledger, cluster and people's requests are found.

What the hook may do to nodes is in `remediation.site`, which this file holds or names; nothing is
opened here. Secrets are named by file or environment variable, never written here.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from features.errors import SettingsError
from remediation.given_text import given_text, located
from remediation.process_settings import InboxSettings, LeaseSettings, ReturnSettings
from remediation.site import Site, load_site, site_from
from remediation.strict_yaml import is_quotable, parse_yaml, said_of, shortly

ENVIRONMENT_VARIABLE: Final = "FOREWARN_HOOK"
STOP_FILE: Final = "STOP"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScoreSettings(_Strict):
    """Where published scores are.

    Attributes:
        folder: The folder that holds `LATEST.json`.
    """

    folder: Path


class LedgerSettings(_Strict):
    """Where the ledger is kept; by default `ledger.sqlite` in the state folder.

    Attributes:
        sqlite: Its file.
        postgres_variable: Environment variable with libpq's connection string, for hooks on
            several machines; the lease is then kept there too.
        head: File in which the ledger's last hash is noted, on another disk than the ledger.
    """

    sqlite: Path | None = None
    postgres_variable: str | None = Field(default=None, min_length=1)
    head: Path | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.sqlite is not None and self.postgres_variable is not None:
            raise ValueError("name either sqlite or postgres_variable")
        return self


class SlurmSettings(_Strict):
    """A Slurm cluster, read with scontrol, squeue and sinfo.

    Attributes:
        kind: slurm.
        prefix: What stands before every command that only reads: `[ssh, login1]`; empty: nothing.
        racks: CSV with the columns node and rack, for Slurm knows no racks; None: unknown.
        timeout_s: Seconds for each command.
    """

    kind: Literal["slurm"]
    prefix: tuple[str, ...] = ()
    racks: Path | None = None
    timeout_s: float = Field(default=30.0, gt=0, le=120)


class KubernetesSettings(_Strict):
    """A Kubernetes cluster.

    Attributes:
        kind: kubernetes.
        kubeconfig: File with clusters and credentials; None: the pod's service account, else the
            user's usual file.
        context: Context in it; None: the current one.
        selector: Label selector of the nodes that count; empty: all.
        rack_labels: Labels that name the rack, the first present counts; empty: the usual ones.
        switch_labels: The same for the leaf switch.
        pool_labels: The same for the pool.
        gpu_resources: Resources that are whole GPUs.
        drain_taints: Patterns of taints by which other tools hold a node, beside the known ones.
        usual_taints: Patterns of taints that never mean that.
    """

    kind: Literal["kubernetes"]
    kubeconfig: Path | None = None
    context: str | None = None
    selector: str = ""
    rack_labels: tuple[str, ...] = ()
    switch_labels: tuple[str, ...] = ()
    pool_labels: tuple[str, ...] = ()
    gpu_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    drain_taints: tuple[str, ...] = ()
    usual_taints: tuple[str, ...] = ()


class CoreTablesSettings(_Strict):
    """The stored core tables instead of a live cluster; only a dry run can be made on them.

    Attributes:
        kind: core_tables.
        installation: Settings file of the installation that stores them.
    """

    kind: Literal["core_tables"]
    installation: Path


class DryRun(_Strict):
    """Records what would be done, and does nothing: the default.

    Attributes:
        kind: dry_run.
    """

    kind: Literal["dry_run"] = "dry_run"


class ActOnSlurm(_Strict):
    """Acts with scontrol and scancel.

    Attributes:
        kind: slurm.
        prefix: What stands before every command that changes something, such as
            `[sudo, -n, -u, slurm, /usr/local/libexec/forewarn-slurm]`.
    """

    kind: Literal["slurm"]
    prefix: tuple[str, ...] = ()


class ActOnKubernetes(_Strict):
    """Acts by the API, with the credentials of the cluster's settings.

    Attributes:
        kind: kubernetes.
        evicts_bare: Whether pods that nobody makes anew may be evicted.
        rounds: How often a pod is asked to go within one call.
        settle_s: How long a call waits for pods to be gone.
    """

    kind: Literal["kubernetes"]
    evicts_bare: bool = False
    rounds: int = Field(default=3, ge=1, le=10)
    settle_s: float = Field(default=30.0, ge=0, le=120)


class ActByWebhook(_Strict):
    """Gives signed orders to a site's own automation.

    Attributes:
        kind: webhook.
        url: https address of the receiver.
        key_variable: Environment variable with the signing key.
        key_file: File with it; exactly one of both.
        template: `order`, `health_event`, or a JSON file.
        ca_file: Certificates of the receiver's authority; None: the system's.
    """

    kind: Literal["webhook"]
    url: str
    key_variable: str | None = Field(default=None, min_length=1)
    key_file: Path | None = None
    template: Literal["order", "health_event"] | Path = "order"
    ca_file: Path | None = None

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if (self.key_variable is None) == (self.key_file is None):
            raise ValueError("name exactly one of key_variable and key_file")
        return self


class LoopSettings(_Strict):
    """How often the loop looks.

    Attributes:
        interval_s: Seconds from the end of a round to the next; new scores come every few minutes.
        longest_pause_s: Longest pause after rounds that failed; it doubles with each.
    """

    interval_s: float = Field(default=60.0, ge=1, le=3600)
    longest_pause_s: float = Field(default=900.0, ge=1, le=86_400)


Cluster = Annotated[
    SlurmSettings | KubernetesSettings | CoreTablesSettings, Field(discriminator="kind")
]
Acts = Annotated[DryRun | ActOnSlurm | ActOnKubernetes | ActByWebhook, Field(discriminator="kind")]

_ACTS_ON: Final = {
    "dry_run": ("slurm", "kubernetes", "core_tables"),
    "slurm": ("slurm",),
    "kubernetes": ("kubernetes",),
    "webhook": ("slurm", "kubernetes"),
}


class HookSettings(_Strict):
    """One hook. By default it acts on nothing: the actuator is a dry run, every level *observe*.

    Attributes:
        state: Folder of what the hook keeps: ledger, lease, kill switch, its last round.
        scores: Where published scores are.
        cluster: The cluster.
        actuator: How it is acted on.
        ledger: Where the ledger is kept.
        site: What may be done to which nodes; in the file, or the path of a file of its own.
        inbox: The inbox of people's signed requests; None: nobody can ask for anything.
        returns: How nodes come back.
        lease: How long a round keeps others out.
        loop: How often the loop looks.
    """

    state: Path
    scores: ScoreSettings
    cluster: Cluster
    actuator: Acts = DryRun()
    ledger: LedgerSettings = LedgerSettings()
    site: Site = Site()
    inbox: InboxSettings | None = None
    returns: ReturnSettings = ReturnSettings()
    lease: LeaseSettings = LeaseSettings()
    loop: LoopSettings = LoopSettings()

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        fits = _ACTS_ON[self.actuator.kind]
        if self.cluster.kind not in fits:
            raise ValueError(
                f"actuator {self.actuator.kind} acts on {' or '.join(fits)}, but cluster is "
                f"{self.cluster.kind}"
            )
        return self

    @property
    def kill_switch(self) -> Path:
        """The file that stops all action while it exists."""
        return self.site.kill_switch or self.state / STOP_FILE

    @property
    def ledger_file(self) -> Path:
        """The ledger's file, where it is one."""
        return self.ledger.sqlite or self.state / "ledger.sqlite"


def load_hook_settings(path: Path) -> HookSettings:
    """Reads the hook's settings file (YAML); relative paths are relative to the file.

    Raises:
        SettingsError: The file cannot be read or says something that cannot be carried out; the
            text names file, key, what was expected and what was found.
    """
    content = read_hook_file(path)
    site = content.pop("site", {})
    try:
        settings = HookSettings.model_validate({**content, "site": _site(site, origin=path)})
    except ValidationError as error:
        raise SettingsError(f"hook settings {path}: {'; '.join(_problems(error))}") from error
    with_paths = located(settings.model_copy(update={"site": Site()}), path.parent.absolute())
    with_switch = settings.site.model_copy(
        update={"kill_switch": settings.site.kill_switch or with_paths.state / STOP_FILE}
    )
    return with_paths.model_copy(update={"site": with_switch})


def read_hook_file(path: Path) -> dict[str, Any]:
    """The file's plain values, unchecked; enough to find the kill switch in a file with mistakes.

    Raises:
        SettingsError: The file cannot be read, or holds no keys.
    """
    try:
        content = parse_yaml(given_text(path))
    except OSError as error:
        raise SettingsError(
            f"hook settings {path}: {error.strerror}. Name the file with --hook FILE or in "
            f"${ENVIRONMENT_VARIABLE}; docs/remediation.md shows one to start from."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"hook settings {path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise SettingsError(
            f"hook settings {path}: expected keys and values, got {type(content).__name__}"
        )
    return content


def _site(value: object, *, origin: Path) -> Site:
    if isinstance(value, str):
        return load_site(origin.parent.absolute() / value)
    return site_from(value, origin=origin.absolute())


def _problems(error: ValidationError) -> list[str]:
    return [
        f"{_key(found['loc'])}: {said_of(found)}, got {shortly(found['input'])}"
        if is_quotable(found) and found["type"] != "value_error"
        else f"{_key(found['loc'])}: {said_of(found)}"
        for found in error.errors(include_url=False)
    ]


def _key(loc: tuple[int | str, ...]) -> str:
    # pydantic names the kind of cluster or actuator within the key; the file does not.
    parts = [part for place, part in enumerate(loc) if not (place == 1 and part in _ACTS_ON)]
    parts = [part for place, part in enumerate(parts) if not (place == 1 and part == "core_tables")]
    return ".".join(map(str, parts)) or "(file)"
