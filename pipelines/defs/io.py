"""Dagster's I/O over the Parquet store: an asset's frame in, the partitions a consumer needs out.

No asset is defined here, and no table is written without its contract.
"""

from pathlib import Path
from typing import Final

import dagster as dg
import polars as pl

from features.contracts import TableContract
from features.errors import StructureError
from features.tables import TABLE_BY_KEY
from pipelines.landing.landed import LANDED_TABLES, Landing
from pipelines.settings import load_settings
from pipelines.storage.store import Span, TableStore

GENERATION: Final = "generation"
"""Metadata of an output: number of the latest reading in the landing that its rows rest on."""


class ParquetTables(dg.ConfigurableIOManager):
    """Stores and loads assets as tables of the Parquet store.

    Attributes:
        root: Folder of the store; of tables in a bucket, their address.
        landing_root: Folder of the landed rows, which raw tables are read from.
        settings_file: Says how the bucket is reached.
    """

    root: str
    landing_root: str
    settings_file: str = ""

    @property
    def store(self) -> TableStore:
        """The store behind it."""
        if self.root.startswith("s3://"):
            return TableStore(load_settings(Path(self.settings_file)).store_root)
        return TableStore(Path(self.root))

    def handle_output(self, context: dg.OutputContext, obj: pl.DataFrame) -> None:
        """Writes a frame to the partitions of the run, holding it against its contract."""
        contract = _contract(context.asset_key)
        span = _span(context)
        generation = context.output_metadata.get(GENERATION)
        written = self.store.write(
            contract, obj, span=span, generation=generation and int(generation.value)
        )
        context.add_output_metadata(
            {
                "rows": written.rows,
                "rejected": written.rejected,
                "files": written.files,
                "folder": dg.MetadataValue.path(str(self.store.folder(contract))),
            }
        )

    def load_input(self, context: dg.InputContext) -> pl.DataFrame:
        """Reads the partitions that the consumer's partition mapping asks for."""
        contract, span = _contract(context.asset_key), _span(context)
        if contract.asset_key.startswith("raw/") and contract.asset_key in LANDED_TABLES:
            return Landing(Path(self.landing_root)).read(contract, span=span)
        return self.store.read(contract, span=span)


def _contract(key: dg.AssetKey) -> TableContract:
    name = "/".join(key.path)
    if name not in TABLE_BY_KEY:
        raise StructureError(
            f"asset {name} has no contract; define it in features.tables before storing it"
        )
    return TABLE_BY_KEY[name]


def _span(context: dg.OutputContext | dg.InputContext) -> Span | None:
    if not context.has_asset_partitions:
        return None
    window = context.asset_partitions_time_window
    return Span(window.start, window.end)
