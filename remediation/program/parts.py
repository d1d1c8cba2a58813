"""Opens the parts of a hook from its settings: scores, cluster, actuator, ledger, lease, keys.

What a round does with them is in `remediation.program.round`; nothing is decided or acted on here.
"""

import csv
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from features.clock import utc_now
from features.errors import SettingsError
from remediation.actuators.protocol import Actuator, Order, Outcome
from remediation.actuators.slurm_commands import hold_commands, interrupt_commands, undrain_commands
from remediation.cluster.state import ClusterReader, NodeView
from remediation.given_text import given_bytes, given_text
from remediation.hook_settings import (
    ActByWebhook,
    ActOnKubernetes,
    ActOnSlurm,
    CoreTablesSettings,
    DryRun,
    HookSettings,
    KubernetesSettings,
    SlurmSettings,
)
from remediation.inbox.site import load_key
from remediation.lease.leadership import Leadership, LeaseStore, forward_clock
from remediation.ledger.entries import Ledger
from remediation.ledger.head import HeadedLedger, HeadFile
from remediation.process_settings import InboxSettings
from remediation.score_source import FolderScoreSource, ScoreSource
from remediation.signed_requests import ANY, RequestKey

Commands = tuple[tuple[str, ...], ...]
CoreTables = Callable[[Path], ClusterReader]
"""Reads stored core tables by an installation's settings file; the pipelines have it."""

_LEASE_FILE: Final = "lease.sqlite"


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Stands in for an actuator under its name: reads, changes nothing, says what would be sent.

    Attributes:
        name: Name in the ledger.
        is_dry_run: Whether its entries are a dry run's.
        read: Reads one node.
        hold: What a hold would send.
        interrupt: What the end of a notice would send.
        give_back: What a return would send.
    """

    name: str
    is_dry_run: bool
    read: Callable[[str], NodeView | None]
    hold: Callable[[Order], Commands]
    interrupt: Callable[[Order], Commands]
    give_back: Callable[[Order], Commands]

    def state(self, node: str) -> NodeView | None:
        """As in `Actuator`."""
        return self.read(node)

    def cordon(self, order: Order) -> Outcome:
        """As in `Actuator`; nothing is done."""
        return Outcome(status="would_do", commands=self.hold(order))

    def drain(self, order: Order) -> Outcome:
        """As in `Actuator`; nothing is done."""
        return Outcome(status="would_do", commands=self.hold(order))

    def end_notice(self, order: Order) -> Outcome:
        """As in `Actuator`; nothing is done."""
        return Outcome(status="would_do", commands=self.interrupt(order))

    def undrain(self, order: Order) -> Outcome:
        """As in `Actuator`; nothing is done."""
        return Outcome(status="would_do", commands=self.give_back(order))


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The hook's sides of one cluster.

    Attributes:
        cluster: Reads it.
        actuator: Changes it.
        rehearsal: Has the actuator's name and changes nothing.
    """

    cluster: ClusterReader
    actuator: Actuator
    rehearsal: Actuator


def open_scores(settings: HookSettings) -> ScoreSource:
    """Where scores are read."""
    return FolderScoreSource(settings.scores.folder)


def open_ports(settings: HookSettings, *, core_tables: CoreTables | None = None) -> Ports:
    """The cluster's reader and actuators; no node is asked for yet.

    Args:
        settings: The hook's settings.
        core_tables: Reads stored core tables; None: they cannot be read from here.

    Raises:
        SettingsError: A part cannot be opened.
    """
    if isinstance(settings.cluster, SlurmSettings):
        return _slurm(settings, settings.cluster)
    if isinstance(settings.cluster, KubernetesSettings):
        return _kubernetes(settings, settings.cluster)
    return _stored(settings.cluster, core_tables)


@contextmanager
def open_ledger(settings: HookSettings) -> Iterator[Ledger]:
    """The ledger, checked against its noted head where the settings name one.

    Raises:
        LedgerError: It cannot be opened.
        SettingsError: Its connection string is not there.
    """
    with open_bare_ledger(settings) as ledger:
        head = settings.ledger.head
        yield ledger if head is None else HeadedLedger(ledger, HeadFile(head))


def open_leadership(settings: HookSettings) -> Leadership:
    """This process's side of the lease; kept beside the ledger.

    Raises:
        LeaseError: It cannot be opened.
        SettingsError: Its connection string is not there, or it is another account's.
    """
    store: LeaseStore
    if settings.ledger.postgres_variable is None:
        from remediation.lease.sqlite import SqliteLease

        _refuse_root(settings.state / _LEASE_FILE)
        store = SqliteLease(settings.state / _LEASE_FILE)
    else:
        from remediation.lease.postgres import PostgresLease

        store = PostgresLease(_variable(settings.ledger.postgres_variable))
    return Leadership(
        store,
        holder=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        clock=forward_clock(),
        seconds=settings.lease.seconds,
        act_seconds=settings.lease.act_seconds,
    )


def signing_key(inbox: InboxSettings, actor: str) -> tuple[str, RequestKey]:
    """The first key that may sign for a person, with its id.

    Raises:
        SettingsError: None may, or it cannot be read.
    """
    for key_id, one in inbox.keys.items():
        if ANY in one.actors or actor in one.actors:
            return key_id, RequestKey(load_key(file=one.file, variable=one.variable), one.actors)
    raise SettingsError(
        f"inbox.keys: none signs for {actor!r}; add the name under a key's actors, or name "
        f"yourself with --as"
    )


def read_racks(path: Path) -> dict[str, str]:
    """Rack by node.

    Args:
        path: CSV with the columns node and rack.

    Raises:
        SettingsError: It cannot be read, lacks a column or a value, or names a node twice.
    """
    try:
        rows = list(csv.DictReader(given_text(path).splitlines(keepends=True), strict=True))
    except OSError as error:
        raise SettingsError(f"racks {path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise SettingsError(f"racks {path} is not CSV: {error}") from error
    racks: dict[str, str] = {}
    for line, row in enumerate(rows, start=2):
        node, rack = row.get("node"), row.get("rack")
        if not node or not rack:
            raise SettingsError(f"racks {path}, line {line}: expected node,rack, got {row}")
        if racks.setdefault(node, rack) != rack:
            raise SettingsError(f"racks {path}, line {line}: {node!r} is in two racks")
    return racks


@contextmanager
def open_bare_ledger(settings: HookSettings) -> Iterator[Ledger]:
    """The ledger itself, whatever head is noted of it.

    Raises:
        LedgerError: It cannot be opened.
        SettingsError: Its connection string is not there, or it is another account's.
    """
    if settings.ledger.postgres_variable is None:
        from remediation.ledger.sqlite import SqliteLedger

        _refuse_root(settings.ledger_file)
        with SqliteLedger(settings.ledger_file) as ledger:
            yield ledger
    else:
        from remediation.ledger.postgres import PostgresLedger

        with PostgresLedger(_variable(settings.ledger.postgres_variable)) as postgres:
            yield postgres


def _refuse_root(file: Path) -> None:
    """Keeps root from leaving files beside the hook's that the hook could then not write.

    Raises:
        SettingsError: This is root, and the file or its folder is another account's.
    """
    found = next((one for one in (file, file.parent) if one.exists()), None)
    if os.geteuid() == 0 and found is not None and found.stat().st_uid != 0:
        owner = found.owner()
        raise SettingsError(
            f"{found} belongs to {owner}; root would leave files there that the hook cannot "
            f"write. Run it as: sudo -u {owner} forewarn remediate ..."
        )


def _variable(name: str) -> str:
    found = os.environ.get(name)
    if not found:
        raise SettingsError(f"ledger.postgres_variable: environment variable {name} is not set")
    return found


def _slurm(settings: HookSettings, found: SlurmSettings) -> Ports:
    from remediation.actuators.slurm import SlurmActuator
    from remediation.actuators.slurm_run import LocalRunner
    from remediation.actuators.slurm_state import SlurmCluster, view_of

    listed = settings.site.interruptible_partitions
    cluster = SlurmCluster(
        runner=LocalRunner(prefix=found.prefix),
        racks=read_racks(found.racks) if found.racks else {},
        timeout_s=found.timeout_s,
    )

    def read(node: str) -> NodeView | None:
        return view_of(cluster.state(node))

    def rehearsal(name: str) -> Rehearsal:
        return Rehearsal(
            name=name,
            is_dry_run=name == "dry_run",
            read=read,
            hold=lambda order: hold_commands(order, interruptible=listed),
            interrupt=lambda order: interrupt_commands(order.jobs, interruptible=listed),
            give_back=undrain_commands,
        )

    acts = settings.actuator
    if isinstance(acts, ActByWebhook):
        return _webhook(acts, cluster, read)
    if isinstance(acts, ActOnSlurm):
        runner = LocalRunner(prefix=acts.prefix)
        actuator = SlurmActuator(
            cluster, runner=runner, interruptible=listed, timeout_s=found.timeout_s
        )
        return Ports(cluster=cluster, actuator=actuator, rehearsal=rehearsal(actuator.name))
    dry = rehearsal("dry_run")
    return Ports(cluster=cluster, actuator=dry, rehearsal=dry)


def _kubernetes(settings: HookSettings, found: KubernetesSettings) -> Ports:
    from remediation.actuators.kubernetes import KubernetesActuator
    from remediation.actuators.kubernetes_api import OfficialApi
    from remediation.actuators.kubernetes_cluster import KubernetesCluster
    from remediation.actuators.kubernetes_drain import DrainRules
    from remediation.actuators.kubernetes_nodes import NodeReading
    from remediation.actuators.kubernetes_plan import planned_hold, planned_return

    api = OfficialApi(kubeconfig=found.kubeconfig, context=found.context)
    named = {
        "racks": found.rack_labels,
        "switches": found.switch_labels,
        "pools": found.pool_labels,
    }
    reading = NodeReading(
        gpu_resources=found.gpu_resources,
        drain_taints=found.drain_taints,
        usual_taints=found.usual_taints,
        **{name: labels for name, labels in named.items() if labels},
    )
    cluster = KubernetesCluster(api, reading=reading, selector=found.selector)
    acts = settings.actuator
    rules = DrainRules()
    if isinstance(acts, ActOnKubernetes):
        rules = DrainRules(evicts_bare=acts.evicts_bare, rounds=acts.rounds, settle_s=acts.settle_s)
    actuator = KubernetesActuator(api, cluster, rules)
    if isinstance(acts, ActByWebhook):
        return _webhook(acts, cluster, actuator.state)
    is_dry_run = isinstance(acts, DryRun)
    rehearsal = Rehearsal(
        name="dry_run" if is_dry_run else actuator.name,
        is_dry_run=is_dry_run,
        read=actuator.state,
        hold=lambda order: planned_hold(order, now=utc_now()),
        interrupt=lambda order: (("evict", order.expected.name),),
        give_back=planned_return,
    )
    acting: Actuator = rehearsal if is_dry_run else actuator
    return Ports(cluster=cluster, actuator=acting, rehearsal=rehearsal)


def _webhook(
    found: ActByWebhook, cluster: ClusterReader, read: Callable[[str], NodeView | None]
) -> Ports:
    from remediation.actuators.webhook import WebhookActuator, poster
    from remediation.actuators.webhook_signature import key_from

    actuator = WebhookActuator(
        post=poster(found.url, ca_file=str(found.ca_file) if found.ca_file else None),
        key=key_from(variable=found.key_variable, file=found.key_file),
        cluster=cluster,
        template=_template(found.template),
    )

    def sent(verb: str) -> Callable[[Order], Commands]:
        return lambda order: (("POST", found.url, verb, order.expected.name),)

    rehearsal = Rehearsal(
        name=actuator.name,
        is_dry_run=False,
        read=read,
        hold=lambda order: sent("cordon" if order.action == "cordon" else "drain")(order),
        interrupt=sent("end_notice"),
        give_back=sent("undrain"),
    )
    return Ports(cluster=cluster, actuator=actuator, rehearsal=rehearsal)


def _template(named: str | Path) -> Mapping[str, Any]:
    from remediation.actuators.webhook_body import TEMPLATES

    if isinstance(named, str):
        return TEMPLATES[named]
    try:
        found = orjson.loads(given_bytes(named))
    except OSError as error:
        raise SettingsError(f"webhook template {named}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise SettingsError(f"webhook template {named} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise SettingsError(f"webhook template {named}: expected a JSON object")
    return found


def _stored(found: CoreTablesSettings, core_tables: CoreTables | None) -> Ports:
    if core_tables is None:
        raise SettingsError("cluster core_tables: run it as `forewarn remediate`")
    cluster = core_tables(found.installation)

    def read(node: str) -> NodeView | None:
        return cluster.read().by_name.get(node)

    dry = Rehearsal(
        name="dry_run",
        is_dry_run=True,
        read=read,
        hold=hold_commands,
        interrupt=lambda order: interrupt_commands(order.jobs, interruptible=()),
        give_back=undrain_commands,
    )
    return Ports(cluster=cluster, actuator=dry, rehearsal=dry)
