"""The commands of the hook, `forewarn remediate ...`: each calls one function and prints its words.

No logic: rounds, plans and requests are in `remediation.program.round` and its neighbours.

Exit codes: 0 nothing is left to do, 1 a person must look, 2 it cannot run (settings, sources,
ledger, arguments), 3 the kill switch or another hook's lease said no.
"""

import json
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from features.errors import ForewarnError, SettingsError
from pipelines.commands.shadow import shadow
from remediation.plan import error_line, plain, render_plan

if TYPE_CHECKING:
    from remediation.cluster.state import ClusterReader, NodeView
    from remediation.hook_settings import HookSettings
    from remediation.program.round import Round


class _Explained(TyperGroup):
    """Says an error that a person can act on in one line, without a trace."""

    def invoke(self, ctx: Any) -> Any:
        """As click does, but for such errors."""
        from remediation.program.plan import PlanRefusedError

        try:
            return super().invoke(ctx)
        except (ForewarnError, OSError) as error:
            typer.echo(f"forewarn: {error_line(error)}", err=True)
            raise typer.Exit(1 if isinstance(error, PlanRefusedError) else 2) from error


class Switch(StrEnum):
    """What to do with the kill switch."""

    ON = "on"
    OFF = "off"
    STATUS = "status"


app = typer.Typer(
    cls=_Explained,
    no_args_is_help=True,
    help="The hook: decides on the latest scores, and drains what is about to fail, within bounds.",
    epilog="Exit codes: 0 nothing left to do, 1 a person must look, 2 cannot run, 3 stopped by the "
    "kill switch or another hook's lease.",
)
ledger = typer.Typer(no_args_is_help=True, help="The append-only record of all that was done.")
app.add_typer(ledger, name="ledger")

_HOOK = Path("/etc/forewarn/hook.yaml")  # sudo drops $FOREWARN_HOOK, at night of all times

HookOption = Annotated[
    Path | None,
    typer.Option(
        "--hook", help=f"Settings; default: $FOREWARN_HOOK, else {_HOOK}.", metavar="FILE",
        envvar="FOREWARN_HOOK",
    ),
]  # fmt: skip
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
NodeArgument = Annotated[str, typer.Argument(help="Name of the node.", metavar="NODE")]
AsOption = Annotated[
    str | None, typer.Option("--as", help="Who asks; default: you.", metavar="NAME")
]


@app.command()
def run(hook: HookOption = None) -> None:
    """Make one round: recover, read, decide, guard, act. For a timer."""
    from remediation.program.loop import run_one

    _tell_round(run_one(_settings(hook), core_tables=_core_tables))


@app.command()
def loop(hook: HookOption = None) -> None:
    """Make rounds until SIGTERM; a round that fails never ends it. For a service."""
    from remediation.program.loop import loop_on

    loop_on(_settings(hook), core_tables=_core_tables, say=lambda line: typer.echo(line, err=True))


@app.command()
def plan(
    *,
    out: Annotated[Path | None, typer.Option(help="Also write the plan here.")] = None,
    hook: HookOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a round would do now; change nothing, not even the ledger."""
    from remediation.program.plan import plan_of, render, write_plan
    from remediation.program.rehearsal import rehearse
    from remediation.program.round import opened

    with opened(_settings(hook), core_tables=_core_tables) as parts:
        rehearsed = rehearse(parts)
        made = plan_of(rehearsed, actuator=parts.name)
    typer.echo(_json(made.model_dump(mode="json")) if as_json else render(rehearsed))
    if out is not None:
        write_plan(made, out)
        typer.echo(
            f"\nPlan of {len(made.nodes)} nodes in {out}; it holds until "
            f"{made.expires_at:%Y-%m-%d %H:%M} UTC, or until new scores come. Carry it out with: "
            f"forewarn remediate apply {out}",
            err=True,
        )
    raise typer.Exit(1 if made.messages else 0)


@app.command()
def apply(
    plan_file: Annotated[Path, typer.Argument(help="A file that `plan` wrote.", metavar="PLAN")],
    hook: HookOption = None,
) -> None:
    """Carry out a plan, as far as it is still decided and allowed."""
    from remediation.program.plan import apply_plan, read_plan
    from remediation.program.round import opened

    made = read_plan(plan_file)
    with opened(_settings(hook), core_tables=_core_tables) as parts:
        _tell_round(apply_plan(parts, made))


@app.command()
def approve(
    decision: Annotated[str, typer.Argument(help="Id of the decision.", metavar="DECISION")],
    hook: HookOption = None,
    actor: AsOption = None,
) -> None:
    """Approve what the hook recommends for one node; it is done in its next round, if it holds."""
    from remediation.program.requests import decision_of, node_now
    from remediation.program.round import opened

    with opened(_settings(hook), core_tables=_core_tables) as parts:
        entry = decision_of(parts.ledger, decision, actuator=parts.name)
        view = node_now(parts.ports.actuator, str(entry.node))
    typer.echo(plain(f"{view.name}: {entry.body['sentence']}"))
    _ask("approve", hook, actor, view=view, decision_id=decision)


@app.command()
def hold(
    node: NodeArgument,
    hours: Annotated[float, typer.Option(min=0.1, max=24 * 30, help="How long.")] = 24.0,
    hook: HookOption = None,
    actor: AsOption = None,
) -> None:
    """Have the hook leave a node alone for some hours."""
    _ask("hold", hook, actor, view=_node(hook, node), until=_now() + timedelta(hours=hours))


@app.command()
def undrain(node: NodeArgument, hook: HookOption = None, actor: AsOption = None) -> None:
    """Have the hook return a node that it holds; nobody else's is touched."""
    from remediation.program.requests import held_node_now
    from remediation.program.round import opened

    with opened(_settings(hook), core_tables=_core_tables) as parts:
        _ask("undrain", hook, actor, view=held_node_now(parts.ports.actuator, parts.view(), node))


@app.command()
def repaired(node: NodeArgument, hook: HookOption = None, actor: AsOption = None) -> None:
    """Say that the cause of a drain was repaired; the node returns once a check passes."""
    from remediation.program.requests import check_held, node_now
    from remediation.program.round import opened

    with opened(_settings(hook), core_tables=_core_tables) as parts:
        check_held(parts.view(), node)
        _ask("repaired", hook, actor, view=node_now(parts.ports.actuator, node))


@app.command("false-alarm")
def false_alarm(node: NodeArgument, hook: HookOption = None, actor: AsOption = None) -> None:
    """Say that there was no cause; the node returns once a check passes."""
    _ask("false_alarm", hook, actor, view=_node(hook, node))


@app.command()
def acknowledge(
    question: Annotated[str, typer.Argument(help="Its id, as `status` shows it.", metavar="ID")],
    hook: HookOption = None,
    actor: AsOption = None,
) -> None:
    """Say that you have looked at a question; what it stopped goes on in the next round."""
    from remediation.program.status import question_named

    entry = question_named(_settings(hook), question, now=_now())
    typer.echo(plain(entry.body["text"]))
    _ask("acknowledge", hook, actor, escalation=entry.key)


@app.command()
def status(*, hook: HookOption = None, as_json: JsonOption = False) -> None:
    """Say how the hook stands: what it holds, what waits for you, what it may still do."""
    from remediation.program.status import status_of
    from remediation.program.words import render_status

    found = status_of(_settings(hook), now=_now(), core_tables=_core_tables)
    typer.echo(_json(asdict(found)) if as_json else render_status(found))
    raise typer.Exit(found.exit_code)


@app.command()
def why(node: NodeArgument, *, hook: HookOption = None, as_json: JsonOption = False) -> None:
    """Say why a node was taken or was not: decision, guards, what would change it."""
    from remediation.program.round import opened
    from remediation.program.why import why_node
    from remediation.program.words import render_why

    with opened(_settings(hook), core_tables=_core_tables) as parts:
        found = why_node(parts, node)
    typer.echo(_json(asdict(found)) if as_json else render_why(found))
    raise typer.Exit(found.exit_code)


@app.command("kill-switch")
def kill_switch(
    what: Annotated[Switch, typer.Argument(help="Set it, lift it, or look.")],
    file: Annotated[
        Path | None, typer.Option(help="The switch itself, where the settings cannot be read.")
    ] = None,
    hook: HookOption = None,
) -> None:
    """Stop all action, or let it go on. Works when ledger, scores and cluster are down."""
    from remediation.actuators.kill_switch import stopped_by
    from remediation.program import kill_switch as switch
    from remediation.program.requests import person
    from remediation.site import Site

    path = file.absolute() if file else switch.find_kill_switch(_hook_file(hook))
    if what is Switch.ON:
        typer.echo(plain(switch.turn_on(path, actor=person(), at=_now(), is_named=bool(file))))
    elif what is Switch.OFF:
        typer.echo(plain(switch.turn_off(path)))
    else:
        said, set_by = stopped_by(Site(kill_switch=path)), switch.said_by(path)
        typer.echo(plain(f"{said or f'kill switch {path} is not set'}: {set_by}".strip(": ")))
        raise typer.Exit(0 if said is None else 3)


@app.command()
def resume(hook: HookOption = None, actor: AsOption = None) -> None:
    """End a stop that was asked for by board or API; the kill switch is a stop of its own."""
    _ask("unkill", hook, actor)


@app.command()
def rehearse(
    settings: Annotated[
        Path | None,
        typer.Option("--settings", help="Settings; default: $FOREWARN_SETTINGS.", metavar="FILE"),
    ] = None,
) -> None:
    """Decide on the stored core tables instead of a live cluster, with the champion's policy."""
    from pipelines.flow.remediate import dry_run
    from pipelines.settings import load_settings

    typer.echo(dry_run(load_settings(settings)))


app.command()(shadow)


@ledger.command()
def export(
    out: Annotated[Path, typer.Argument(help="File of JSON lines to write.", metavar="FILE")],
    hook: HookOption = None,
) -> None:
    """Write every entry, with its hash, as one line of JSON."""
    from remediation.ledger.head import write_export
    from remediation.program.parts import open_ledger

    with open_ledger(_settings(hook)) as found:
        n_entries = write_export(found, out)
        head = found.verify().head
    typer.echo(f"{n_entries} entries in {out}, the last hash is {head}")


@ledger.command()
def verify(
    export_file: Annotated[
        Path | None, typer.Option("--export", help="Verify this export instead.", metavar="FILE")
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="A hash noted earlier that must be in it.", metavar="HASH")
    ] = None,
    hook: HookOption = None,
) -> None:
    """Recompute the chain of hashes; exit code 1: it was altered or cut off."""
    from remediation.ledger.head import check_head, verify_export
    from remediation.program.parts import open_ledger

    check_head(head)
    if export_file is not None:
        found = verify_export(export_file, expected_head=head)
    else:
        with open_ledger(_settings(hook)) as opened_ledger:
            found = opened_ledger.verify(expected_head=head)
    if not found.is_whole:
        typer.echo(plain(f"NOT WHOLE: {found.problem}"))
        raise typer.Exit(1)
    typer.echo(f"whole: {found.n_entries} entries, the last hash is {found.head}")


@ledger.command("note-head")
def note_head(
    *,
    is_looked_at: Annotated[
        bool,
        typer.Option("--every-held-node-was-looked-at", help="Say that a person has looked."),
    ] = False,
    hook: HookOption = None,
) -> None:
    """Take the ledger as it is for whole: after it was restored from a backup."""
    from remediation.ledger.head import note_head_anew
    from remediation.program.parts import open_bare_ledger

    settings = _settings(hook)
    if settings.ledger.head is None:
        raise SettingsError("ledger.head: not set, so none is noted")
    if not is_looked_at:
        raise SettingsError(
            "a restored ledger does not know what was held since the backup. Look at every node "
            "that is drained or cordoned, then say --every-held-node-was-looked-at"
        )
    with open_bare_ledger(settings) as found:
        head = note_head_anew(found, settings.ledger.head)
    typer.echo(f"noted: entry {head.seq}, hash {head.hash}")


def _hook_file(hook: Path | None) -> Path:
    if hook is None and not _HOOK.exists():
        raise SettingsError("no hook settings: name them with --hook FILE or in $FOREWARN_HOOK")
    return hook or _HOOK


def _settings(hook: Path | None) -> "HookSettings":
    from remediation.hook_settings import load_hook_settings

    return load_hook_settings(_hook_file(hook))


def _now() -> datetime:
    from features.clock import utc_now

    return utc_now()


def _core_tables(installation: Path) -> "ClusterReader":
    from pipelines.flow.remediate import StoredCluster
    from pipelines.settings import load_settings

    return StoredCluster(load_settings(installation))


def _node(hook: Path | None, node: str) -> "NodeView":
    from remediation.program.parts import open_ports
    from remediation.program.requests import node_now

    return node_now(open_ports(_settings(hook), core_tables=_core_tables).actuator, node)


def _ask(what: str, hook: Path | None, actor: str | None, **about: Any) -> None:
    from remediation.program.requests import Asking, ask, person

    asking = Asking(actor=actor or person(), now=_now())
    path = ask(_settings(hook), what, asking, **about)
    typer.echo(
        f"asked as {asking.actor} ({path.stem[:8]}). The hook takes it up in its next round; see "
        f"`forewarn remediate status`"
    )


def _tell_round(made: "Round") -> None:
    if made.run is not None:
        typer.echo(render_plan(replace(made.run, messages=made.messages)))
    elif made.refused_by is None:
        typer.echo("nothing to do")
    if made.returned:
        typer.echo(f"\nBack in service: {', '.join(map(plain, made.returned))}")
    for why_not in (made.refused_by, made.stopped_by):
        if why_not is not None:
            typer.echo(f"forewarn: {plain(why_not)}", err=True)
    raise typer.Exit(made.exit_code)


def _json(values: Any) -> str:
    return json.dumps(values, indent=2, default=datetime.isoformat)
