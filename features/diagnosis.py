"""What is known ten minutes into an incident: the rule's verdict, and the signs around the onset.

What the signs mean is learned in `models.faults.diagnosis`; nothing at or after `DIAGNOSED_AFTER`
past the onset is looked at, so that a verdict could have been given while people still ask for one.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import polars as pl

from features.catalogue import EVENT_GROUPS, FaultCatalogue
from features.core_tables import CoreTables
from features.evidence import EVIDENCE_SCHEMA, event_evidence, job_evidence, state_evidence
from features.outages import outage_states
from features.vocabulary import FAULT_TYPES

DIAGNOSED_AFTER: Final = timedelta(minutes=10)
"""From the onset to the verdict: node states and the logs of other hosts are minutes late."""

RULE_TYPE: Final = "rule_type"
SECOND_RULE_TYPE: Final = "second_rule_type"
TELEMETRY_AS_OF: Final = "telemetry_as_of"
"""The last full five minutes before the verdict: the feature engine counts in such buckets."""

_AROUND: Final = timedelta(minutes=10)
_BEFORE: Final = timedelta(hours=24)
_HOST_KINDS: Final = ("link", "aer", "mce", "edac", "hung_task", "oom")


def diagnosis_features() -> tuple[str, ...]:
    """Columns of signs that `build_diagnosis` gives, in order."""
    return (
        "is_gpu",
        *(f"is_rule_{name}" for name in FAULT_TYPES),
        *(f"own_{group}_events" for group in EVENT_GROUPS),
        *(f"others_{group}_events" for group in EVENT_GROUPS),
        *(f"node_{kind}_events_24h" for kind in _HOST_KINDS),
        "own_events_24h",
        "is_down",
        "is_drained",
        "jobs_lost",
    )


def build_diagnosis(
    incidents: pl.DataFrame, tables: CoreTables, *, catalogue: FaultCatalogue
) -> pl.DataFrame:
    """The rule's verdict and the signs of each incident, as known ten minutes after its onset.

    The rule is the catalogue's: of the evidence up to then about the GPU or its node, the most
    specific. It may differ from the incident's own `fault_type`, which later evidence has typed.

    Args:
        incidents: core/incidents; those whose node is not known are left out.
        tables: health_events, node_states and jobs are used.
        catalogue: What events and reasons mean.

    Returns:
        One row per incident in order: `incident_id`, `entity_kind`, `entity_id`, `node`, `as_of`
        (onset + 10 min), `telemetry_as_of`, `rule_type`, `second_rule_type` (null: only
        one type is in evidence), and
        the columns of `diagnosis_features` as Float32.
    """
    cases = incidents.filter(pl.col("node").is_not_null()).select(
        "incident_id",
        "entity_kind",
        "entity_id",
        "node",
        "start",
        (pl.col("start") + DIAGNOSED_AFTER).alias("as_of"),
        (pl.col("start") + DIAGNOSED_AFTER).dt.truncate("5m").alias(TELEMETRY_AS_OF),
    )
    events = catalogue.classify(tables.health_events)
    outages = outage_states(tables.node_states, catalogue)
    parts = (
        _rule_types(cases, _evidence(events, outages, tables.jobs, catalogue=catalogue)),
        _event_signs(cases, events),
        _state_signs(cases, outages),
        _job_signs(cases, tables.jobs),
    )
    rows = cases
    for part in parts:
        rows = rows.join(part, on="incident_id", how="left", maintain_order="left")
    signs = [
        (pl.col("entity_kind") == "gpu").alias("is_gpu"),
        *((pl.col(RULE_TYPE) == name).alias(f"is_rule_{name}") for name in FAULT_TYPES),
    ]
    return rows.with_columns(signs).select(
        *cases.drop("start").columns,
        RULE_TYPE,
        SECOND_RULE_TYPE,
        *(pl.col(name).cast(pl.Float32).fill_null(0.0) for name in diagnosis_features()),
    )


def with_telemetry(
    cases: pl.DataFrame, matrix: pl.DataFrame, *, names: Sequence[str]
) -> pl.DataFrame:
    """Adds matrix columns: the GPU's own, and for a node's incident the median of its GPUs.

    Args:
        cases: Rows of `build_diagnosis`.
        matrix: features/gpu_matrix at the cases' `telemetry_as_of`, with every GPU of their nodes.
        names: Columns to add.

    Returns:
        The cases in order; null where the matrix has no row.
    """
    moved = matrix.rename({"as_of": TELEMETRY_AS_OF})
    own = moved.select("entity_id", TELEMETRY_AS_OF, *names)
    of_node = moved.group_by("node", TELEMETRY_AS_OF).agg(pl.col(names).median())
    gpus = cases.filter(pl.col("entity_kind") == "gpu").join(
        own, on=["entity_id", TELEMETRY_AS_OF], how="left"
    )
    nodes = cases.filter(pl.col("entity_kind") == "node").join(
        of_node, on=["node", TELEMETRY_AS_OF], how="left"
    )
    both = pl.concat([gpus, nodes]).select("incident_id", *names)
    return cases.join(both, on="incident_id", how="left", maintain_order="left")


def _evidence(
    events: pl.DataFrame, outages: pl.DataFrame, jobs: pl.DataFrame, *, catalogue: FaultCatalogue
) -> pl.DataFrame:
    parts = (
        event_evidence(events),
        state_evidence(outages, catalogue),
        job_evidence(jobs, outages, catalogue),
    )
    return pl.concat([part.select(EVIDENCE_SCHEMA.names()) for part in parts])


def _rule_types(cases: pl.DataFrame, evidence: pl.DataFrame) -> pl.DataFrame:
    """The two most specific types in evidence about the entity, or its node as a whole."""
    pieces = evidence.select("node", "ts", "fault_type", "rank", pl.col("entity_id").alias("about"))
    is_known = pl.col("ts").is_between(pl.col("start") - _AROUND, pl.col("as_of"), closed="left")
    is_about = (pl.col("about") == pl.col("entity_id")) | (pl.col("about") == pl.col("node"))
    types = (
        cases.join(pieces, on="node")
        .filter(is_known & is_about)
        .group_by("incident_id", "fault_type")
        .agg(pl.col("rank").min())
        .sort("incident_id", "rank", "fault_type")
    )
    return types.group_by("incident_id", maintain_order=True).agg(
        pl.col("fault_type").first().alias(RULE_TYPE),
        pl.col("fault_type").get(1, null_on_oob=True).alias(SECOND_RULE_TYPE),
    )


def _event_signs(cases: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Counts of events: of the entity and of others around the onset, and in the day before."""
    near = cases.select("incident_id", "entity_id", "node", "start", "as_of").join(
        events.select("node", "gpu_uuid", "ts", "group", "kind"), on="node"
    )
    near = near.filter(pl.col("ts") < pl.col("as_of"), pl.col("ts") >= pl.col("start") - _BEFORE)
    is_around = pl.col("ts") >= pl.col("start") - _AROUND
    is_own = (pl.col("gpu_uuid") == pl.col("entity_id")).fill_null(value=False)
    is_other = pl.col("gpu_uuid").is_not_null() & ~is_own
    in_group = {group: pl.col("group") == group for group in EVENT_GROUPS}
    return near.group_by("incident_id").agg(
        *(
            (is_around & is_own & here).sum().alias(f"own_{group}_events")
            for group, here in in_group.items()
        ),
        *(
            (is_around & is_other & here).sum().alias(f"others_{group}_events")
            for group, here in in_group.items()
        ),
        *((pl.col("kind") == kind).sum().alias(f"node_{kind}_events_24h") for kind in _HOST_KINDS),
        is_own.sum().alias("own_events_24h"),
    )


def _state_signs(cases: pl.DataFrame, outages: pl.DataFrame) -> pl.DataFrame:
    """Whether the node went down, or was drained, from ten minutes before the onset on."""
    states = cases.select("incident_id", "node", "start", "as_of").join(
        outages.select("node", "state", "valid_from"), on="node"
    )
    is_near = pl.col("valid_from").is_between(
        pl.col("start") - _AROUND, pl.col("as_of"), closed="left"
    )
    return (
        states.filter(is_near)
        .group_by("incident_id")
        .agg(
            (pl.col("state") == "down").any().alias("is_down"),
            (pl.col("state") == "drain").any().alias("is_drained"),
        )
    )


def _job_signs(cases: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """How many jobs of the node ended badly from ten minutes before the onset on."""
    bad = jobs.filter(
        pl.col("end_state").is_in(["NODE_FAIL", "FAILED"]), pl.col("end").is_not_null()
    )
    ended = cases.select("incident_id", "node", "start", "as_of").join(
        bad.select(pl.col("nodes").alias("node"), "end").explode("node"), on="node"
    )
    is_near = pl.col("end").is_between(pl.col("start") - _AROUND, pl.col("as_of"), closed="left")
    return ended.filter(is_near).group_by("incident_id").agg(pl.len().alias("jobs_lost"))
