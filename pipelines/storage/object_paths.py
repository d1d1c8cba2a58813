"""Paths within a bucket: what the stores use of `pathlib.Path`, over an object store.

How a bucket is reached is in `pipelines.storage.object_store`.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias, TypeVar

from pipelines.sections.storage import ObjectStoreSettings
from pipelines.storage.kept_objects import KEPT
from pipelines.storage.object_store import CONNECTIONS, Bucket, Listed, S3Bucket

T = TypeVar("T")
R = TypeVar("R")

LAST_NAME: Final = "\U0010ffff"
"""Follows every name."""


@dataclass(frozen=True)
class ObjectStat:
    """What is known of an object without reading it.

    Attributes:
        st_size: Bytes.
        st_mtime: When it was put, seconds since 1970.
    """

    st_size: int
    st_mtime: float


@dataclass(frozen=True)
class ObjectPath:
    """A place in a bucket. Folders are there while something is in them, and need no making.

    Attributes:
        bucket: The bucket.
        key: Name within it, without a slash at either end.
        listed: What the listing that gave the path showed of the object.
    """

    bucket: Bucket
    key: str
    listed: Listed | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.bucket.url}/{self.key}"

    def __lt__(self, other: "ObjectPath") -> bool:
        return self.key < other.key

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(self.bucket, f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> "ObjectPath":
        """The folder."""
        return ObjectPath(self.bucket, self.key.rpartition("/")[0])

    def with_name(self, name: str) -> "ObjectPath":
        """Its neighbour of that name."""
        return self.parent / name

    def relative_to(self, folder: "Place") -> PurePosixPath:
        """The key as seen from a folder above."""
        above = folder.key if isinstance(folder, ObjectPath) else str(folder)
        return PurePosixPath(self.key).relative_to(above)

    def as_uri(self) -> str:
        """The address."""
        return str(self)

    def read_bytes(self) -> bytes:
        """The content; small objects that a listing has just shown are not fetched twice.

        Raises:
            FileNotFoundError: There is no such object.
            ObjectStoreError: Whether there is could not be found out.
        """
        if self.listed is None:
            return self.bucket.get(self.key)[0]
        name = (self.bucket.url, self.key, self.listed.tag)
        content = KEPT.get(name)
        if content is None:
            content, tag = self.bucket.get(self.key)
            KEPT.put((*name[:2], tag), content)  # it may have been replaced since it was listed
        return content

    def write_bytes(self, content: bytes) -> None:
        """Puts the content in one step."""
        self.bucket.put(self.key, content)

    def exists(self) -> bool:
        """Whether there is such an object; a folder is none."""
        return self.bucket.look(self.key) is not None

    def stat(self) -> ObjectStat:
        """Size and age, as the listing said that gave the path, or as it is now.

        Raises:
            FileNotFoundError: There is no such object.
        """
        found = self.listed or self.bucket.look(self.key)
        if found is None:
            raise FileNotFoundError(2, "no such object", str(self))
        return ObjectStat(found.size, found.modified.timestamp())

    def unlink(self, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - as pathlib.Path has it
        """Removes the object.

        Raises:
            FileNotFoundError: There is no such object.
        """
        if not missing_ok and not self.exists():
            raise FileNotFoundError(2, "no such object", str(self))
        self.bucket.delete([self.key])

    def replace(self, target: "ObjectPath") -> "ObjectPath":
        """Puts the object in another's place, which readers see whole; then the old name goes."""
        self.bucket.copy(self.key, target.key)
        self.bucket.delete([self.key])
        return target

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Does nothing: a bucket has no folders of its own."""

    def glob(self, pattern: str) -> Iterator["ObjectPath"]:
        """Objects, and folders, that match a pattern part by part.

        Args:
            pattern: As for `pathlib.Path`, without `**`.
        """
        wanted = pattern.split("/")
        above = f"{self.key}/" if self.key else ""
        literal = re.split(r"[*?\[]", wanted[0])[0]  # less is listed
        last = None
        for one in self.bucket.listing(above + literal, is_flat=len(wanted) == 1):
            key = one if isinstance(one, str) else one.key
            parts = key.removeprefix(above).rstrip("/").split("/")
            there = parts[: len(wanted)]
            if len(there) < len(wanted) or there == last:
                continue
            if all(map(fnmatchcase, there, wanted)):
                last = there
                listed = one if isinstance(one, Listed) and len(parts) == len(wanted) else None
                yield ObjectPath(self.bucket, above + "/".join(there), listed)


Place: TypeAlias = Path | ObjectPath
"""Where a file is, or a folder: on this machine, or in a bucket."""


def bucket_path(url: str, *, how: ObjectStoreSettings, local: Path) -> ObjectPath:
    """The place that `s3://bucket/prefix` names; nothing is asked of the store yet.

    Args:
        url: The address.
        how: How buckets are reached.
        local: As in `Bucket`.
    """
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return ObjectPath(S3Bucket(bucket, how, local), prefix)


def files_between(
    folder: Place, suffix: str, *, first: str = "", last: str = LAST_NAME
) -> list[Place]:
    """Files of a folder with first <= name <= last, sorted by name.

    Args:
        folder: The folder.
        suffix: What names end with.
        first: Smallest name.
        last: Greatest name.
    """
    if isinstance(folder, Path):
        try:
            names = os.listdir(folder)  # noqa: PTH208 - a path for each takes ten times as long
        except FileNotFoundError:
            return []
        names = sorted(n for n in names if first <= n <= last and n.endswith(suffix))
        return [folder / name for name in names]
    above = f"{folder.key}/"
    found: list[Place] = []
    # Names come in order: listing begins just before the first and ends after the last.
    for one in folder.bucket.listing(above, after=above + first[:-1], is_flat=True):
        if isinstance(one, str):
            continue
        name = one.key.removeprefix(above)
        if name > last:
            break
        if name >= first and name.endswith(suffix):
            found.append(ObjectPath(folder.bucket, one.key, one))
    return found


def version_word(file: Place) -> str:
    """Changes when the file is replaced; costs no request for a path from a listing."""
    if isinstance(file, Path):
        stat = file.stat()
        return f"{stat.st_size} {stat.st_mtime_ns}"
    listed = file.listed or file.bucket.look(file.key)
    if listed is None:
        raise FileNotFoundError(2, "no such object", str(file))
    return listed.tag


def at_once(function: Callable[[T], R], items: Iterable[T], *, where: Place) -> list[R]:
    """Calls a function for each item, in order; in a bucket, several at once.

    Args:
        function: What is done.
        items: To what.
        where: The place that is worked on.
    """
    todo = list(items)
    if isinstance(where, Path) or len(todo) < 2:
        return [function(item) for item in todo]
    with ThreadPoolExecutor(min(CONNECTIONS, len(todo))) as pool:
        under_way = [pool.submit(function, item) for item in todo]
        try:
            return [one.result() for one in under_way]
        except BaseException:
            # A store that is lost is asked for thousands of objects no more.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def move_file(names: tuple[Place, Place]) -> None:
    """Gives a file another name in its folder or bucket, in place of what has that name.

    Args:
        names: The name so far and the new one, both on this machine or both in the same bucket.
    """
    old, new = names
    old.replace(new)  # type: ignore[arg-type]  # of one kind


def read_all(files: Sequence[Place]) -> list[bytes]:
    """The content of each file."""
    return at_once(lambda file: file.read_bytes(), files, where=files[0]) if files else []


def remove_folders(folder: Place) -> None:
    """Removes the folders in a folder, with all that is in them; its own files stay."""
    if isinstance(folder, Path):
        import shutil

        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        return
    above = f"{folder.key}/"
    keys = [one.key for one in folder.bucket.listing(above) if isinstance(one, Listed)]
    folder.bucket.delete([key for key in keys if "/" in key.removeprefix(above)])


def lock_path(folder: Place, name: str) -> Path:
    """The file that writers of a folder lock; for a bucket it lies on this machine."""
    if isinstance(folder, Path):
        return folder / name
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return folder.bucket.local / "locks" / f"{folder.name}-{digest}{name}"
