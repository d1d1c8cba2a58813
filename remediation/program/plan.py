"""Plan files: what a round would do, kept so that a person can read it and have it carried out.

A plan gives no leave of its own: what is carried out is decided and guarded anew, and the plan
only leaves out what is not in it.
"""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from features.errors import ForewarnError, SourceError
from remediation.cluster.state import ClusterState
from remediation.decision import Decision, Verdict, touches_node
from remediation.guards.judge import WATCH, Guard, GuardContext, limits, passes
from remediation.plan import plain, render_plan
from remediation.program.rehearsal import Rehearsed
from remediation.program.round import Hook, Round, run_round
from remediation.score_source import PublishedScores

_MOST_BYTES: Final = 16_000_000
_AGAIN: Final = "Nothing was done. Make a new one: forewarn remediate plan"


class PlanRefusedError(ForewarnError):
    """A plan that no longer holds; nothing was done."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedNode(_Strict):
    """What is planned for one node, and the node as it was.

    Attributes:
        decision_id: The decision.
        node: Node.
        action: What would be done.
        wanted: What the policy wants.
        score: Its score.
        sentence: All of it in one sentence.
        state: The node's state then.
        reason: The scheduler's reason then.
        boot_id: Instance and boot then.
        jobs: Jobs on it then.
        commands: What would be sent.
    """

    decision_id: str
    node: str
    action: str
    wanted: str
    score: float
    sentence: str
    state: str
    reason: str | None
    boot_id: str | None
    jobs: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]


class Plan(_Strict):
    """A plan as it is written.

    Attributes:
        schema_version: 1.
        made_at: When.
        actuator: The actuator it was made for.
        horizon_h: Horizon of the scores.
        as_of: Moment of the scores.
        expires_at: From then on neither scores nor plan hold.
        digest: SHA-256 of the published node scores.
        nodes: What is planned, in order.
        messages: What a person had to know.
    """

    schema_version: Literal[1] = 1
    made_at: AwareDatetime
    actuator: str
    horizon_h: int
    as_of: AwareDatetime
    expires_at: AwareDatetime
    digest: str
    nodes: tuple[PlannedNode, ...]
    messages: tuple[str, ...] = ()


def plan_of(rehearsed: Rehearsed, *, actuator: str) -> Plan:
    """The plan that a rehearsed round makes.

    Args:
        rehearsed: The round.
        actuator: The actuator it was rehearsed for.
    """
    run = rehearsed.run
    nodes = []
    for one in run.judged:
        decision = one.decision
        if one.is_settled or not touches_node(one.action) or decision.score is None:
            continue
        outcome, view = run.outcomes.get(decision.decision_id), run.cluster.by_name[decision.node]
        nodes.append(
            PlannedNode(
                decision_id=decision.decision_id,
                node=decision.node,
                action=one.action,
                wanted=decision.wanted,
                score=decision.score,
                sentence=decision.sentence,
                state=view.state,
                reason=view.reason,
                boot_id=view.boot_id,
                jobs=decision.jobs,
                commands=outcome.commands if outcome else (),
            )
        )
    return Plan(
        made_at=run.now,
        actuator=actuator,
        horizon_h=run.horizon_h,
        as_of=run.published.as_of,
        expires_at=run.published.expires_at,
        digest=run.published.digest,
        nodes=tuple(nodes),
        messages=rehearsed.messages,
    )


def render(rehearsed: Rehearsed) -> str:
    """The rehearsed round in words."""
    run = replace(rehearsed.run, is_dry_run=True, messages=rehearsed.messages)
    return render_plan(run)


def write_plan(plan: Plan, path: Path) -> None:
    """Writes a plan as JSON, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(plan.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def read_plan(path: Path) -> Plan:
    """Reads a plan.

    Raises:
        SourceError: It cannot be read, or is none.
    """
    try:
        with path.open("rb") as file:
            return Plan.model_validate_json(file.read(_MOST_BYTES))
    except OSError as error:
        raise SourceError(f"plan {path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "(file)"
        raise SourceError(f"plan {path}: {where}: {first['msg']}. {_AGAIN}") from error


def apply_plan(hook: Hook, plan: Plan) -> Round:
    """Carries out what is in a plan and is decided and allowed now as it was then.

    Args:
        hook: The hook.
        plan: The plan.

    Raises:
        PlanRefusedError: The plan, its scores, or one of its nodes is no longer what it was.
        ForewarnError: A part cannot be read or written.
    """
    now = hook.clock()
    _check_tick(plan, hook.scores.latest(now), actuator=hook.name, now=now)
    if not plan.nodes:
        return Round()
    _check_nodes(plan, hook.ports.cluster.read())
    return run_round(hook, more=(in_plan(plan),))


def in_plan(plan: Plan) -> Guard:
    """A guard that lets nothing pass but what a plan holds, on the scores it was made from."""
    planned = {one.decision_id: one for one in plan.nodes}

    def guard(decision: Decision, context: GuardContext) -> Verdict:
        one = planned.get(decision.decision_id)
        node = context.node(decision)
        if one is None or node is None:
            return limits("in_plan", "not in the plan", ceiling=WATCH)
        if one.wanted != decision.wanted:
            said = f"planned was {one.wanted}, now {decision.wanted} is wanted"
            return limits("in_plan", said, ceiling=WATCH)
        if (node.state, node.reason) != (one.state, one.reason):
            said = f"the node was {one.state} when it was planned and is {node.state}"
            return limits("in_plan", said, ceiling=WATCH)
        if one.action != decision.wanted:
            return limits("in_plan", f"the plan leaves {one.action}", ceiling=one.action)
        return passes("in_plan", "as planned")

    return guard


def _check_tick(plan: Plan, published: PublishedScores, *, actuator: str, now: datetime) -> None:
    if plan.actuator != actuator:
        raise PlanRefusedError(
            f"the plan was made for the actuator {plan.actuator}, this hook acts by {actuator}. "
            f"{_AGAIN}"
        )
    if now >= plan.expires_at:
        raise PlanRefusedError(
            f"the plan's scores expired at {plan.expires_at:%Y-%m-%d %H:%M} UTC. {_AGAIN}"
        )
    if (plan.digest, plan.as_of) != (published.digest, published.as_of):
        raise PlanRefusedError(
            f"the plan was made on the scores of {plan.as_of:%Y-%m-%d %H:%M} UTC; since then those "
            f"of {published.as_of:%Y-%m-%d %H:%M} UTC were published. {_AGAIN}"
        )


def _check_nodes(plan: Plan, state: ClusterState) -> None:
    for one in plan.nodes:
        node = state.by_name.get(one.node)
        if node is None:
            raise PlanRefusedError(f"the cluster no longer knows {plain(one.node)}. {_AGAIN}")
        jobs = tuple(job.job_id for job in state.jobs_on(one.node))
        was = (one.state, one.reason, one.boot_id, sorted(one.jobs))
        found = (node.state, node.reason, node.boot_id, sorted(jobs))
        for what, before, after in zip(
            ("state", "reason", "boot", "jobs"), was, found, strict=True
        ):
            if before != after:
                raise PlanRefusedError(
                    f"{plain(one.node)} changed since it was planned: {what} was "
                    f"{plain(str(before))}, is {plain(str(after))}. {_AGAIN}"
                )
