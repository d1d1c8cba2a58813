"""How far a hold has come: draining, drained, or stuck, from the node and the jobs on it.

Pure; what is done about it is the hook's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from remediation.cluster.state import JobView, NodeView

Stage = Literal["draining", "drained", "stuck", "not_held", "down", "unknown"]
Way = Literal["wait", "check", "undrain", "tell"]

_WAY_ON: Final[dict[Stage, Way]] = {
    "draining": "wait",
    "drained": "check",
    "stuck": "undrain",
    "not_held": "tell",
    "down": "tell",
    "unknown": "wait",
}


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a hold has come.

    Attributes:
        stage: draining; drained (no job is left, epilogs included); stuck (jobs are left after
            the bound); not_held (up, or another's); down; unknown.
        jobs: The jobs that are left.
        text: In words.
    """

    stage: Stage
    jobs: tuple[str, ...]
    text: str

    @property
    def way_on(self) -> Way:
        """What comes next. A stuck node is first offered back: it is ours, and it works."""
        return _WAY_ON[self.stage]


def progress_of(
    node: NodeView | None,
    jobs: Sequence[JobView],
    *,
    since: datetime,
    longest: timedelta,
    now: datetime,
) -> Progress:
    """Tells how far the hold of a node has come.

    Args:
        node: The node now; None: the cluster does not know it.
        jobs: The jobs on it now, those in their epilog too.
        since: When it was taken.
        longest: How long its jobs may take to end.
        now: The present.

    >>> from datetime import UTC
    >>> at = datetime(2026, 1, 5, tzinfo=UTC)
    >>> held = NodeView(name="a", state="drain", reason="forewarn:v1 ...")
    >>> one = JobView(job_id="7", nodes=("a",))
    >>> hours = [timedelta(hours=1), timedelta(hours=3)]
    >>> [progress_of(held, [one], since=at, longest=hours[0], now=at + h).stage for h in hours]
    ['draining', 'stuck']
    >>> progress_of(held, [], since=at, longest=hours[0], now=at).stage
    'drained'
    """
    left = tuple(job.job_id for job in jobs)
    waited = f"{(now - since) / timedelta(hours=1):.1f} h after it was taken"
    if node is None or node.state == "unknown":
        return Progress(stage="unknown", jobs=left, text="the node's state cannot be told")
    if node.state == "down":
        return Progress(stage="down", jobs=left, text=f"the node is down, {waited}")
    if node.owner != "forewarn":
        holder = "nobody" if node.owner == "none" else node.actor or "someone else"
        return Progress(stage="not_held", jobs=left, text=f"held by {holder}")
    if not left:
        return Progress(stage="drained", jobs=(), text=f"drained, {waited}")
    some = f"{len(left)} {'job is' if len(left) == 1 else 'jobs are'} left on it, {waited}"
    if now - since > longest:
        return Progress(stage="stuck", jobs=left, text=f"stuck: {some}")
    return Progress(stage="draining", jobs=left, text=f"draining: {some}")
