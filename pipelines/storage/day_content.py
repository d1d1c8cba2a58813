"""What a day file holds: the rows of its hours, and the generation that each hour rests on.

Which files count is in `pipelines.storage.day_files`; when days are made is in
`pipelines.retention.compaction`.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl
from polars.exceptions import PolarsError

from features.contracts import TableContract
from features.errors import DataError
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.object_paths import Place

_GENERATIONS: Final = "forewarn.generations"
_EVERY_H: Final = "forewarn.every_h"
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class DayContent:
    """The rows of some hours of a day.

    Attributes:
        contract: The table.
        frame: Rows, in the order of their hours.
        generations: Start of each hour to the latest reading that its rows rest on; 0: unknown.
        every_h: One hour in so many has its rows; of the others they were removed by age.
    """

    contract: TableContract
    frame: pl.DataFrame
    generations: Mapping[datetime, int]
    every_h: int = 1

    def with_hours(self, rows: Mapping[datetime, pl.DataFrame], generation: int) -> "DayContent":
        """The day with the rows of some hours replaced."""
        others = self.frame.filter(~filed_hour(self.contract).is_in(list(rows)))
        frame = pl.concat([others, *rows.values()], how="diagonal")
        return replace(
            self,
            frame=frame.sort(filed_hour(self.contract), maintain_order=True),
            generations={**self.generations, **dict.fromkeys(rows, generation)},
        )

    def thinned(self, every_h: int) -> "DayContent":
        """The day with the rows of one hour in `every_h`, counted from midnight."""
        keeps = filed_hour(self.contract).dt.hour() % every_h == 0
        return replace(self, frame=self.frame.filter(keeps), every_h=every_h)


def filed_hour(contract: TableContract) -> pl.Expr:
    """The hour whose file a row of an hourly table belongs to."""
    time = pl.col(contract.time_column or "")
    return (time - _MICROSECOND if contract.is_end_stamped else time).dt.truncate("1h")


def write_day(path: Place, day: DayContent, *, sync: bool = False) -> None:
    """Puts a day in place, in one step; `sync` as in `replace_file`."""
    buffer = io.BytesIO()
    metadata = {
        _GENERATIONS: _as_json(day.generations),
        _EVERY_H: str(day.every_h),
    }
    day.frame.write_parquet(buffer, compression="zstd", metadata=metadata)
    replace_file(path, buffer.getvalue(), sync=sync)


def read_day(path: Place, contract: TableContract) -> DayContent:
    """Reads a day file.

    Raises:
        DataError: It is damaged.
        FileNotFoundError: It is not there.
    """
    content = path.read_bytes()
    try:
        frame = pl.read_parquet(content)
        said = pl.read_parquet_metadata(io.BytesIO(content))
        generations, every_h = _hours(said[_GENERATIONS]), int(said[_EVERY_H])
    except (PolarsError, KeyError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read: {str(error).splitlines()[0]}. Delete it and materialise its "
            f"hours again."
        ) from error
    return DayContent(contract, frame, generations, every_h)


def day_generations(said: Mapping[str, str]) -> dict[datetime, int]:
    """The generations of a day file's hours, from its metadata."""
    return _hours(said.get(_GENERATIONS, "{}"))


def kept_every_h(said: Mapping[str, str]) -> int:
    """One hour in so many has its rows, from a day file's metadata."""
    return int(said.get(_EVERY_H, "1"))


def _as_json(values: Mapping[datetime, int]) -> str:
    return json.dumps({f"{hour:%Y-%m-%dT%H}": value for hour, value in sorted(values.items())})


def _hours(text: str) -> dict[datetime, int]:
    read = json.loads(text).items()
    return {datetime.fromisoformat(hour).replace(tzinfo=UTC): value for hour, value in read}
