"""Incidents: one per entity and repair, with a fault type and its evidence in words.

What counts as evidence is in `features.evidence`; what it means is in the fault catalogue.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Final

import polars as pl

from features.catalogue import FaultCatalogue
from features.core_build import REPEAT_GAP
from features.evidence import (
    EVIDENCE_SCHEMA,
    event_evidence,
    job_evidence,
    move_to_gpus,
    state_evidence,
)
from features.labels import LONGEST_OPEN
from features.outages import outage_states
from features.tables import CORE_INCIDENTS

COALESCE_WITHIN: Final = timedelta(hours=2)
"""Evidence of one entity closer together than this is one incident, unless repaired between."""

_SHOWN_EVIDENCE: Final = 5

_ROW_REMAP_XIDS: Final = (63, 64)
"""With one of these an uncorrectable memory error has used up a spare row: the remap takes effect
with a reset that no job may be near; without them a reset alone is enough (Xid catalogue, 48)."""


@dataclass
class _Case:
    """Evidence gathered for one incident so far."""

    pieces: list[Mapping[str, Any]]
    # Outage that covers or soon follows the evidence: None: there is none.
    outage: "_Outage | None" = None


@dataclass(frozen=True)
class _Outage:
    start: datetime | None
    end: datetime | None


@dataclass(frozen=True)
class _Outages:
    """The outages of each node, in order."""

    by_node: Mapping[str, Sequence[_Outage]] = field(default_factory=dict)

    def near(self, node: str | None, ts: datetime, *, within: timedelta) -> _Outage | None:
        """The outage that covers `ts`, else the first that starts at most `within` later."""
        for outage in self.by_node.get(node or "", ()):
            starts_late = outage.start is not None and outage.start > ts + within
            is_over = outage.end is not None and outage.end <= ts
            if not starts_late and not is_over:
                return outage
        return None


def build_incidents(
    health_events: pl.DataFrame,
    node_states: pl.DataFrame,
    jobs: pl.DataFrame,
    inventory: pl.DataFrame,
    *,
    catalogue: FaultCatalogue,
    coalesce_within: timedelta = COALESCE_WITHIN,
) -> pl.DataFrame:
    """Incidents of GPUs and nodes.

    Evidence about one entity is one incident while its node stays out of service, and else while
    the pieces follow each other within `coalesce_within`, for `LONGEST_OPEN` at most. Coming back
    into service ends it: the next fault is a new incident, however soon. The most specific
    evidence (first row in the catalogue) gives the fault type; secondary Xids within 5 s on the
    same GPU are added to the words only. A node's evidence goes to the GPU it is about, where that
    is known, and then makes no incident of the node.

    Args:
        health_events: core/health_events.
        node_states: core/node_states.
        jobs: core/jobs.
        inventory: core/inventory.
        catalogue: What events and reasons mean; its version is stored.
        coalesce_within: Longest pause inside one incident without an outage.

    Returns:
        core/incidents, sorted by (start, entity_id). `end` is when the outage that covers or
        follows (within `coalesce_within`) the evidence ended; null where there is none, or where
        it goes on.
    """
    events = catalogue.classify(health_events)
    outages = outage_states(node_states, catalogue)
    of_events = event_evidence(events)
    of_gpus = of_events.filter(pl.col("entity_kind") == "gpu")
    # A switch is no GPU's: its faults stay with the node.
    is_switch = pl.col("detected_by") == "sxid"
    of_nodes = of_events.filter(pl.col("entity_kind") == "node")
    movable = pl.concat(
        [
            of_nodes.filter(~is_switch),
            job_evidence(jobs, outages, catalogue),
            state_evidence(outages, catalogue),
        ],
        how="diagonal",
    )
    moved = move_to_gpus(movable, of_gpus, inventory, same_fault_within=coalesce_within)
    evidence = pl.concat([of_gpus, of_nodes.filter(is_switch), moved]).match_to_schema(
        EVIDENCE_SCHEMA
    )
    spans = _spans(outages)
    cases = _cases(evidence, spans, coalesce_within=coalesce_within)
    followers, remaps = _followers(events), _remaps(events)
    rows = [_incident(case, followers, remaps, catalogue) for case in cases]
    found = pl.DataFrame(rows, schema=CORE_INCIDENTS.schema)
    return CORE_INCIDENTS.conform(found.sort("start", "entity_id", "incident_id"))


def incident_id(entity_kind: str, entity_id: str, start: datetime, fault_type: str) -> str:
    """Stable id of an incident: the same evidence gives the same id in every run."""
    text = "|".join((entity_kind, entity_id, start.isoformat(), fault_type))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _spans(outages: pl.DataFrame) -> _Outages:
    """Distinct outages per node."""
    by_node: dict[str, list[_Outage]] = {}
    distinct = outages.select("node", "outage_start", "outage_end").unique(maintain_order=True)
    for node, start, end in distinct.iter_rows():
        by_node.setdefault(node, []).append(_Outage(start, end))
    return _Outages(by_node)


def _cases(
    evidence: pl.DataFrame, outages: _Outages, *, coalesce_within: timedelta
) -> Iterator[_Case]:
    """Groups evidence into incidents; a plain loop, because faults are few."""
    order = ["entity_kind", "entity_id", "ts", "rank", "words"]
    case: _Case | None = None
    for piece in evidence.sort(order).iter_rows(named=True):
        outage = outages.near(piece["node"], piece["ts"], within=coalesce_within)
        if case is not None and _continues(case, piece, outage, within=coalesce_within):
            case.pieces.append(piece)
            case.outage = case.outage or outage
            continue
        if case is not None:
            yield case
        case = _Case([piece], outage)
    if case is not None:
        yield case


def _continues(
    case: _Case, piece: Mapping[str, Any], outage: _Outage | None, *, within: timedelta
) -> bool:
    """Whether a piece of evidence belongs to the incident before it."""
    last = case.pieces[-1]
    is_same_entity = all(last[name] == piece[name] for name in ("entity_kind", "entity_id"))
    if not is_same_entity:
        return False
    if case.outage is not None:
        return outage == case.outage and last["node"] == piece["node"]
    # Labels take it for over by then: what still comes of a fault must not look healthy to them.
    if piece["ts"] - case.pieces[0]["ts"] > LONGEST_OPEN:
        return False
    return bool(piece["ts"] - last["ts"] <= within)


_Timeline = Mapping[str, Sequence[tuple[datetime, int | None]]]


def _followers(events: pl.DataFrame) -> _Timeline:
    """Secondary Xids that are no fault by themselves, per GPU."""
    return _timeline(events.filter(pl.col("role") == "secondary", pl.col("fault_type").is_null()))


def _remaps(events: pl.DataFrame) -> _Timeline:
    """Xids of row remaps, per GPU."""
    return _timeline(events.filter(pl.col("kind") == "xid", pl.col("code").is_in(_ROW_REMAP_XIDS)))


def _timeline(events: pl.DataFrame) -> _Timeline:
    found: dict[str, list[tuple[datetime, int | None]]] = {}
    rows = events.filter(pl.col("gpu_uuid").is_not_null()).sort("ts")
    for gpu_uuid, ts, code in rows.select("gpu_uuid", "ts", "code").iter_rows():
        found.setdefault(gpu_uuid, []).append((ts, code))
    return found


def _codes_near(timeline: Sequence[tuple[datetime, int | None]], ts: datetime) -> set[int]:
    """Codes within 5 s of a moment."""
    codes: set[int] = set()
    for at, code in timeline[bisect_left(timeline, ts - REPEAT_GAP, key=itemgetter(0)) :]:
        if at > ts + REPEAT_GAP:
            break
        codes.update(() if code is None else (code,))
    return codes


def _incident(
    case: _Case, followers: _Timeline, remaps: _Timeline, catalogue: FaultCatalogue
) -> dict[str, object]:
    """The incident row of a case."""
    first = case.pieces[0]
    best = min(case.pieces, key=lambda piece: (piece["rank"], piece["ts"]))
    return {
        "incident_id": incident_id(
            first["entity_kind"], first["entity_id"], first["ts"], best["fault_type"]
        ),
        "entity_kind": first["entity_kind"],
        "entity_id": first["entity_id"],
        "node": first["node"],
        "start": first["ts"],
        "end": case.outage.end if case.outage else None,
        "fault_type": best["fault_type"],
        "evidence": _evidence_in_words(case, followers.get(first["entity_id"], ())),
        "detected_by": best["detected_by"],
        "catalogue_version": catalogue.version,
        "needs": _needs(best, remaps.get(first["entity_id"], ()), catalogue),
    }


def _needs(
    best: Mapping[str, Any],
    remaps: Sequence[tuple[datetime, int | None]],
    catalogue: FaultCatalogue,
) -> str | None:
    """What the fault needs, by the rule that typed it; evidence without a rule says nothing."""
    if best["rank"] >= len(catalogue.rules):
        return None
    needs = catalogue.rules[best["rank"]].needs
    is_reset = needs == "reset" and best["fault_type"] == "hbm_uncorrectable"
    return "drain_reset" if is_reset and _codes_near(remaps, best["ts"]) else needs


def _evidence_in_words(case: _Case, followers: Sequence[tuple[datetime, int | None]]) -> str:
    """What the incident was concluded from, the first pieces of it."""
    words = [str(piece["words"]) for piece in case.pieces[:_SHOWN_EVIDENCE]]
    if len(case.pieces) > _SHOWN_EVIDENCE:
        words.append(f"{len(case.pieces) - _SHOWN_EVIDENCE} more")
    codes: set[int] = set()
    for piece in case.pieces[:_SHOWN_EVIDENCE]:
        codes |= _codes_near(followers, piece["ts"])
    if codes:
        words.append(f"with Xid {', '.join(map(str, sorted(codes)))}")
    return "; ".join(words)
