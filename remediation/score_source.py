"""Where the hook gets scores: the published folder, read with distrust, and a fake.

Who publishes is not known here; whether scores have expired is judged by a guard, at act time.
"""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal, Protocol, Self

import polars as pl
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from features.contracts import TableContract
from features.errors import SourceError, StructureError
from features.tables import GPU_SCORES, NODE_SCORES
from models.policies.warnings import WarningPolicy

LATEST: Final = "LATEST.json"
LONGEST_VALID: Final = timedelta(days=1)
_AGAIN: Final = "Publish the tick again; nothing was done on it."


@dataclass(frozen=True, kw_only=True)
class PublishedScores:
    """One tick of scores.

    Attributes:
        as_of: Moment of the scores.
        expires_at: From then on they say nothing about the present.
        model_versions: Model that gave them, by horizon in hours.
        trained_on: synthetic or real.
        node_scores: scores/node_scores, every horizon.
        gpu_scores: scores/gpu_scores, every horizon.
        policies: Warning policy for nodes by horizon, chosen with the model; absent where a
            horizon is scored by prior.
        digest: SHA-256 of the published node scores; empty: they were never a file.
    """

    as_of: datetime
    expires_at: datetime
    model_versions: Mapping[int, str]
    trained_on: str
    node_scores: pl.DataFrame
    gpu_scores: pl.DataFrame
    policies: Mapping[int, WarningPolicy] = field(default_factory=dict)
    digest: str = ""

    def is_expired(self, now: datetime) -> bool:
        """Whether they no longer hold at `now`."""
        return now >= self.expires_at


class ScoreSource(Protocol):
    """Gives the latest published scores, and never older ones."""

    def latest(self, now: datetime) -> PublishedScores:
        """The latest tick.

        Args:
            now: The present, to refuse scores from the future.

        Raises:
            SourceError: There is none, or it cannot be trusted.
        """
        ...


@dataclass(frozen=True)
class FakeScoreSource:
    """Gives the scores it was made with.

    Attributes:
        scores: The scores; None: nothing is published.
    """

    scores: PublishedScores | None

    def latest(self, now: datetime) -> PublishedScores:
        """The scores.

        Raises:
            SourceError: There are none.
        """
        if self.scores is None:
            raise SourceError(f"no scores are published at {now}")
        return self.scores


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _File(_Strict):
    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    rows: int = Field(ge=0)


class _Files(_Strict):
    node_scores: _File
    gpu_scores: _File


class _Policy(_Strict):
    threshold: float = Field(gt=0, le=1)
    n: int = Field(ge=1)
    k: int = Field(ge=1)
    tick_s: float = Field(gt=0)
    cooldown_s: float = Field(ge=0)

    @model_validator(mode="after")
    def _n_within_k(self) -> Self:
        if self.n > self.k:
            raise ValueError(f"n = {self.n} of k = {self.k} ticks can never be")
        return self


class _Latest(_Strict):
    schema_version: Literal[1] = Field(alias="schema")
    as_of: AwareDatetime
    published_at: AwareDatetime
    expires_at: AwareDatetime
    model_versions: dict[int, str] = Field(min_length=1)
    trained_on: Literal["synthetic", "real"]
    files: _Files
    coverage: float = Field(ge=0, le=1)
    policies: dict[int, _Policy] = {}


@dataclass(frozen=True)
class FolderScoreSource:
    """Reads `LATEST.json` and the Parquet files it names from one folder.

    Attributes:
        folder: The published folder.
    """

    folder: Path

    def latest(self, now: datetime) -> PublishedScores:
        """The latest tick, its checksums, contracts and times verified.

        Args:
            now: The present.

        Raises:
            SourceError: A file is absent, altered, outside the folder, breaks its contract,
                contradicts `LATEST.json`, or is from the future.
        """
        latest = self._read_latest()
        if latest.as_of > now or latest.published_at > now:
            raise SourceError(
                f"{self.folder / LATEST}: as_of {latest.as_of}, published at "
                f"{latest.published_at}, but now is {now}. Scores from the future mean that a "
                f"clock is wrong: set the clocks of publisher and hook right."
            )
        if latest.expires_at <= latest.as_of:
            raise SourceError(
                f"{self.folder / LATEST}: expires_at {latest.expires_at} is not after as_of "
                f"{latest.as_of}. {_AGAIN}"
            )
        if latest.expires_at > latest.as_of + LONGEST_VALID:
            raise SourceError(
                f"{self.folder / LATEST}: expires_at {latest.expires_at} is more than "
                f"{LONGEST_VALID} after as_of {latest.as_of}: scores so old say nothing about "
                f"the present. {_AGAIN}"
            )
        return PublishedScores(
            as_of=latest.as_of,
            expires_at=latest.expires_at,
            model_versions=latest.model_versions,
            trained_on=latest.trained_on,
            node_scores=self._read_table(NODE_SCORES, latest.files.node_scores, latest),
            gpu_scores=self._read_table(GPU_SCORES, latest.files.gpu_scores, latest),
            policies={
                horizon_h: WarningPolicy.from_dict(one.model_dump())
                for horizon_h, one in latest.policies.items()
            },
            digest=latest.files.node_scores.sha256,
        )

    def _read_latest(self) -> _Latest:
        path = self.folder / LATEST
        try:
            return _Latest.model_validate_json(path.read_bytes())
        except OSError as error:
            raise SourceError(
                f"{path}: {error.strerror}. Publish scores first, or name the folder they are "
                f"published in."
            ) from error
        except ValidationError as error:
            if any(found["loc"] == ("schema",) for found in error.errors()):
                raise SourceError(
                    f"{path}: the schema is not 1, which this program reads. Use the release that "
                    f"published it, or publish with this one."
                ) from error
            problems = "; ".join(
                f"{'.'.join(map(str, found['loc'])) or '(file)'}: {found['msg']}"
                for found in error.errors()
            )
            raise SourceError(f"{path}: {problems}. {_AGAIN}") from error

    def _read_table(self, contract: TableContract, named: _File, latest: _Latest) -> pl.DataFrame:
        path = (self.folder / named.path).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise SourceError(
                f"{self.folder / LATEST}: names {named.path!r}, which is outside the folder. "
                f"{_AGAIN}"
            )
        try:
            content = path.read_bytes()
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}. {_AGAIN}") from error
        found = hashlib.sha256(content).hexdigest()
        if found != named.sha256:
            raise SourceError(
                f"{path}: sha256 is {found[:12]}..., {LATEST} says {named.sha256[:12]}...: the "
                f"file is not the one that was published. {_AGAIN}"
            )
        try:
            frame = contract.conform(pl.read_parquet(io.BytesIO(content)))
        except (pl.exceptions.PolarsError, StructureError) as error:
            raise SourceError(f"{path}: {error}") from error
        _check_rows(frame, path=path, contract=contract, named=named, latest=latest)
        return frame


def _check_rows(
    frame: pl.DataFrame, *, path: Path, contract: TableContract, named: _File, latest: _Latest
) -> None:
    """Holds the rows against the contract and against what `LATEST.json` says of them."""
    if frame.height != named.rows:
        raise SourceError(f"{path}: {frame.height} rows, {LATEST} says {named.rows}. {_AGAIN}")
    rejects = contract.enforce(frame).rejects
    if not rejects.is_empty():
        rule, count, example = rejects.row(0)
        raise SourceError(f"{path}: {count} rows break {rule!r}, such as {example}. {_AGAIN}")
    models = dict(frame.select("horizon_h", "model_version").unique().sort(pl.all()).iter_rows())
    wrong = {h: v for h, v in models.items() if latest.model_versions.get(h) != v}
    if wrong:
        raise SourceError(
            f"{path}: models by horizon are {wrong}, {LATEST} says {latest.model_versions}. "
            f"{_AGAIN}"
        )
    for column, expected in (
        ("as_of", latest.as_of),
        ("trained_on", latest.trained_on),
    ):
        others = frame.filter(pl.col(column) != expected)
        if not others.is_empty():
            raise SourceError(
                f"{path}: {others.height} rows have {column} {others[column][0]}, {LATEST} says "
                f"{expected}. {_AGAIN}"
            )
