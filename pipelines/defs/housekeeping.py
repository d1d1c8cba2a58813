"""The asset that removes what is over and compacts the rest, once a day.

What is removed and merged is decided in `pipelines.retention.chores` and its areas.
"""

from collections.abc import Sequence

import dagster as dg

from pipelines.defs.dagster_history import dagster_area
from pipelines.defs.resources import Installation
from pipelines.defs.table_look import LANDING_POOL, TableLook
from pipelines.retention.areas import areas_of
from pipelines.retention.chores import Done, in_words, retain, sizes


def housekeeping_assets(look: TableLook) -> Sequence[dg.AssetsDefinition]:
    """The housekeeping asset of one installation.

    Args:
        look: How it is shown.
    """

    @dg.asset(
        key=["monitoring", "housekeeping"],
        group_name="monitoring",
        owners=list(look.owners),
        # With those that land: the journal has one writer.
        pool=LANDING_POOL,
        description="Removes what is over, by the retention settings, and compacts small files.",
    )
    def housekeeping(
        context: dg.AssetExecutionContext, installation: Installation
    ) -> dg.MaterializeResult[None]:
        settings, now = installation.settings, installation.now
        history = dagster_area(context.instance, now=now, days=settings.retention.dagster_days)
        before = sizes(settings.data_root)
        done = retain(settings, [*areas_of(settings, now=now), history], now=now)
        after = sizes(settings.data_root)
        return dg.MaterializeResult(metadata=_metadata(done, before, after))

    return [housekeeping]


def _metadata(
    done: Done, before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> dict[str, dg.MetadataValue]:
    """Bytes by family before and after, what was done, and what could not be."""
    nothing = (0, 0)
    lines = ["| | files before | after | MB before | after |", "|---|--:|--:|--:|--:|"]
    for family in sorted({*before, *after}):
        (files, size), (files_now, size_now) = (
            before.get(family, nothing),
            after.get(family, nothing),
        )
        lines.append(
            f"| {family} | {files:,} | {files_now:,} | {size / 1e6:.1f} | {size_now / 1e6:.1f} |"
        )
    n_changes = sum(len(changes) for changes in done.changes.values())
    return {
        "by family": dg.MetadataValue.md("\n".join(lines)),
        "bytes": dg.MetadataValue.int(sum(size for _, size in after.values())),
        "bytes before": dg.MetadataValue.int(sum(size for _, size in before.values())),
        "files": dg.MetadataValue.int(sum(files for files, _ in after.values())),
        "changes": dg.MetadataValue.int(n_changes),
        "areas left": dg.MetadataValue.int(len(done.problems)),
        "what was done": dg.MetadataValue.md(f"```\n{in_words(done, is_plan=False)}\n```"),
    }
