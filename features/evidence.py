"""Evidence of faults: what events, node states and job ends say, each about a GPU or a node.

How evidence becomes incidents is in `features.incidents`.
"""

from datetime import timedelta
from typing import Final

import polars as pl

from features.catalogue import FaultCatalogue
from features.contracts import UTC_TIME

EVIDENCE_SCHEMA: Final = pl.Schema(
    {
        "entity_kind": pl.String(),
        "entity_id": pl.String(),
        "node": pl.String(),
        "ts": UTC_TIME,
        "fault_type": pl.String(),
        "rank": pl.Int64(),
        "detected_by": pl.String(),
        "words": pl.String(),
    }
)
"""One row per piece of evidence; the smaller `rank`, the more specific the fault type."""

BEFORE_NODE_STATE: Final = timedelta(minutes=10)
"""A GPU fault this long before its node goes down is why the node went down."""

AFTER_NODE_STATE: Final = timedelta(minutes=5)
"""Logs may be later than the scheduler: a GPU fault this soon after belongs to it too."""

# Text in a reason that names a GPU (beside its UUID): its PCI address, or an index after "GPU".
_PCI_IN_REASON: Final = r"(?i)\b((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9])?\b"
_INDEX_IN_REASON: Final = r"(?i)\bgpu[\s#:_=-]*(\d{1,2})\b"

_HOST: Final = "host"


def event_evidence(events: pl.DataFrame) -> pl.DataFrame:
    """Faults among classified events: primaries, and secondaries that are a fault when alone.

    Args:
        events: core/health_events with the columns of `FaultCatalogue.classify`.

    Returns:
        Rows of `EVIDENCE_SCHEMA`; an event whose GPU is unknown is evidence about its node.
    """
    is_fault = pl.col("role").is_in(["primary", "secondary"]) & pl.col("fault_type").is_not_null()
    is_gpu = pl.col("gpu_uuid").is_not_null()
    code = pl.when(pl.col("code").is_not_null()).then(pl.format(" {}", pl.col("code")))
    times = pl.when(pl.col("count") > 1).then(pl.format(" ({} times)", pl.col("count")))
    return events.filter(is_fault).select(
        pl.when(is_gpu).then(pl.lit("gpu")).otherwise(pl.lit("node")).alias("entity_kind"),
        pl.coalesce("gpu_uuid", "node").alias("entity_id"),
        "node",
        "ts",
        "fault_type",
        "rank",
        pl.col("kind").alias("detected_by"),
        pl.concat_str(
            _kind_in_words(),
            code.fill_null(""),
            pl.lit(" at "),
            in_words("ts"),
            times.fill_null(""),
        ).alias("words"),
    )


def state_evidence(outages: pl.DataFrame, catalogue: FaultCatalogue) -> pl.DataFrame:
    """Faults among node states: down, or drained for a reason that names a fault.

    Down without a reason the catalogue knows is a fault of the host. Planned work, our own
    actions and intervals that began before the record are no evidence; neither are signs of the
    host alone (no answer, a reboot) in an outage that began as planned work.

    Args:
        outages: Rows of `features.outages.outage_states`.
        catalogue: The catalogue that classified them.

    Returns:
        Rows of `EVIDENCE_SCHEMA` about nodes, with `reason` and `outage_start`.
    """
    is_named = pl.col("role") == "primary"
    is_unexplained = (pl.col("state") == "down") & pl.col("role").is_null()
    is_fault = (is_named | is_unexplained).fill_null(value=False)
    is_host = pl.col("fault_type").fill_null(_HOST) == _HOST
    is_work = pl.col("is_planned") & is_host
    reason = pl.format(" ({})", pl.col("reason")).fill_null(" (no reason given)")
    return outages.filter(is_fault & ~is_work & pl.col("valid_from").is_not_null()).select(
        pl.lit("node").alias("entity_kind"),
        pl.col("node").alias("entity_id"),
        "node",
        pl.col("valid_from").alias("ts"),
        pl.col("fault_type").fill_null(_HOST),
        pl.col("rank").fill_null(_unexplained_rank(catalogue)),
        pl.lit("node_state").alias("detected_by"),
        pl.concat_str(
            pl.lit("node "), "state", pl.lit(" from "), in_words("valid_from"), reason
        ).alias("words"),
        "reason",
        pl.coalesce("outage_start", "valid_from").alias("outage_start"),
    )


def job_evidence(
    jobs: pl.DataFrame, outages: pl.DataFrame, catalogue: FaultCatalogue
) -> pl.DataFrame:
    """Jobs that ended because their only node failed, where the node's states do not tell.

    Of a job on several nodes the record does not say which one failed; the node's own state does.

    Args:
        jobs: core/jobs.
        outages: Rows of `features.outages.outage_states`; a job that ended within 10 min of one
            adds nothing to it.
        catalogue: The catalogue in use.

    Returns:
        Rows of `EVIDENCE_SCHEMA` about nodes.
    """
    is_failure = (pl.col("end_state") == "NODE_FAIL") & pl.col("end").is_not_null()
    failed = jobs.filter(is_failure & (pl.col("nodes").list.len() == 1))
    node = pl.col("nodes").list.first()
    began = pl.col("outage_start").is_null() | (
        pl.col("outage_start") <= pl.col("end") + BEFORE_NODE_STATE
    )
    goes_on = pl.col("outage_end").is_null() | (
        pl.col("outage_end") > pl.col("end") - BEFORE_NODE_STATE
    )
    told = (
        failed.select("job_id", "attempt", "end", node.alias("node"))
        .join(outages.select("node", "outage_start", "outage_end"), on="node")
        .filter(began & goes_on)
    )
    failed = failed.join(told, on=["job_id", "attempt"], how="anti", maintain_order="left")
    return failed.select(
        pl.lit("node").alias("entity_kind"),
        node.alias("entity_id"),
        node.alias("node"),
        pl.col("end").alias("ts"),
        pl.lit(_HOST).alias("fault_type"),
        pl.lit(_unexplained_rank(catalogue) + 1, pl.Int64).alias("rank"),
        pl.lit("job").alias("detected_by"),
        pl.format("job {} ended by NODE_FAIL at {}", "job_id", in_words("end")).alias("words"),
    )


def move_to_gpus(
    of_nodes: pl.DataFrame,
    of_gpus: pl.DataFrame,
    inventory: pl.DataFrame,
    *,
    same_fault_within: timedelta,
) -> pl.DataFrame:
    """Gives evidence about a node to the GPU it is about, where one is known.

    A reason that names a GPU decides; else a GPU of the node with a fault of its own from 10 min
    before to 5 min after, or with the same fault up to `same_fault_within` before (of several the
    most specific fault, then the earliest). What is known for one state of an outage holds for
    its other states. The rest stays evidence about the node.

    Args:
        of_nodes: Evidence about nodes, with `reason` and `outage_start` (null: none).
        of_gpus: Evidence about GPUs.
        inventory: core/inventory, to find the GPU a reason names.
        same_fault_within: How much later a node may be taken out for a fault of its GPU.

    Returns:
        Rows of `EVIDENCE_SCHEMA`, as many as in `of_nodes`.
    """
    rows = of_nodes.with_row_index("row")
    named = _named_in_reason(rows, inventory)
    near = _with_own_fault(rows, of_gpus, same_fault_within=same_fault_within)
    found = pl.coalesce("named_gpu", "near_gpu")
    in_outage = found.drop_nulls().first().over("node", "outage_start")
    gpu_uuid = pl.coalesce(found, pl.when(pl.col("outage_start").is_not_null()).then(in_outage))
    return (
        rows.join(named, on="row", how="left", maintain_order="left")
        .join(near, on="row", how="left", maintain_order="left")
        .with_columns(gpu_uuid.alias("gpu_uuid"))
        .with_columns(
            pl.when(pl.col("gpu_uuid").is_null()).then("entity_kind").otherwise(pl.lit("gpu")),
            pl.coalesce("gpu_uuid", "entity_id").alias("entity_id"),
        )
        .select(EVIDENCE_SCHEMA.names())
    )


def _with_own_fault(
    rows: pl.DataFrame, of_gpus: pl.DataFrame, *, same_fault_within: timedelta
) -> pl.DataFrame:
    """The GPU of the node with a fault of its own near each row: columns `row`, `near_gpu`."""
    gpu_ts, ts = pl.col("gpu_ts"), pl.col("ts")
    is_near = gpu_ts.is_between(ts - BEFORE_NODE_STATE, ts + AFTER_NODE_STATE)
    is_same_fault = gpu_ts.is_between(ts - same_fault_within, ts) & (
        pl.col("fault_type") == pl.col("gpu_fault_type")
    )
    faults = of_gpus.select(
        "node",
        pl.col("entity_id").alias("near_gpu"),
        pl.col("ts").alias("gpu_ts"),
        pl.col("rank").alias("gpu_rank"),
        pl.col("fault_type").alias("gpu_fault_type"),
    )
    return (
        rows.select("row", "node", "ts", "fault_type")
        .join(faults, on="node")
        .filter(is_near | is_same_fault)
        .sort("row", "gpu_rank", "gpu_ts", "near_gpu")
        .unique("row", keep="first", maintain_order=True)
        .select("row", "near_gpu")
    )


def in_words(column: str) -> pl.Expr:
    """A time as people read it, in UTC."""
    return pl.col(column).dt.strftime("%Y-%m-%d %H:%M:%S UTC")


def _named_in_reason(rows: pl.DataFrame, inventory: pl.DataFrame) -> pl.DataFrame:
    """The GPU each reason names by UUID, PCI address or index: columns `row`, `named_gpu`."""
    stays = inventory.select(
        "gpu_uuid",
        "node",
        pl.col("slot").str.extract(r"(\d+)$").cast(pl.Int32, strict=False).alias("slot_index"),
        pl.col("pci_bus_id").str.to_lowercase().alias("slot_pci"),
        "valid_from",
        "valid_to",
    )
    began = pl.col("valid_from").is_null() | (pl.col("valid_from") <= pl.col("ts"))
    # The stay may end with the very fault: its last moment counts.
    goes_on = pl.col("valid_to").is_null() | (pl.col("ts") <= pl.col("valid_to"))
    pci = pl.col("reason").str.extract(_PCI_IN_REASON).str.to_lowercase()
    is_address = pl.col("slot_pci").str.contains(pl.col("pci") + ".", literal=True)
    is_named = _as_words("reason").str.contains(_as_words("gpu_uuid"), literal=True)
    is_address = (is_address | is_named).fill_null(value=False)
    is_index = pl.col("slot_index") == pl.col("index")
    return (
        rows.select(
            "row",
            "node",
            "ts",
            "reason",
            pci.alias("pci"),
            pl.col("reason").str.extract(_INDEX_IN_REASON).cast(pl.Int32).alias("index"),
        )
        .join(stays, on="node")
        .filter(began & goes_on & (is_address | is_index))
        # An address says more than an index, which may shift.
        .sort("row", is_address, "valid_from", nulls_last=False)
        .unique("row", keep="last", maintain_order=True)
        .select("row", pl.col("gpu_uuid").alias("named_gpu"))
    )


def _as_words(column: str) -> pl.Expr:
    """Text with a space before and after each word, so that an id is found only as a whole."""
    return pl.format(" {} ", pl.col(column).str.replace_all(r"[^A-Za-z0-9-]+", " "))


def _kind_in_words() -> pl.Expr:
    words = {"xid": "Xid", "sxid": "SXid", "off_bus": "GPU off the bus", "gsp": "GSP trouble"}
    return pl.col("kind").replace(words)


def _unexplained_rank(catalogue: FaultCatalogue) -> int:
    """Less specific than any rule."""
    return len(catalogue.rules)
