"""What every asset of a table shows and is bound by: owner, schema, kinds, its writers' pool.

The assets themselves are in the other modules of this folder.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, cast

import dagster as dg

from features.contracts import Column, TableContract
from features.tables import TABLE_BY_KEY
from pipelines.settings import Settings

_TYPES: Final = {"Datetime(time_unit='us', time_zone='UTC')": "time, UTC"}

PARQUET: Final = frozenset({"parquet"})

VITAL: Final = frozenset({"core/gpu_telemetry", "scores/gpu_scores", "scores/node_scores"})
"""What must never be old: without it nobody is warned."""

_TAG: Final = re.compile(r"[^A-Za-z0-9_.-]")

TRAINING_POOL: Final = "training"
LANDING_POOL: Final = "landing"
"""One at a time lands: the journal has one writer."""


@dataclass(frozen=True)
class TableLook:
    """How the assets of one installation are shown.

    Attributes:
        owners: Who is named as owner of each.
        site: The site, a tag of each.
        fresh_within: Longest time between two runs that make telemetry or scores.
    """

    owners: tuple[str, ...]
    site: str
    fresh_within: timedelta

    def asset(
        self, key: str, **more: Any
    ) -> Callable[[Callable[..., object]], dg.AssetsDefinition]:
        """The decorator `dagster.asset` for a table.

        Args:
            key: The table's asset key.
            more: Further arguments of it.
        """
        return cast(
            "Callable[[Callable[..., object]], dg.AssetsDefinition]",
            dg.asset(**self.spec(key), pool=pool_of(key), **more),
        )

    def spec(self, key: str) -> dict[str, Any]:
        """Arguments of `dagster.AssetSpec`, `dagster.AssetOut` or `dagster.asset` for a table."""
        return {
            "key": key.split("/"),
            "group_name": key.split("/", maxsplit=1)[0],
            "owners": list(self.owners),
            "kinds": set(PARQUET),
            "metadata": table_metadata(TABLE_BY_KEY[key]),
            "tags": {
                "forewarn/site": _TAG.sub("_", self.site)[:63],
                "forewarn/partition": TABLE_BY_KEY[key].partition,
            },
            "freshness_policy": self._freshness(key),
        }

    def _freshness(self, key: str) -> dg.FreshnessPolicy | None:
        """By when it was made; the check `fresh` judges the data's own time."""
        if key not in VITAL:
            return None
        return dg.FreshnessPolicy.time_window(
            fail_window=self.fresh_within, warn_window=self.fresh_within * 0.75
        )


def look_of(settings: Settings) -> TableLook:
    """How the assets of an installation are shown."""
    owner = settings.schedule.owner
    hours = timedelta(minutes=settings.schedule.stale_minutes)
    fresh = hours + timedelta(days=1) if settings.data_partition == "day" else hours
    return TableLook(owners=(owner,) if owner else (), site=settings.site, fresh_within=fresh)


def core_ins(*names: str) -> dict[str, dg.AssetIn]:
    """Inputs of an asset that are called as the core tables they are."""
    return {name: dg.AssetIn(["core", name]) for name in names}


def pool_of(key: str) -> str:
    """The pool of those that write a table: two runs never replace the same partition at once.

    >>> pool_of("core/gpu_telemetry")
    'write_core_gpu_telemetry'
    """
    return f"write_{key.replace('/', '_')}"


def table_metadata(table: TableContract) -> Mapping[str, Any]:
    """A table's contract as Dagster shows it."""
    columns = [_column(column, is_key=column.name in table.key) for column in table.columns]
    return {
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "dagster/table_name": table.asset_key,
        "key": ", ".join(table.key),
        "stored by": table.partition,
    }


def _column(column: Column, *, is_key: bool) -> dg.TableColumn:
    rules = [f"unit {column.unit}"] if column.unit else []
    rules += [f">= {column.minimum:g}"] if column.minimum is not None else []
    rules += [f"<= {column.maximum:g}"] if column.maximum is not None else []
    rules += [f"one of {', '.join(column.values)}"] if column.values else []
    rules += ["part of the key"] if is_key else []
    return dg.TableColumn(
        name=column.name,
        type=_TYPES.get(str(column.dtype), str(column.dtype)),
        description=column.meaning,
        constraints=dg.TableColumnConstraints(nullable=column.nullable, other=rules),
    )
