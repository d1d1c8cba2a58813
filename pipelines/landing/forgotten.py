"""Who was forgotten: keyed hashes of users and of their jobs, so that what comes again is not kept.

The names themselves are nowhere. What is removed when a person is forgotten is in
`pipelines.retention.forget`; the landing asks here before it keeps a row.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import polars as pl

from features.contracts import UTC_TIME
from features.errors import DataError
from features.raw_tables import (
    RAW_JOB_LOG,
    RAW_JOB_OUTPUT,
    RAW_NODE_STATES,
    RAW_TRAINING_METRICS,
)
from pipelines.storage.atomic_files import replace_file

_FILE: Final = "forgotten.json"
_BY_JOB: Final = frozenset({RAW_JOB_OUTPUT.asset_key, RAW_TRAINING_METRICS.asset_key})
_LONGEST_JOB: Final = timedelta(days=30)
"""What a job of a forgotten person still writes after that is not kept either."""
HIDDEN: Final = "(forgotten)"
"""In the place of an example that named somebody."""
_WORDS: Final = re.compile(r"[\w.@\\-]+")
_PARTS: Final = re.compile(r"[^\W_]+")
_FILED: Final = ("submit", "start", "end", "filed_at")


@dataclass(frozen=True)
class Forgotten:
    """Who was forgotten, each until a moment: what they do later is a new record.

    Attributes:
        key: Key of the hashes.
        users: Hash of a user, as it would come from the inputs, to the moment.
        jobs: Hash of one of their jobs, or runs, to the moment.
    """

    key: bytes = b""
    users: Mapping[str, datetime] = field(default_factory=dict)
    jobs: Mapping[str, datetime] = field(default_factory=dict)

    def without(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows of a raw table without those of forgotten people; who set a node's state is nulled.

        Args:
            table: Asset key.
            frame: Its rows.
        """
        if not self.users:
            return frame
        if table == RAW_NODE_STATES.asset_key:
            is_set = _is_until("actor", self._users_in(frame, "actor"), "valid_from")
            is_named = _is_until("reason", self._named_in(frame), "valid_from")
            return without_actor(frame, is_set | is_named)
        if table == RAW_JOB_LOG.asset_key:
            is_users = _is_until("user", self._users_in(frame, "user"), *_FILED)
            is_jobs = _is_until("job_id", self._jobs_in(frame), *_FILED)
            return frame.filter(~(is_users | (pl.col("user").is_null() & is_jobs)))
        if table in _BY_JOB:
            lasting = {name: at + _LONGEST_JOB for name, at in self._jobs_in(frame).items()}
            return frame.filter(~_is_until("job_id", lasting, "ts"))
        return frame

    def without_examples(self, refusals: pl.DataFrame) -> pl.DataFrame:
        """Refusals whose examples name no forgotten person, and none of their jobs.

        Args:
            refusals: monitoring/quarantine.
        """
        if not self.users or refusals.is_empty():
            return refusals
        known = {**self.users, **self.jobs}
        is_theirs = pl.Series(
            [
                any(self.word(word) in known for word in {*names_in(text), *_PARTS.findall(text)})
                for text in refusals["example"]
            ],
            dtype=pl.Boolean,
        )
        example = pl.when(is_theirs).then(pl.lit(HIDDEN)).otherwise("example").alias("example")
        return refusals.with_columns(example)

    def with_people(
        self, users: Iterable[str], jobs: Iterable[str], *, until: datetime
    ) -> "Forgotten":
        """These, and others."""
        keyed = self if self.key else replace(self, key=secrets.token_bytes(32))
        return replace(
            keyed,
            users={**keyed.users, **{keyed.word(name): until for name in users}},
            jobs={**keyed.jobs, **{keyed.word(name): until for name in jobs}},
        )

    def word(self, name: str) -> str:
        """The hash that stands for a name."""
        digest = hmac.new(self.key, name.encode("utf-8", "surrogatepass"), hashlib.sha256)
        return digest.hexdigest()

    def _users_in(self, frame: pl.DataFrame, column: str) -> dict[str, datetime]:
        names = frame[column].unique().drop_nulls()
        return {name: at for name in names if (at := self.users.get(self.word(name)))}

    def _named_in(self, frame: pl.DataFrame) -> dict[str, datetime]:
        """Reasons that name a forgotten person."""
        found = {}
        for text in frame["reason"].unique().drop_nulls():
            known = [at for name in names_in(text) if (at := self.users.get(self.word(name)))]
            if known:
                found[text] = max(known)
        return found

    def _jobs_in(self, frame: pl.DataFrame) -> dict[str, datetime]:
        names = frame["job_id"].unique().drop_nulls()
        return {name: at for name in names if (at := self.jobs.get(self.word(whole_job(name))))}


def names_in(text: str) -> set[str]:
    """Words of a text that can be a user's name, with and without domain and punctuation.

    >>> sorted(names_in("told ann-lee."))
    ['ann-lee', 'ann-lee.', 'told']
    """
    words = set(_WORDS.findall(text))
    words |= {piece for word in words for piece in re.split(r"[@\\]", word)}
    return (words | {word.strip(".-") for word in words}) - {""}


def whole_job(job_id: str) -> str:
    """The job that an array task or a component is part of.

    >>> whole_job("123_4"), whole_job("123+1"), whole_job("llama_7b")
    ('123', '123', 'llama_7b')
    """
    number = job_id.partition("_")[0].partition("+")[0]
    return number if number.isdecimal() else job_id


def without_actor(frame: pl.DataFrame, is_theirs: pl.Expr) -> pl.DataFrame:
    """Node states of which some do not say who set them, and why: the reason may hold the name."""
    nobody = pl.lit(None, pl.String)
    return frame.with_columns(
        pl.when(is_theirs).then(nobody).otherwise(pl.col(name)).alias(name)
        for name in ("actor", "reason")
    )


def forgotten_of(root: Path) -> Forgotten:
    """Who was forgotten in a landing.

    Args:
        root: Folder of the landing.

    Raises:
        DataError: The file that says it is damaged: nothing may land, or people would come back.
    """
    path = root / _FILE
    try:
        read = json.loads(path.read_bytes())
        users, jobs = (
            {word: datetime.fromisoformat(at) for word, at in read[name].items()}
            for name in ("users", "jobs")
        )
        return Forgotten(bytes.fromhex(read["key"]), users, jobs)
    except FileNotFoundError:
        return Forgotten()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read: {error!r}. It says who was forgotten: put it back from a "
            f"backup; without it their records would be kept again."
        ) from error


def keep_forgotten(root: Path, forgotten: Forgotten) -> None:
    """Keeps who was forgotten."""
    content: dict[str, Any] = {"key": forgotten.key.hex()}
    for name, words in (("users", forgotten.users), ("jobs", forgotten.jobs)):
        content[name] = {word: at.isoformat() for word, at in sorted(words.items())}
    # Private: with its key, names can be found by trying.
    replace_file(root / _FILE, json.dumps(content, indent=1).encode(), sync=True, is_private=True)


def _is_until(column: str, names: Mapping[str, datetime], *times: str) -> pl.Expr:
    """Rows of some names whose time, the first that is known, is not later than the name's."""
    until = pl.col(column).replace_strict(
        list(names), list(names.values()), default=None, return_dtype=UTC_TIME
    )
    time = pl.coalesce(*times)
    return until.is_not_null() & (time.is_null() | (time <= until))
