"""Who may write a prefix of a bucket: one installation, known by an object in it; anyone may read.

How a bucket is reached is in `pipelines.storage.object_store`; what lies under the prefix is the
stores'.
"""

import json
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

from features.errors import ForewarnError
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.file_lock import in_turn
from pipelines.storage.object_paths import ObjectPath, Place
from pipelines.storage.object_store import Bucket, Listed

_OWNER: Final = ".owner.json"
_SPOOL: Final = ".spool/"
"""Parts of Dask workers, which run elsewhere for the owner, and which the owner removes."""
_TRUSTED_S: Final = 60.0
"""So long a look holds: one request a minute, and a former owner writes no longer than that."""
_LOOKED: Final[dict[tuple[str, str, Path], float]] = {}
_LOOKING: Final = threading.Lock()


class BucketOwnerError(ForewarnError):
    """A prefix of a bucket belongs to another installation; nothing was written."""


@dataclass(frozen=True)
class Owner:
    """An installation, as it signs what it writes.

    Attributes:
        installation: Made up once for its `data_root`.
        inode: Number of the file that keeps it there: a copy of the folder has another.
        host: Machine that signed, for people; containers change theirs.
        data_root: Its folder on that machine, for people.
        since: When it signed, ISO 8601.
    """

    installation: str
    inode: int
    host: str
    data_root: str
    since: str

    def is_same(self, other: "Owner") -> bool:
        """Whether both are one installation, wherever it has been moved to."""
        return (self.installation, self.inode) == (other.installation, other.inode)

    def words(self) -> str:
        """Where it is, for people."""
        return f"{self.data_root} on {self.host}, since {self.since}"


@dataclass(frozen=True)
class OwnedBucket:
    """A bucket that is written only while this installation owns the prefix; reading needs none.

    Attributes:
        bucket: The bucket itself.
        prefix: What is owned, without a slash at either end.
        identity: File of `data_root` that makes the installation known; made where absent.
    """

    bucket: Bucket
    prefix: str
    identity: Path

    @property
    def url(self) -> str:
        """As in `Bucket`."""
        return self.bucket.url

    @property
    def local(self) -> Path:
        """As in `Bucket`."""
        return self.bucket.local

    def get(self, key: str) -> tuple[bytes, str]:
        """As in `Bucket`."""
        return self.bucket.get(key)

    def put(self, key: str, content: bytes) -> None:
        """As in `Bucket`; raises BucketOwnerError."""
        self._check(key)
        self.bucket.put(key, content)

    def put_new(self, key: str, content: bytes) -> bool:
        """As in `Bucket`; raises BucketOwnerError."""
        self._check(key)
        return self.bucket.put_new(key, content)

    def copy(self, key: str, to: str) -> None:
        """As in `Bucket`; raises BucketOwnerError."""
        self._check(to)
        self.bucket.copy(key, to)

    def delete(self, keys: list[str]) -> None:
        """As in `Bucket`; raises BucketOwnerError."""
        for key in keys:
            self._check(key)
        self.bucket.delete(keys)

    def look(self, key: str) -> Listed | None:
        """As in `Bucket`."""
        return self.bucket.look(key)

    def listing(
        self, prefix: str, *, after: str = "", is_flat: bool = False
    ) -> Iterator[Listed | str]:
        """As in `Bucket`."""
        return self.bucket.listing(prefix, after=after, is_flat=is_flat)

    def owner(self) -> Owner | None:
        """Who owns the prefix; None: nobody has written to it yet.

        Raises:
            BucketOwnerError: What is there says nothing of an owner.
        """
        path = self._place / _OWNER
        try:
            return Owner(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise BucketOwnerError(
                f"{path} is damaged: {error}. See who writes there, then remove the object: the "
                "next installation that writes owns the prefix."
            ) from error

    def us(self) -> Owner:
        """This installation, signing now."""
        installation, inode = _installation(self.identity)
        root = str(self.identity.parent.absolute())
        since = datetime.now(UTC).isoformat(timespec="seconds")
        return Owner(installation, inode, socket.gethostname(), root, since)

    def check(self) -> None:
        """Makes the prefix ours if it is nobody's.

        Raises:
            BucketOwnerError: It is another's.
            ObjectStoreError: Whose it is could not be found out.
        """
        us, owner = self.us(), self.owner()
        if owner is None:
            # Of two that find it free only one is let in; what is there then counts.
            self.bucket.put_new((self._place / _OWNER).key, _written(us))
            owner = self.owner()
        if owner is None or not owner.is_same(us):
            raise BucketOwnerError(self._refusal(us, owner))

    def take_over(self) -> None:
        """Makes the prefix ours, whoever has it; the former owner notices within a minute."""
        self.bucket.put((self._place / _OWNER).key, _written(self.us()))

    @property
    def _place(self) -> ObjectPath:
        return ObjectPath(self.bucket, self.prefix)

    def _check(self, key: str) -> None:
        """Looks who owns the prefix, unless that was seen a moment ago."""
        if key.startswith((self._place / _SPOOL).key):
            return
        name = (self.url, self.prefix, self.identity)
        with _LOOKING:
            if monotonic() - _LOOKED.get(name, -_TRUSTED_S) >= _TRUSTED_S:
                self.check()
                _LOOKED[name] = monotonic()

    def _refusal(self, us: Owner, owner: Owner | None) -> str:
        theirs = owner.words() if owner else "an installation that no longer says so"
        host = owner.host if owner else "HOST"
        copied = (
            " This data_root is a copy of that one."
            if owner and owner.installation == us.installation
            else ""
        )
        return (
            f"{self._place} is written by {theirs}; this is {us.data_root} on {us.host}. Nothing "
            f"was written: two writers would give one code to different GPUs.{copied} Name a "
            "prefix of your own as storage.tables; or, if the other will never write again: "
            f"forewarn take-over --from {host}"
        )


def owned(place: ObjectPath, *, identity: Path) -> ObjectPath:
    """The same place, written only while this installation owns all that is below it.

    Args:
        place: A prefix of a bucket.
        identity: As in `OwnedBucket`.
    """
    return ObjectPath(OwnedBucket(place.bucket, place.key, identity), place.key)


def take_over_tables(tables: Place, *, former: str) -> str:
    """Makes tables in a bucket this installation's.

    Args:
        tables: Where they are kept.
        former: Host of the present owner, which shows that the caller knows whom it shuts out.

    Returns:
        What was done, for people.

    Raises:
        BucketOwnerError: The tables lie in no bucket, or another host owns them.
    """
    if isinstance(tables, Path) or not isinstance(tables.bucket, OwnedBucket):
        raise BucketOwnerError(f"{tables} is no bucket: a folder has no owner to take over from")
    bucket = tables.bucket
    owner = bucket.owner()
    if owner is not None and owner.is_same(bucket.us()):
        return f"{tables} is this installation's already: nothing was changed."
    if owner is None or owner.host != former:
        said = owner.words() if owner else "nobody yet, so the first that writes owns it"
        raise BucketOwnerError(f"{tables} is not written by {former}: it is {said}.")
    bucket.take_over()
    return (
        f"{tables} was written by {owner.words()}; it is this installation's now. What still runs "
        f"there stops writing within {_TRUSTED_S:.0f} s. Telemetry that it landed is not here."
    )


def _written(owner: Owner) -> bytes:
    return json.dumps(asdict(owner), indent=1).encode()


def _installation(identity: Path) -> tuple[str, int]:
    """What makes an installation known, made up on the first call, and its file's number.

    Raises:
        OSError: The file can be neither read nor made.
    """
    if not identity.exists():
        identity.parent.mkdir(parents=True, exist_ok=True)
        # A lock and a rename: some network disks know no hard links. Kept through a loss of power,
        # after which another identity would be refused what this one has signed.
        with in_turn(identity.with_name(f".{identity.name}.lock")):
            if not identity.exists():
                replace_file(identity, secrets.token_hex(16).encode(), sync=True)
    return identity.read_text(encoding="ascii").strip(), identity.stat().st_ino
