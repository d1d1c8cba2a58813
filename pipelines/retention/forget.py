"""Removes what is kept of a person: job records, their output and metrics, examples of refusals.

Who was forgotten stays known as keyed hashes (`pipelines.landing.forgotten`), so that reading the
same input again does not bring them back. Who a person is to the tables is in
`pipelines.retention.forget_person`. What stays, and why, is in docs/retention.md.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Final

import polars as pl

from features.contracts import TableContract
from features.raw_tables import (
    RAW_JOB_LOG,
    RAW_JOB_OUTPUT,
    RAW_NODE_STATES,
    RAW_TRAINING_METRICS,
)
from features.tables import CORE_JOBS, CORE_NODE_STATES, CORE_TRAINING_METRICS
from pipelines.landing.forgotten import forgotten_of, keep_forgotten, without_actor
from pipelines.landing.ingest import landing_of
from pipelines.retention.compaction_landing import LandingCompactor
from pipelines.retention.forget_examples import hide_in_journal, hide_in_tables
from pipelines.retention.forget_person import Person, person_of
from pipelines.settings import Settings
from pipelines.storage.store import TableStore

RECEIPTS: Final = "forgotten_receipts.jsonl"
_STATES: Final = (RAW_NODE_STATES, CORE_NODE_STATES)
_JOBS: Final = (RAW_JOB_LOG, CORE_JOBS)
_ORDER: Final = (
    (
        (RAW_JOB_OUTPUT, RAW_TRAINING_METRICS, RAW_NODE_STATES),
        (CORE_TRAINING_METRICS, CORE_NODE_STATES),
    ),
    ((RAW_JOB_LOG,), (CORE_JOBS,)),
)
"""Tables as received and as built from them; last the job records, by which the rest is found."""
_STAYS: Final = (
    "the hook's ledger: an account of actions, with ids of jobs and who approved or stopped them",
    "models: they hold no rows; features: numbers of GPUs",
    "kernel lines, which may name processes and user ids, for retention.landing_days",
    "the first line of each health event, which may do so, for retention.history_days",
    "words of core/incidents about a job or a state, until the table is built again",
    "errors that quote a record: in Dagster's log for retention.dagster_days, and on stderr",
    "what killed processes left, for retention.spool_days",
    "paths of files that were read, in accounts of reading; names that others gave their jobs",
    "the site's own files, which are its own",
)


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What was removed.

    Attributes:
        at: When.
        person: Start of the hash that stands for the person; the receipt does not name them.
        n_jobs: Their jobs.
        removed: Rows removed, or cleared of the name, by place.
        is_done: Whether it was done; False: it was only counted.
    """

    at: datetime
    person: str
    n_jobs: int
    removed: Mapping[str, int]
    is_done: bool


@dataclass(frozen=True)
class Traces:
    """Where a person is found in an installation.

    Attributes:
        settings: The installation.
        name: The user's name, or the token that stands for it.
        person: The person, as known so far.
        now: The present.
        removed: Rows found or removed so far, by place.
    """

    settings: Settings
    name: str
    person: Person
    now: datetime
    removed: dict[str, int] = field(default_factory=dict)

    def count(self) -> Receipt:
        """Counts what `remove` would remove."""
        for received, built in _ORDER:
            for part in self._landed(received):
                self._note(part.place, part.n_theirs)
            for table in self._stored(built):
                self._note(table.contract.asset_key, table.n_theirs)
        root, store = self.settings.landing_root, TableStore(self.settings.store_root)
        self._note("examples, landing", hide_in_journal(root, self.person.words, is_done=False))
        self._note("examples, tables", hide_in_tables(store, self.person.words, is_done=False))
        return Receipt(
            at=self.now,
            person="",
            n_jobs=len(self.person.jobs),
            removed=self.removed,
            is_done=False,
        )

    def remove(self) -> Receipt:
        """Removes them.

        The hashes are kept first, so that nothing that lands meanwhile brings it back; job records,
        by which all else is found, go last, so that the next call finds what a kill has left.

        Raises:
            DataError: Another process is ingesting.
        """
        with landing_of(self.settings).writer():
            # Whose jobs are theirs is looked up again: one may have landed meanwhile.
            person = person_of(self.settings, self.name)
            return replace(self, person=person, removed={})._remove()  # noqa: SLF001 - our own

    def _remove(self) -> Receipt:
        root, store = self.settings.landing_root, TableStore(self.settings.store_root)
        jobs = self.person.jobs | self.person.runs
        known = forgotten_of(root).with_people(self.person.names, jobs, until=self.now)
        keep_forgotten(root, known)
        self._note("examples, landing", hide_in_journal(root, self.person.words))
        self._note("examples, tables", hide_in_tables(store, self.person.words))
        for received, built in _ORDER:
            compactor = self._compactor()
            for part in self._landed(received):
                compactor.rewrite(part.table, part.path, part.left)
                self._note(part.place, part.n_theirs)
            compactor.remove_unneeded()
            for table in self._stored(built):
                # What it rests on is as new as before.
                generation = max(store.generations(table.contract).values(), default=0)
                store.write(table.contract, table.left, generation=generation)
                self._note(table.contract.asset_key, table.n_theirs)
        return self._receipt(known.word(min(self.person.names))[:16])

    def _compactor(self) -> LandingCompactor:
        return LandingCompactor(
            self.settings.landing_root,
            until=self.now,
            keeps_sights=True,
            states_days=self.settings.retention.history_days,
        )

    def _landed(self, contracts: Sequence[TableContract]) -> Iterator["_Part"]:
        """Landed parts with rows about the person, be they superseded."""
        compactor = self._compactor()
        for contract in contracts:
            is_theirs = self._is_theirs(contract)
            for part in compactor.parts(contract.asset_key):
                rows = compactor.rows(part.path)
                if n_theirs := rows.filter(is_theirs).height:
                    left = _left(contract, compactor.live(part.path, rows), is_theirs)
                    yield _Part(contract.asset_key, part.path, left, n_theirs)

    def _stored(self, contracts: Sequence[TableContract]) -> Iterator["_Table"]:
        """Stored tables with rows about the person."""
        store = TableStore(self.settings.store_root)
        for contract in contracts:
            is_theirs = self._is_theirs(contract)
            rows = store.read(contract) if store.has(contract) else contract.empty()
            if n_theirs := rows.filter(is_theirs).height:
                yield _Table(contract, _left(contract, rows, is_theirs), n_theirs)

    def _is_theirs(self, contract: TableContract) -> pl.Expr:
        if contract in _STATES:
            return self.person.is_actor()
        return self.person.is_job_record() if contract in _JOBS else self.person.is_of_job()

    def _note(self, place: str, n_rows: int) -> None:
        if n_rows:
            self.removed[place] = self.removed.get(place, 0) + n_rows

    def _receipt(self, person: str) -> Receipt:
        receipt = Receipt(
            at=self.now,
            person=person,
            n_jobs=len(self.person.jobs),
            removed=self.removed,
            is_done=True,
        )
        said = {**asdict(receipt), "at": self.now.isoformat()}
        with (self.settings.data_root / RECEIPTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")
        return receipt


@dataclass(frozen=True)
class _Part:
    """A landed part with rows about a person.

    Attributes:
        table: Asset key.
        path: The part.
        left: What is to be left of it.
        n_theirs: Rows about the person.
    """

    table: str
    path: str
    left: pl.DataFrame
    n_theirs: int

    @property
    def place(self) -> str:
        """The table in words."""
        return f"{self.table}, as received"


@dataclass(frozen=True)
class _Table:
    """A stored table with rows about a person; as `_Part`."""

    contract: TableContract
    left: pl.DataFrame
    n_theirs: int


def traces_of(settings: Settings, name: str, *, now: datetime) -> Traces:
    """Where a person is found.

    Args:
        settings: The installation.
        name: The user's name, or the token that stands for it.
        now: The present; what they do later is a new record.

    Raises:
        SettingsError: As in `person_of`.
    """
    return Traces(settings, name, person_of(settings, name), now)


def receipt_in_words(receipt: Receipt) -> str:
    """A receipt as people read it."""
    verb = "removed" if receipt.is_done else "to be removed"
    lines = [f"{receipt.n_jobs} jobs known of this user."]
    lines += [f"  {place}: {n_rows} rows {verb}" for place, n_rows in receipt.removed.items()]
    if not receipt.removed:
        lines.append("  nothing is kept of them")
    if receipt.is_done:
        lines.append(f"Receipt {receipt.person} of {receipt.at:%Y-%m-%d %H:%M} UTC, in {RECEIPTS}.")
    return "\n".join([*lines, "What stays:", *(f"  {one}" for one in _STAYS)])


def _left(contract: TableContract, rows: pl.DataFrame, is_theirs: pl.Expr) -> pl.DataFrame:
    """Rows without those about a person; of node states, without who set them."""
    if contract in _STATES:
        return without_actor(rows, is_theirs)
    return rows.filter(~is_theirs)
