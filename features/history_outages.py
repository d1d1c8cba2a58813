"""Times in which nodes were down, told apart by length and by how many went down together.

It serves records of node states without reasons, where a rule has to say which outage was a
failure; outages with reasons are in `features.outages`.
"""

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final

import polars as pl

from features.errors import DataError
from features.history_rows import place_column, with_places
from features.tables import CORE_INCIDENTS
from features.vocabulary import FAULT_TYPES

OUTAGE_KINDS: Final = ("solo", "mass", "short")


@dataclass(frozen=True, kw_only=True)
class OutageRule:
    """Which time down is a node's own failure.

    Attributes:
        level: Level of the topology in which nodes go down together: a cluster, a rack.
        least: A shorter outage is `short`: a restart.
        together: Outages that begin in the same slice of this length are looked at together.
        most_together: With more nodes of the place in the slice the outage is `mass`: work on the
            network, power or software, not on the node.
        fault_type: Fault type of the incidents that the others, `solo`, give.

    Raises:
        DataError: A length is not positive, or the fault type is none.
    """

    level: str
    least: timedelta = timedelta(minutes=5)
    together: timedelta = timedelta(minutes=5)
    most_together: int = 2
    fault_type: str = "host"

    def __post_init__(self) -> None:
        if self.least < timedelta(0) or self.together <= timedelta(0) or self.most_together < 1:
            raise DataError(
                f"outage rule: least, together and most_together must be positive, got "
                f"{self.least}, {self.together} and {self.most_together}."
            )
        if self.fault_type not in FAULT_TYPES:
            raise DataError(
                f"outage rule: {self.fault_type!r} is no fault type; choose from "
                f"{', '.join(FAULT_TYPES)}."
            )

    @property
    def known_after(self) -> timedelta:
        """How long after its start the kind of an outage is known."""
        return max(self.least, self.together)


def classify_outages(
    node_states: pl.DataFrame, topology: pl.DataFrame, *, rule: OutageRule
) -> pl.DataFrame:
    """Every outage that began in the record, with its kind.

    Args:
        node_states: core/node_states; an outage is an unbroken time in the state down. One whose
            beginning is not known, or with which a node's record begins, is left out: nobody saw
            the node up before.
        topology: core/topology.
        rule: What makes the kinds.

    Returns:
        node, start, end (null: goes on), kind: one of `OUTAGE_KINDS`; sorted by (start, node).
        Nodes without a known place are a place of their own.
    """
    slice_start = pl.col("start").dt.truncate(rule.together)
    down = _outages(node_states)
    placed = with_places(down, topology, levels=(rule.level,), at="start")
    place = pl.coalesce(place_column(rule.level), "node")
    together = pl.col("node").n_unique().over("place", "slice")
    is_short = (pl.col("end") - pl.col("start") < rule.least).fill_null(value=False)
    return (
        placed.with_columns(place.alias("place"), slice_start.alias("slice"))
        .with_columns(
            pl.when(is_short)
            .then(pl.lit("short"))
            .when(together > rule.most_together)
            .then(pl.lit("mass"))
            .otherwise(pl.lit("solo"))
            .alias("kind")
        )
        .select("node", "start", "end", "kind")
        .sort("start", "node")
    )


def outage_incidents(outages: pl.DataFrame, *, rule: OutageRule) -> pl.DataFrame:
    """The solo outages as incidents of their nodes.

    Args:
        outages: See `classify_outages`.
        rule: Gives the fault type, and the words of the evidence.

    Returns:
        core/incidents.
    """
    words = f"down {rule.least} or more, at most {rule.most_together} of its {rule.level} together"
    named = pl.concat_str("node", pl.col("start").dt.epoch("us"), separator="|").map_elements(
        lambda text: sha256(text.encode()).hexdigest()[:16], return_dtype=pl.String
    )
    rows = outages.filter(pl.col("kind") == "solo").select(
        named.alias("incident_id"),
        pl.lit("node").alias("entity_kind"),
        pl.col("node").alias("entity_id"),
        "node",
        "start",
        "end",
        pl.lit(rule.fault_type).alias("fault_type"),
        pl.lit(words).alias("evidence"),
        pl.lit("outage rule").alias("detected_by"),
        pl.lit("outage-rule-1").alias("catalogue_version"),
    )
    absent = [name for name in CORE_INCIDENTS.schema if name not in rows.columns]
    rows = rows.with_columns(
        pl.lit(None, CORE_INCIDENTS.schema[name]).alias(name) for name in absent
    )
    return CORE_INCIDENTS.conform(rows)


def _outages(node_states: pl.DataFrame) -> pl.DataFrame:
    """Unbroken times down that follow something else: node, start, end."""
    is_down = pl.col("state") == "down"
    was_down = (pl.col("state").shift(1) == "down").over("node")
    touches = (pl.col("valid_from") == pl.col("valid_to").shift(1)).over("node")
    goes_on = (was_down & touches).fill_null(value=False)
    is_first = pl.int_range(pl.len()).over("node") == 0
    states = node_states.sort("node", "valid_from").with_columns(
        (is_down & ~goes_on).cum_sum().over("node").alias("outage"),
        is_first.alias("is_first"),
    )
    return (
        states.filter(is_down, pl.col("valid_from").is_not_null())
        .group_by("node", "outage", maintain_order=True)
        .agg(
            pl.col("valid_from").first().alias("start"),
            pl.col("valid_to").last().alias("end"),
            pl.col("is_first").first(),
        )
        .filter(~pl.col("is_first"))
        .select("node", "start", "end")
    )
