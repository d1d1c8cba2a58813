"""Who a person is to the tables: names, jobs, and the rows that are about them.

Removing the rows is in `pipelines.retention.forget`.
"""

import re
from dataclasses import dataclass

import polars as pl

from features.errors import SettingsError
from features.raw_tables import RAW_JOB_LOG
from features.tables import CORE_JOBS
from pipelines.landing.forgotten import whole_job
from pipelines.landing.ingest import landing_of
from pipelines.settings import Settings
from pipelines.sources.private_names import hash_names
from pipelines.sources.site.listing import load_inputs
from pipelines.sources.site.reading_names import hiding_key
from pipelines.storage.store import TableStore


@dataclass(frozen=True)
class Person:
    """A person and their jobs.

    Attributes:
        names: The name, and the token that stands for it where names are hidden.
        jobs: Their jobs, whole (`whole_job`).
        runs: Names of their jobs that nobody else's job has: a run may be filed under one.
    """

    names: frozenset[str]
    jobs: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()

    @property
    def words(self) -> frozenset[str]:
        """What an example must not hold."""
        return self.names | self.jobs | self.runs

    def is_job_record(self) -> pl.Expr:
        """Job records of theirs; a scheduler's steps name no user, there the job decides."""
        return _is_among("user", self.names) | (pl.col("user").is_null() & self.is_of_job())

    def is_of_job(self) -> pl.Expr:
        """Rows about one of their jobs."""
        number = pl.col("job_id").str.extract(r"^(\d+)(?:[_+].*)?$")
        whole = pl.coalesce(number, "job_id")
        return whole.is_in(list(self.jobs | self.runs)).fill_null(value=False)

    def is_actor(self) -> pl.Expr:
        """Node states that they set, or whose reason names them."""
        words = "|".join(re.escape(name) for name in sorted(self.names))
        alone = rf"(?:^|[^\w.-])[.-]*(?:{words})[.-]*(?:$|[^\w.-])"  # as `names_in` has it
        is_named = pl.col("reason").str.contains(alone)
        return _is_among("actor", self.names) | is_named.fill_null(value=False)


def person_of(settings: Settings, name: str) -> Person:
    """A person as the landed and stored job records know them.

    Args:
        settings: The installation.
        name: The user's name, or the token that stands for it.

    Raises:
        SettingsError: The name is empty, or the list of inputs cannot be used.
    """
    if not (name := name.strip()):
        raise SettingsError("forget: a user's name is needed, got an empty one")
    names = {name}
    inputs = load_inputs(settings.inputs)
    if (key := hiding_key(inputs)) is not None:
        one = pl.DataFrame({"user": [name]})
        names |= set(hash_names(one, columns=["user"], key=key)["user"])
    landed, store = landing_of(settings).read(RAW_JOB_LOG), TableStore(settings.store_root)
    is_theirs = _is_among("user", names)
    jobs = set(landed.filter(is_theirs)["job_id"])
    if store.has(CORE_JOBS):
        jobs |= set(store.read(CORE_JOBS).filter(is_theirs)["job_id"])
    others = set(landed.filter(~is_theirs, pl.col("user").is_not_null())["job_name"].drop_nulls())
    runs = set(landed.filter(is_theirs)["job_name"].drop_nulls()) - others
    return Person(frozenset(names), frozenset(map(whole_job, jobs)), frozenset(runs))


def _is_among(column: str, names: frozenset[str] | set[str]) -> pl.Expr:
    return pl.col(column).is_in(list(names)).fill_null(value=False)
