"""Probes of `forewarn doctor` for the hook: ledger, cluster, rights, kill switch, keys, last round.

The hook's own view of what it holds is `forewarn remediate status`.
"""

import getpass
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Final

from pipelines.doctor.kubernetes import ACTS, OBSERVES, missing_rights
from pipelines.doctor.probe import Finding, NamedProbe, Probe, beside, joined
from pipelines.doctor.servers import probe_connection
from remediation.actuators.kill_switch import stopped_by
from remediation.actuators.kubernetes_api import OfficialApi
from remediation.actuators.slurm_run import CommandRunner, LocalRunner
from remediation.actuators.webhook_signature import key_from
from remediation.hook_settings import (
    ActByWebhook,
    ActOnKubernetes,
    ActOnSlurm,
    HookSettings,
    KubernetesSettings,
)
from remediation.inbox.site import load_key
from remediation.ledger.entries import LedgerError
from remediation.ledger.head import HeadFile
from remediation.ledger.sqlite import VERSION, stored_version
from remediation.program.loop import RoundNote
from remediation.program.parts import CoreTables, open_bare_ledger, open_ports, open_scores
from remediation.score_source import LATEST

_COMMAND_S: Final = 8.0
_REFUSED_BY_US: Final = 126  # what deploy/slurm/forewarn-slurm answers to what it does not know
_MAY_UPDATE: Final = ("operator", "administrator")


def hook_probes(
    hook: HookSettings, *, now: datetime, core_tables: CoreTables | None = None
) -> Iterator[Probe]:
    """Probes of all that the hook's settings name.

    Args:
        hook: The hook.
        now: The present.
        core_tables: Reads stored core tables.
    """
    yield NamedProbe("hook: scores", lambda: probe_scores(hook, now=now))
    yield NamedProbe("hook: cluster", lambda: probe_cluster(hook, core_tables))
    yield NamedProbe("hook: ledger", lambda: probe_ledger(hook, now=now))
    yield NamedProbe("hook: rights", lambda: probe_rights(hook))
    yield NamedProbe("hook: kill switch", lambda: probe_kill_switch(hook))
    yield NamedProbe("hook: last round", lambda: probe_round(hook, now=now))
    if hook.inbox is not None:
        yield NamedProbe("hook: inbox", lambda: probe_inbox(hook))


def probe_scores(hook: HookSettings, *, now: datetime) -> Finding:
    """Whether this account can read the published scores, and they hold.

    Raises:
        SourceError: They cannot be read or trusted.
    """
    folder = hook.scores.folder
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        do = f"Let {getpass.getuser()} read it; the hook needs no more than that."
        return Finding("FAIL", f"{folder} cannot be read", do)
    if not (folder / LATEST).exists():
        return Finding("warn", f"{folder}: no scores are published", "Start `forewarn score`.")
    found = open_scores(hook).latest(now)
    what = f"of {found.as_of:%Y-%m-%d %H:%M}Z, trained on {found.trained_on} data"
    if found.is_expired(now):
        do = "See the probes `newest scores` and `scorer`; nothing is done on expired scores."
        return Finding("warn", f"{what}, expired", do)
    return Finding("ok", what)


def probe_cluster(hook: HookSettings, core_tables: CoreTables | None) -> Finding:
    """Whether the cluster can be read as a round would.

    Raises:
        ForewarnError: It cannot.
    """
    state = open_ports(hook, core_tables=core_tables).cluster.read()
    if not state.nodes:
        return Finding("FAIL", "the cluster has no node", "See cluster in the hook's settings.")
    n_racked = sum(node.rack is not None for node in state.nodes)
    what = f"{len(state.nodes):,} nodes by {hook.cluster.kind}, the rack of {n_racked:,} is known"
    if not n_racked:
        do = "Name racks: without them all nodes count as one rack, which holds one node at most."
        return Finding("warn", what, do)
    return Finding("ok", what)


def probe_ledger(hook: HookSettings, *, now: datetime) -> Finding:
    """Whether it can be opened, its chain holds, and it holds the noted head.

    Raises:
        ForewarnError: It cannot be opened.
    """
    clock, is_there = None, hook.ledger_file.exists()
    if hook.ledger.postgres_variable is not None:
        theirs, is_there = _on_postgres(os.environ.get(hook.ledger.postgres_variable, ""))
        clock = None if theirs is None else beside(theirs, now)
    elif is_there and (found_version := stored_version(hook.ledger_file)) != VERSION:
        # Opening it would bring it forward, under a hook of the other release.
        raise LedgerError(
            f"ledger {hook.ledger_file}: version {found_version}, this release has {VERSION}. See "
            f"docs/upgrade.md."
        )
    if not is_there:
        return joined("it is not there yet; the hook's first round makes it", clock)
    with open_bare_ledger(hook) as ledger:
        noted = None if hook.ledger.head is None else HeadFile(hook.ledger.head).read()
        found = ledger.verify(expected_head=noted.hash if noted and noted.seq else None)
    if not found.is_whole:
        do = "Stop the hook, and see docs/remediation.md on a ledger that was altered."
        return Finding("FAIL", f"NOT WHOLE: {found.problem}", do)
    return joined(f"whole, {found.n_entries:,} entries", clock)


def probe_rights(hook: HookSettings) -> Finding:
    """Whether the hook could do what its actuator would; nothing is done.

    Raises:
        ForewarnError: A part cannot be opened.
    """
    acts = hook.actuator
    if isinstance(acts, ActOnSlurm):
        return slurm_rights(LocalRunner(prefix=acts.prefix), acts.prefix)
    if isinstance(acts, ActByWebhook):
        key_from(variable=acts.key_variable, file=acts.key_file)
        return probe_connection(acts.url, ca_file=acts.ca_file)
    if isinstance(hook.cluster, KubernetesSettings):
        rights = ACTS if isinstance(acts, ActOnKubernetes) else OBSERVES
        found = hook.cluster
        with closing(OfficialApi(kubeconfig=found.kubeconfig, context=found.context)) as api:
            return missing_rights(api, rights)
    return Finding("ok", "a dry run needs no right beyond reading")


def slurm_rights(runner: CommandRunner, prefix: tuple[str, ...]) -> Finding:
    """Whether `scontrol update` would be allowed; none is sent.

    Args:
        runner: Runs what changes something.
        prefix: What stands before it.
    """
    return _by_wrapper(runner, prefix) if prefix else _by_ourselves(runner)


def _by_wrapper(runner: CommandRunner, prefix: tuple[str, ...]) -> Finding:
    """Has it run what the hook never runs: our own wrapper refuses that, in its own words."""
    ran, words = runner.run(("scontrol", "ping"), timeout_s=_COMMAND_S), " ".join(prefix)
    if ran.code == _REFUSED_BY_US and "forewarn-slurm" in ran.err:
        return Finding("ok", f"{words} runs, and refuses all but the hook's commands")
    if ran.code == 0:
        do = "Use deploy/slurm/forewarn-slurm: it lets through the hook's commands only."
        return Finding("warn", f"{words} runs any command of Slurm", do)
    do = "See deploy/slurm/sudoers, and run it by hand as the hook's account."
    return Finding("FAIL", f"{words}: {ran}", do)


def _by_ourselves(runner: CommandRunner) -> Finding:
    user = getpass.getuser()
    shown = runner.run(("scontrol", "show", "config"), timeout_s=_COMMAND_S)
    if shown.code != 0:
        return Finding("FAIL", str(shown), "See the probe of the cluster.")
    owner = next((line for line in shown.out.splitlines() if line.startswith("SlurmUser")), "")
    slurm_user = owner.partition("=")[2].strip().partition("(")[0]
    if user in ("root", slurm_user):
        return Finding("ok", f"{user} may update nodes")
    level = runner.run(
        ("sacctmgr", "-n", "-P", "show", "user", user, "format=adminlevel"), timeout_s=_COMMAND_S
    )
    if level.code == 0 and level.out.strip().lower() in _MAY_UPDATE:
        return Finding("ok", f"{user} is {level.out.strip()} in Slurm")
    do = "Give it a prefix: deploy/slurm/sudoers and deploy/slurm/forewarn-slurm are meant for it."
    return Finding("FAIL", f"{user} is neither {slurm_user} nor an operator of Slurm", do)


def probe_kill_switch(hook: HookSettings) -> Finding:
    """Whether action is stopped, and can be stopped."""
    said, folder = stopped_by(hook.site), hook.kill_switch.parent
    if said is not None:
        do = "forewarn remediate kill-switch off"
        if hook.site.is_stopped:
            do = "Take is_stopped out of the site's settings"
        elif not folder.is_dir():
            do = f"mkdir -p {folder}, which the hook's account can write"
        return Finding("warn", said, f"{do}, once it may act again.")
    if not os.access(folder, os.W_OK):
        do = f"Let the people on call write {folder}: it stops the hook when all else is down."
        return Finding("warn", f"{hook.kill_switch} cannot be set by {getpass.getuser()}", do)
    return Finding("ok", f"not set: {hook.kill_switch}")


def probe_round(hook: HookSettings, *, now: datetime) -> Finding:
    """How the hook's last round went."""
    note = RoundNote.read(hook.state)
    if note is None:
        return Finding("warn", "no round is noted", "Start `forewarn remediate loop`.")
    age_s = (now - note.ended_at).total_seconds()
    what = f"{age_s / 60:.0f} minutes ago: {note.text}"
    if note.is_failed:
        return Finding("FAIL", f"{what}, {note.failed_in_row} in a row", "See its log.")
    if age_s > 3 * hook.loop.longest_pause_s:
        return Finding("warn", what, "See whether the hook still runs.")
    return Finding("ok", what)


def probe_inbox(hook: HookSettings) -> Finding:
    """Whether the keys can be read, and the folder is there.

    Raises:
        SettingsError: A key cannot be read, is too short, or could be read by others.
    """
    if hook.inbox is None:
        return Finding("ok", "there is none")
    for one in hook.inbox.keys.values():
        load_key(file=one.file, variable=one.variable)
    if not hook.inbox.folder.is_dir():
        return Finding("warn", f"{hook.inbox.folder} is not there yet", "The hook makes it.")
    return Finding("ok", f"{hook.inbox.folder}, {len(hook.inbox.keys)} keys")


def _on_postgres(conninfo: str) -> tuple[datetime | None, bool]:
    """The server's time, and whether the ledger is there; opening it would make it.

    Raises:
        LedgerError: The server does not answer.
    """
    if not conninfo:
        return None, True  # opening it tells that there is no connection string
    from remediation.ledger.postgres import connect, driver, name_of

    name = name_of(conninfo)  # first: the driver's own words may quote a string that it misreads
    try:
        with closing(connect(conninfo)) as connection:
            now, table = connection.execute(
                "SELECT clock_timestamp(), to_regclass('forewarn_ledger')"
            ).fetchone()
    except driver().Error as error:
        said = " ".join(str(error).split())[:200]
        raise LedgerError(f"ledger {name}: {said}. See that the server runs.") from error
    return now, table is not None
