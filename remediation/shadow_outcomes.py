"""Outcomes: what became of a node after a would-be action, by the definition of the labels.

Pure. What would have been done is in `remediation.shadow`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import polars as pl

from features.contracts import UTC_TIME
from features.labels import LabelSpec, build_labels
from features.tables import CORE_MAINTENANCE
from remediation.cluster.reasons import PREFIX
from remediation.decision import Decision
from remediation.shadow import WouldBe

OUTCOMES: Final = ("right", "early", "late", "wrong", "unjudged")
"""`early`: the node failed before the lead was over. `late`: within one more horizon."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a node after a would-be action.

    Attributes:
        kind: One of `OUTCOMES`.
        incident: The incident that decided; None: none did.
        why: Why it is unjudged, in the words of `features.vocabulary.CENSORED_BY`.
    """

    kind: str
    incident: Mapping[str, Any] | None = None
    why: str | None = None


def place_incidents(incidents: pl.DataFrame, inventory: pl.DataFrame) -> list[dict[str, Any]]:
    """The incidents with the node each happened on, by time; those of no known node are left out.

    Args:
        incidents: core/incidents.
        inventory: core/inventory; a GPU incident that names no node happened where the GPU was.
    """
    stays: dict[str, list[tuple[datetime | None, datetime | None, str]]] = {}
    for uuid, node, start, end in inventory.select(
        "gpu_uuid", "node", "valid_from", "valid_to"
    ).iter_rows():
        stays.setdefault(uuid, []).append((start, end, node))
    found = []
    for row in incidents.sort("start", "incident_id").iter_rows(named=True):
        node = row["entity_id"] if row["entity_kind"] == "node" else row["node"]
        if node is None:
            node = next(
                (
                    place
                    for start, end, place in stays.get(row["entity_id"], [])
                    if (start is None or start <= row["start"])
                    and (end is None or row["start"] <= end)
                ),
                None,
            )
        if node is not None:
            found.append({**row, "node": node})
    return found


def hands_on(node_states: pl.DataFrame) -> pl.DataFrame:
    """Times in which a node was out of service, as core/maintenance; ours are `own_action`.

    An outage that begins with an incident is here too: at one moment the labels let the incident
    count.

    Args:
        node_states: core/node_states.
    """
    is_ours = pl.col("reason").str.starts_with(PREFIX).fill_null(value=False)
    return node_states.filter(
        pl.col("state").is_in(["drain", "down"]), pl.col("valid_from").is_not_null()
    ).select(
        "node",
        pl.col("valid_from").alias("start"),
        pl.col("valid_to").alias("end"),
        pl.when(is_ours).then(pl.lit("own_action")).otherwise(pl.lit("maintenance")).alias("kind"),
        "reason",
    )


def match(
    would_be: Sequence[WouldBe],
    *,
    incidents: pl.DataFrame,
    inventory: pl.DataFrame,
    maintenance: pl.DataFrame,
    node_states: pl.DataFrame,
    data_end: datetime,
    lead: timedelta,
) -> tuple[Outcome, ...]:
    """What became of the node of each, by the definition of the labels that models learn from.

    Right is an incident in [as_of + lead, as_of + lead + horizon). What hides the outcome before
    it is known (someone takes the node out, it leaves or is replaced, the record ends, an earlier
    failure is still open) makes it unjudged, never right or wrong.

    Args:
        would_be: Actions and alarms.
        incidents: core/incidents.
        inventory: core/inventory.
        maintenance: core/maintenance.
        node_states: core/node_states.
        data_end: Where the record ends.
        lead: The time a drain needs.

    Returns:
        One outcome for each, in order.
    """
    if not would_be:
        return ()
    placed = place_incidents(incidents, inventory)
    labels = build_labels(
        _grid(would_be),
        incidents=incidents,
        inventory=inventory,
        maintenance=pl.concat(
            [maintenance.select(*CORE_MAINTENANCE.schema), hands_on(node_states)]
        ),
        data_end=data_end,
        spec=LabelSpec(lead=lead, horizons_h=tuple({o.decision.horizon_h for o in would_be})),
    )
    by_key = {
        (row["entity_id"], row["as_of"], row["horizon_h"]): row
        for row in labels.iter_rows(named=True)
    }
    by_node: dict[str, list[dict[str, Any]]] = {}
    for one in placed:
        by_node.setdefault(one["node"], []).append(one)
    return tuple(
        _outcome(
            one.decision,
            by_key[one.decision.node, one.decision.as_of.astimezone(UTC), one.decision.horizon_h],
            by_node.get(one.decision.node, []),
            lead=lead,
        )
        for one in would_be
    )


def _grid(would_be: Sequence[WouldBe]) -> pl.DataFrame:
    rows = [("node", one.decision.node, one.decision.as_of, one.decision.node) for one in would_be]
    columns = ["entity_kind", "entity_id", "as_of", "node"]
    frame = pl.DataFrame(rows, schema=columns, orient="row").cast({"as_of": UTC_TIME})
    return frame.unique(maintain_order=True)


def window(decision: Decision, lead: timedelta) -> tuple[datetime, datetime]:
    """The time in which an incident makes a decision right: from, inclusive, and to, exclusive."""
    start = decision.as_of + lead
    return start, start + timedelta(hours=decision.horizon_h)


def _outcome(
    decision: Decision,
    label: Mapping[str, Any],
    incidents: Sequence[Mapping[str, Any]],
    *,
    lead: timedelta,
) -> Outcome:
    start, end = window(decision, lead)

    def first(low: datetime, high: datetime) -> Mapping[str, Any] | None:
        return next((one for one in incidents if low <= one["start"] < high), None)

    if label["label"] == 1:
        ids = (one for one in incidents if one["incident_id"] == label["incident_id"])
        return Outcome(kind="right", incident=next(ids))
    if label["censored_by"] == "in_lead":
        return Outcome(kind="early", incident=first(decision.as_of, start))
    if label["label"] is None:
        return Outcome(kind="unjudged", why=label["censored_by"])
    after = first(end, end + timedelta(hours=decision.horizon_h))
    return Outcome(kind="wrong" if after is None else "late", incident=after)
