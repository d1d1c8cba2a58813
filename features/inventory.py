"""Builds `core/inventory`: stays of GPUs from reports of where each was seen.

How reports are read is in `pipelines.sources`; what a stay is used for is in the features.

A report is a sight: this GPU, here, then. A GPU is its UUID; node, slot, address and model are
what was true of it for a time. **A stay lasts from the first sight to the first sight that
contradicts it**: the GPU is seen elsewhere (or with another slot or address), or another GPU is
seen in its place. Without one it is open. When exactly between two sights a card was changed
nobody knows. The stay is not ended at the last sight, because a card that dies is seen no more,
and what the kernel logs about its end comes after: it would belong to nobody.

What cannot be is set aside and counted: a card that is here, there and here again within an hour
(a cloned machine, an exporter with a wrong name), or two cards that take turns at one address.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import polars as pl

from features.contracts import REJECT_SCHEMA, UTC_TIME
from features.core_build import Built
from features.stay_cuts import cut_by_declared
from features.tables import CORE_INVENTORY

MOVE_TIME: Final = timedelta(hours=1)
"""A card that leaves and is back within this time has not left: nobody is that fast."""

_ATTRIBUTES: Final = ("slot", "pci_bus_id", "model")
_SIGHT: Final = ("gpu_uuid", "node", *_ATTRIBUTES, "ts")
_PLACE: Final = ("node", "place")


def build_stays(reports: pl.DataFrame, declared: pl.DataFrame) -> Built:
    """Stays from sights, and from what the site itself declares.

    Args:
        reports: raw/inventory; order and repeats do not matter.
        declared: core/inventory as a site's own records give it. It wins where the two overlap,
            and takes slot, address and model from the reports where it says none.

    Returns:
        core/inventory, sorted by its key. Of the stays made of reports, those
        of one GPU never overlap, and at one address there is one GPU at a time.
        `rejects` counts sights that contradict others.
    """
    settled, restless = _settled(reports.select(_SIGHT))
    sights = restless.unique()
    kept, elsewhere = _without_flicker(sights, of=["gpu_uuid"], what="node")
    known = _with_known(_without_doubt(_without_doubt(kept, "slot"), "pci_bus_id"))
    has_address = pl.col("pci_bus_id").is_not_null()
    addressed, turns = _without_flicker(
        known.filter(has_address), of=["node", "pci_bus_id"], what="gpu_uuid"
    )
    # Indexes shift when a device is lost: what comes and goes there within the hour is true.
    has_slot = ~has_address & pl.col("slot").is_not_null()
    slotted, doubles = _one_at_a_time(known.filter(has_slot), of=["node", "slot"], what="gpu_uuid")
    told = pl.concat([addressed, slotted, known.filter(~has_address & ~has_slot)])
    moving, momentary = _stays_of(told)
    stays = pl.concat([settled, moving])
    if not declared.is_empty():
        is_moving = pl.col("gpu_uuid").is_in(sights["gpu_uuid"].unique().implode())
        told = pl.concat([told, reports.select(_SIGHT).filter(~is_moving)])
    made = cut_by_declared(stays, declared, told=told)
    every = pl.concat([made.declared, made.stays]).select(CORE_INVENTORY.schema.names())
    enforced = CORE_INVENTORY.enforce(every.sort(*CORE_INVENTORY.key))
    rejects = _counted(
        ("the GPU is seen on two nodes at once", elsewhere),
        ("two GPUs are seen in one place at once", pl.concat([turns, doubles])),
        ("another sight of the same moment contradicts it", momentary),
    )
    n_rejected = int(rejects["count"].sum()) + int(enforced.rejects["count"].sum())
    n_read = reports.height + declared.height
    return Built(
        enforced.frame,
        pl.concat([rejects, enforced.rejects]),
        n_read=n_read,
        n_merged=n_read - enforced.frame.height - n_rejected,
    )


def _without_flicker(
    sights: pl.DataFrame, *, of: Sequence[str], what: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Splits off sights that something was there for a moment, between sights of something else.

    Runs of one value that lie between two runs of another one, less than `MOVE_TIME` apart, are
    a contradiction, together with their neighbours. The value seen most often in it is believed
    (of equals the one seen first, then the smaller name); of the others, runs between its runs,
    and short ones at its edges, are split off.

    Args:
        sights: Sights.
        of: Columns whose value of `what` must be one at a time.
        what: The column.
    """
    single, doubles = _one_at_a_time(sights, of=of, what=what)
    in_order = single.sort(*of, "ts", what)
    new = (pl.col(what) != pl.col(what).shift(1).over(of)).fill_null(value=True)
    numbered = in_order.with_columns(new.cum_sum().over(of).alias("run"))
    runs = (
        numbered.group_by([*of, "run", what], maintain_order=True)
        .agg(pl.col("ts").min().alias("first"), pl.col("ts").max().alias("last"), pl.len())
        .sort(*of, "run")
    )
    before, after = pl.col(what).shift(1).over(of), pl.col(what).shift(-1).over(of)
    away = pl.col("first").shift(-1).over(of) - pl.col("last").shift(1).over(of)
    is_between = ((before == after) & (away < MOVE_TIME)).fill_null(value=False)
    runs = runs.with_columns(is_between.alias("is_between"))
    if not runs["is_between"].any():
        return single, doubles
    doubted = pl.col("is_between")
    touched = doubted | doubted.shift(1).over(of) | doubted.shift(-1).over(of)
    runs = runs.with_columns(touched.fill_null(value=False).alias("is_touched"))
    begins = (pl.col("is_touched") & ~pl.col("is_touched").shift(1).over(of)).fill_null(value=True)
    runs = runs.with_columns(begins.cum_sum().over(of).alias("group"))
    weights = _believed(runs.filter("is_touched"), of=of, what=what)
    is_short = pl.col("last") - pl.col("first") < MOVE_TIME
    is_other = pl.col("is_touched") & (pl.col(what) != pl.col("believed"))
    is_out = is_other & (pl.col("is_between") | is_short)
    verdicts = runs.join(weights, on=[*of, "group"], how="left", maintain_order="left").select(
        *of, "run", is_out.fill_null(value=False).alias("is_out")
    )
    judged = numbered.join(verdicts, on=[*of, "run"], how="left", maintain_order="left")
    columns = sights.columns
    out = judged.filter("is_out").select(columns)
    return judged.filter(~pl.col("is_out")).select(columns), pl.concat([doubles, out])


def _believed(runs: pl.DataFrame, *, of: Sequence[str], what: str) -> pl.DataFrame:
    """The value to believe in each group of runs: seen most often, else first, else smallest."""
    return (
        runs.group_by([*of, "group", what])
        .agg(pl.col("len").sum().alias("weight"), pl.col("first").min().alias("since"))
        .sort("weight", "since", what, descending=[True, False, False])
        .unique([*of, "group"], keep="first", maintain_order=True)
        .select(*of, "group", pl.col(what).alias("believed"))
    )


def _settled(sights: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The stays of GPUs that nothing contradicts, and the sights of all others.

    Nearly every GPU of a site is where it always was: a few sums tell that, where following each
    sight takes twenty times as long. What one GPU's stays are depends on others only by a common
    address or slot.
    """
    seen = sights.group_by("gpu_uuid", "node", *_ATTRIBUTES).agg(pl.col("ts").min())
    by_gpu = seen.group_by("gpu_uuid").agg(
        pl.col("node").n_unique().alias("n_nodes"),
        pl.max_horizontal(pl.col(name).drop_nulls().n_unique() for name in _ATTRIBUTES).alias(
            "n_values"
        ),
        pl.col("node").first(),
        pl.col(*_ATTRIBUTES).drop_nulls().first(),
        pl.col("ts").min().alias("valid_from"),
    )
    is_still = (pl.col("n_nodes") == 1) & (pl.col("n_values") <= 1)
    shared = [
        seen.drop_nulls(name)
        .group_by("node", name)
        .agg(pl.col("gpu_uuid").unique())
        .filter(pl.col("gpu_uuid").list.len() > 1)
        .select(pl.col("gpu_uuid").explode(empty_as_null=True, keep_nulls=True))
        for name in ("slot", "pci_bus_id")
    ]
    alone = by_gpu.filter(is_still).join(pl.concat(shared).unique(), on="gpu_uuid", how="anti")
    stays = alone.with_columns(
        pl.lit(None, pl.String).alias("batch"), pl.lit(None, UTC_TIME).alias("valid_to")
    )
    restless = sights.join(alone, on="gpu_uuid", how="anti")
    return stays.select(CORE_INVENTORY.schema.names()), restless


def _one_at_a_time(
    sights: pl.DataFrame, *, of: Sequence[str], what: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Splits off what contradicts another sight of the same moment.

    Of several values at one moment the one seen most often at any time is believed, of equals the
    one seen first, then the smaller one.
    """
    moments = [*of, "ts"]
    is_double = pl.col(what).n_unique().over(moments) > 1
    doubted = sights.filter(is_double)
    if doubted.is_empty():
        return sights, doubted
    weights = (
        sights.join(doubted.select(of).unique(), on=of, how="semi")
        .group_by([*of, what])
        .agg(pl.len().alias("weight"), pl.col("ts").min().alias("since"))
    )
    believed = (
        doubted.join(weights, on=[*of, what])
        .sort("weight", "since", what, descending=[True, False, False])
        .unique(moments, keep="first", maintain_order=True)
        .select(*moments, what)
    )
    kept = sights.filter(~is_double)
    right = doubted.join(believed, on=[*moments, what], how="semi")
    wrong = doubted.join(believed, on=[*moments, what], how="anti")
    return pl.concat([kept, right]), wrong


def _without_doubt(sights: pl.DataFrame, name: str) -> pl.DataFrame:
    """Forgets a slot or address that comes and goes: one source counts otherwise than another."""
    is_told = pl.col(name).is_not_null()
    kept, others = _without_flicker(sights.filter(is_told), of=["gpu_uuid", "node"], what=name)
    forgotten = others.with_columns(pl.lit(None, pl.String).alias(name))
    return pl.concat([kept, forgotten, sights.filter(~is_told)]).unique()


def _with_known(sights: pl.DataFrame) -> pl.DataFrame:
    """Fills what a sight does not say from the GPU's other sights during its time on the node.

    Sources differ in what they report; what one leaves out contradicts nothing.
    """
    in_order = sights.sort("gpu_uuid", "ts", "node", *_ATTRIBUTES, nulls_last=True)
    new = (pl.col("node") != pl.col("node").shift(1).over("gpu_uuid")).fill_null(value=True)
    run = ["gpu_uuid", "run"]
    return (
        in_order.with_columns(new.cum_sum().over("gpu_uuid").alias("run"))
        .with_columns(pl.col(*_ATTRIBUTES).forward_fill().over(run))
        .with_columns(pl.col(*_ATTRIBUTES).backward_fill().over(run))
        .drop("run")
    )


def _stays_of(sights: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Joins sights to stays; sights that another one contradicts at once are split off."""
    place = pl.coalesce("pci_bus_id", "slot")
    # Without address and slot a GPU is in nobody's way.
    placed = sights.with_columns(place.alias("place"))
    in_place = placed.sort(*_PLACE, "ts", "gpu_uuid", "slot", "model", nulls_last=True)
    occupant = pl.col("gpu_uuid")
    new = (occupant != occupant.shift(1).over(_PLACE)).fill_null(value=True)
    tenancy = pl.when(pl.col("place").is_not_null()).then(new.cum_sum().over(_PLACE))
    # Model names differ by source (some spell the memory size); they end no stay.
    same = pl.struct("node", "slot", "pci_bus_id", "tenancy")
    in_order = in_place.with_columns(tenancy.alias("tenancy")).sort(
        "gpu_uuid", "ts", "node", "slot", "pci_bus_id", "tenancy", "model", nulls_last=True
    )
    changes = same.ne_missing(same.shift(1).over("gpu_uuid"))
    stays = (
        in_order.with_columns(changes.cum_sum().over("gpu_uuid").alias("stay"))
        .group_by("gpu_uuid", "stay", maintain_order=True)
        .agg(
            pl.col("node", "slot", "pci_bus_id", "place", "model").first(),
            pl.col("ts").min().alias("valid_from"),
            pl.col("ts").max().alias("last"),
        )
        .drop("stay")
    )
    ended = _ended(stays)
    is_empty = (pl.col("valid_to") <= pl.col("valid_from")).fill_null(value=False)
    momentary = ended.filter(is_empty)
    lost = momentary.select(*_SIGHT[:-1], pl.col("valid_from").alias("ts"))
    kept = ended.filter(~is_empty).with_columns(pl.lit(None, pl.String).alias("batch"))
    return kept.select(CORE_INVENTORY.schema.names()), lost


def _ended(stays: pl.DataFrame) -> pl.DataFrame:
    """Stays with the first sight that contradicts each."""
    order = ["valid_from", "gpu_uuid", "slot", "pci_bus_id"]
    moved = pl.col("valid_from").shift(-1).over("gpu_uuid")  # they come in order of time
    replaced = pl.col("valid_from").shift(-1).over(_PLACE, order_by=order)
    slot = ["node", "slot"]
    follower = pl.col("gpu_uuid").shift(-1).over(slot, order_by=order)
    address = pl.col("pci_bus_id")
    # Addresses tell places apart; the slot does only where one of the two has no address.
    by_slot = address.is_null() | address.shift(-1).over(slot, order_by=order).is_null()
    is_taken = by_slot & (follower != pl.col("gpu_uuid")) & pl.col("slot").is_not_null()
    next_start = pl.col("valid_from").shift(-1).over(slot, order_by=order)
    taken = pl.when(is_taken & (next_start > pl.col("last"))).then(next_start)
    in_place = pl.when(pl.col("place").is_not_null()).then(replaced)
    return stays.with_columns(pl.min_horizontal(moved, in_place, taken).alias("valid_to"))


def _counted(*lost: tuple[str, pl.DataFrame]) -> pl.DataFrame:
    rows = [
        {"rule": rule, "count": rows.height, "example": str(rows.sort(_SIGHT).row(0, named=True))}
        for rule, rows in lost
        if not rows.is_empty()
    ]
    return pl.DataFrame(rows, schema=REJECT_SCHEMA)
