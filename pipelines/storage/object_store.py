"""A bucket of an S3-compatible object store: whole objects in and out, one error for what fails.

Paths within a bucket are in `pipelines.storage.object_paths`; what the objects mean is known to the
stores.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

from features.errors import ForewarnError, SettingsError
from pipelines.sections.secret_source import read_secret
from pipelines.sections.storage import ObjectStoreSettings

CONNECTIONS: Final = 16
"""Requests that are under way at once: latency of a store is ten times that of a disk."""
_MOST_DELETED: Final = 1000  # keys of one request, by the protocol
_ABSENT: Final = "NoSuchKey"
"""What a store says; a bare 404 is said by whatever else answers at a wrong address."""
_THERE: Final = ("PreconditionFailed", "ConditionalRequestConflict")
"""What it says to a put that only counts where nothing is: something is, or is being put."""
_NO_ENTRY: Final = (
    *("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"),
    *("InvalidToken", "Forbidden", "403"),
)
_OPENING: Final = threading.Lock()


class ObjectStoreError(ForewarnError):
    """The object store cannot be reached, or refuses; this says nothing of what it holds."""


@dataclass(frozen=True)
class Listed:
    """An object as a listing shows it.

    Attributes:
        key: Its whole name in the bucket.
        size: Bytes.
        modified: When it was put.
        tag: Changes with its content.
    """

    key: str
    size: int
    modified: datetime
    tag: str


class Bucket(Protocol):
    """Named objects, each put, read and removed whole; a listing shows what was put before it."""

    @property
    def url(self) -> str:
        """The bucket's address, such as `s3://fleet`."""
        ...

    @property
    def local(self) -> Path:
        """A folder of this machine for locks of writers and for what need not be read twice."""
        ...

    def get(self, key: str) -> tuple[bytes, str]:
        """An object's content and its tag; FileNotFoundError where there is none."""
        ...

    def put(self, key: str, content: bytes) -> None:
        """Puts an object in one step: readers see the old content or the new one."""
        ...

    def put_new(self, key: str, content: bytes) -> bool:
        """Puts an object unless there is one of that name; whether it was put."""
        ...

    def copy(self, key: str, to: str) -> None:
        """Copies an object within the bucket; FileNotFoundError where there is none."""
        ...

    def delete(self, keys: list[str]) -> None:
        """Removes objects; those that are not there do not matter."""
        ...

    def look(self, key: str) -> Listed | None:
        """What a listing would show of an object."""
        ...

    def listing(
        self, prefix: str, *, after: str = "", is_flat: bool = False
    ) -> Iterator[Listed | str]:
        """Objects whose key begins with `prefix`, sorted by key.

        Args:
            prefix: What keys begin with.
            after: Only keys greater than it.
            is_flat: Gives folders, each as the prefix of its objects, in place of what is in them.
        """
        ...


@dataclass(frozen=True)
class S3Bucket:
    """A bucket reached by the S3 protocol. Sent to other processes, it takes no secret along.

    Attributes:
        name: Its name.
        how: How it is reached.
        local: As in `Bucket`.
    """

    name: str
    how: ObjectStoreSettings
    local: Path = field(compare=False)

    @property
    def url(self) -> str:
        """As in `Bucket`."""
        return f"s3://{self.name}"

    def get(self, key: str) -> tuple[bytes, str]:
        """As in `Bucket`."""
        from botocore.exceptions import HTTPClientError, IncompleteReadError

        tries_left = self.how.attempts
        while True:
            tries_left -= 1
            with self._one_error("read", key, is_object=True):
                answer = self._client.get_object(Bucket=self.name, Key=key)
                _ = answer["ContentLength"]  # without it, half of an object passes for the whole
                try:
                    return bytes(answer["Body"].read()), str(answer["ETag"])
                except (HTTPClientError, IncompleteReadError):
                    # The SDK tries requests again, not content that ends early.
                    if not tries_left:
                        raise

    def put(self, key: str, content: bytes) -> None:
        """As in `Bucket`."""
        with self._one_error("write", key):
            _ = self._client.put_object(Bucket=self.name, Key=key, Body=content)["ETag"]

    def put_new(self, key: str, content: bytes) -> bool:
        """As in `Bucket`; a store that does not know the condition is given it without."""
        from botocore.exceptions import ClientError

        with self._one_error("write", key):
            try:
                put = self._client.put_object
                _ = put(Bucket=self.name, Key=key, Body=content, IfNoneMatch="*")["ETag"]
            except ClientError as error:
                code = error.response.get("Error", {}).get("Code")
                if code == "NotImplemented":
                    self.put(key, content)
                elif code in _THERE:
                    return False
                else:
                    raise
        return True

    def copy(self, key: str, to: str) -> None:
        """As in `Bucket`."""
        with self._one_error("copy", key, is_object=True):
            source = {"Bucket": self.name, "Key": key}
            answer = self._client.copy_object(Bucket=self.name, Key=to, CopySource=source)
            _ = answer["CopyObjectResult"]["ETag"]

    def delete(self, keys: list[str]) -> None:
        """As in `Bucket`.

        Raises:
            ObjectStoreError: Some could not be removed.
        """
        for first in range(0, len(keys), _MOST_DELETED):
            some = keys[first : first + _MOST_DELETED]
            with self._one_error("remove", some[0]):
                answer = self._client.delete_objects(
                    Bucket=self.name, Delete={"Objects": [{"Key": key} for key in some]}
                )
                # Each is named: an answer that names none has removed none.
                left = dict.fromkeys(some, "not in the answer")
                left |= {one["Key"]: one["Code"] for one in answer.get("Errors", ())}
                for one in answer.get("Deleted", ()):
                    left.pop(one["Key"], None)
            if failed := [key for key, code in left.items() if code != _ABSENT]:
                cause = f"{left[failed[0]]}, with {len(failed)} objects"
                raise self._error("remove", failed[0], cause)

    def look(self, key: str) -> Listed | None:
        """As in `Bucket`."""
        # A listing tells a bucket that is not there from an object that is not; a HEAD does not.
        for one in self.listing(key):
            return one if isinstance(one, Listed) and one.key == key else None
        return None

    def listing(
        self, prefix: str, *, after: str = "", is_flat: bool = False
    ) -> Iterator[Listed | str]:
        """As in `Bucket`."""
        asked: dict[str, Any] = {"Bucket": self.name, "Prefix": prefix}
        if after:
            asked["StartAfter"] = after
        if is_flat:
            asked["Delimiter"] = "/"
        while True:
            with self._one_error("list", prefix):
                page = self._client.list_objects_v2(**asked)
                found: list[tuple[str, Listed | str]] = [
                    (one["Key"], Listed(one["Key"], one["Size"], one["LastModified"], one["ETag"]))
                    for one in page.get("Contents", ())
                ]
                found += [(one["Prefix"], one["Prefix"]) for one in page.get("CommonPrefixes", ())]
                if has_more := page["IsTruncated"]:
                    asked["ContinuationToken"] = page["NextContinuationToken"]
            yield from (one for _, one in sorted(found, key=lambda pair: pair[0]))
            if not has_more:
                return

    @property
    def _client(self) -> Any:  # boto3 makes its classes at run time
        with _OPENING:  # its sessions may not be used by two threads; clients may
            return _client(self.how)

    @contextmanager
    def _one_error(self, verb: str, key: str, *, is_object: bool = False) -> Iterator[None]:
        """Has all that goes wrong in a request told as one error.

        Args:
            verb: What is done.
            key: To what.
            is_object: An object is asked for by its name: it may not be there.
        """
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError
        from urllib3.exceptions import HTTPError

        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if is_object and code == _ABSENT:
                raise FileNotFoundError(2, "no such object", f"{self.url}/{key}") from error
            if code in _NO_ENTRY:
                _client.cache_clear()  # keys may have been replaced: they are read again
            advice = f"{code}: {_ADVICE[code]}" if code in _ADVICE else str(error)
            raise self._error(verb, key, advice) from error
        except (KeyError, ResponseParserError) as error:
            cause = f"what answers is no S3 server, or not whole: {type(error).__name__} {error}"
            raise self._error(verb, key, cause.split("\n", 1)[0]) from error
        except RecursionError as error:  # the SDK asks where to go, and is sent on again
            raise self._error(verb, key, _REDIRECTED) from error
        except (BotoCoreError, HTTPError, OSError) as error:
            raise self._error(verb, key, f"{type(error).__name__}: {error}") from error

    def _error(self, verb: str, key: str, cause: str) -> ObjectStoreError:
        where = self.how.endpoint or f"Amazon S3, region {self.how.region}"
        return ObjectStoreError(
            f"object store {where}: cannot {verb} {self.url}/{key}: {cause.rstrip('.')}. Nothing "
            "was left half written. Check storage.object_store, and run again once it answers."
        )


_ADVICE: Final = {
    "NoSuchBucket": "there is no such bucket; make it, or correct storage in the settings",
    "404": "nothing is known at this address; the endpoint may be another server's",
    "RequestTimeTooSkewed": "the clocks of this machine and of the store differ; set them by NTP",
    **dict.fromkeys(
        _NO_ENTRY,
        "it refuses these keys; they need s3:GetObject, s3:PutObject, s3:DeleteObject and "
        "s3:ListBucket on the bucket and prefix",
    ),
    **dict.fromkeys(("ExpiredToken", "InvalidToken"), "the keys have run out; renew them"),
}
_REDIRECTED: Final = (
    "it sends every request on; name as endpoint where it sends them, often https:// for http://"
)


def client_secrets(how: ObjectStoreSettings) -> tuple[str | None, str | None]:
    """Access key and its secret; None and None: the SDK's own chain.

    Raises:
        SettingsError: A secret cannot be read.
    """
    return (
        read_secret(how.access_key, what="storage.object_store.access_key"),
        read_secret(how.secret_key, what="storage.object_store.secret_key"),
    )


@lru_cache(maxsize=4)
def _client(how: ObjectStoreSettings) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise SettingsError(
            "storage names a bucket, which needs boto3. Install forewarn[s3], or leave the bucket "
            "out of the settings."
        ) from error
    access_key, secret_key = client_secrets(how)
    session = boto3.session.Session(
        aws_access_key_id=access_key, aws_secret_access_key=secret_key, region_name=how.region
    )
    config = Config(
        connect_timeout=how.timeout_s / 4,
        read_timeout=how.timeout_s,
        retries={"total_max_attempts": how.attempts, "mode": "standard"},
        max_pool_connections=CONNECTIONS,
        # Servers other than Amazon's may not know checksums in trailers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if how.endpoint else "auto"},
    )
    verify = str(how.ca_file) if how.ca_file else None
    try:
        return session.client("s3", endpoint_url=how.endpoint, verify=verify, config=config)
    except ValueError as error:  # an underscore in a name
        raise SettingsError(f"storage.object_store.endpoint: {error}") from error
