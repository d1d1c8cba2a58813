"""Reading fields of Kubernetes API objects (JSON) that may be absent, null or of another type.

What the fields of one kind mean is in `kubernetes.nodes`, `kubernetes.pods` and their neighbours.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from features.errors import DataError

Json = Mapping[str, Any]

SOURCE: Final = "kubernetes"
TEXT_LENGTH: Final = 1000
"""Characters of messages that are kept: the API allows 256 kB of annotations on one object."""

_NOTHING: Final[Json] = {}
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_UNSET_BEFORE: Final = datetime(2000, 1, 1, tzinfo=UTC)  # Go's zero time and the epoch: "not set"
_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30}))"
    r"(?P<suffix>[kMGTPE]|[KMGTPE]i|m|u|n|[eE][+-]?\d{1,2})?",
    re.ASCII,
)
_SUFFIXES: Final = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip


class RefusedError(DataError):
    """An object breaks the rule that the error names; readers count it and go on."""


def mapping(value: Any, *path: str) -> Json:
    """The object at a path of keys; empty where there is none.

    Args:
        value: Any JSON value.
        path: Keys, outermost first.

    Example:
        >>> mapping({"spec": {"a": {"b": 1}}}, "spec", "a"), mapping({"spec": []}, "spec", "a")
        ({'b': 1}, {})
    """
    for key in path:
        if not isinstance(value, dict):
            return _NOTHING
        value = value.get(key)
    return value if isinstance(value, dict) else _NOTHING


def items(value: Json, key: str) -> Iterator[Json]:
    """The objects of a list; whatever else stands in it is passed over.

    Args:
        value: The object that has the list.
        key: Its key.
    """
    found = value.get(key)
    if isinstance(found, list):
        yield from (item for item in found if isinstance(item, dict))


def text(value: Json, key: str) -> str | None:
    """A text; None where it is absent, empty or no text.

    Args:
        value: The object that has it.
        key: Its key.
    """
    found = value.get(key)
    return found if isinstance(found, str) and found else None


def whole(value: Json, key: str) -> int | None:
    """A whole number that fits 32 bits; None where it is absent or anything else.

    Args:
        value: The object that has it.
        key: Its key.
    """
    found = value.get(key)
    if not isinstance(found, int) or isinstance(found, bool):
        return None
    return found if -(2**31) <= found < 2**31 else None


def moment(value: Json, key: str) -> datetime | None:
    """A time as the API writes it (RFC 3339), to UTC; None where it is absent, unset or no time.

    Digits beyond microseconds are cut off.

    Args:
        value: The object that has it.
        key: Its key.

    Example:
        >>> moment({"t": "2026-01-05T08:00:00+01:00"}, "t").isoformat()
        '2026-01-05T07:00:00+00:00'
        >>> moment({"t": "0001-01-01T00:00:00Z"}, "t") is None
        True
    """
    return parse_moment(value.get(key))


def parse_moment(found: Any) -> datetime | None:
    """Reads a time as `moment` does, from the value itself.

    Args:
        found: Any JSON value.
    """
    if not isinstance(found, str) or not _TIME.fullmatch(found):
        return None
    try:
        read = datetime.fromisoformat(found.upper()).astimezone(UTC)
    except (ValueError, OverflowError):  # 31 February; year 1 in a zone ahead of UTC
        return None
    return read if read >= _UNSET_BEFORE else None


def quantity(found: Any) -> Decimal | None:
    """An amount of a resource (`8`, `"2k"`, `"500m"`); None where it is none.

    Args:
        found: Any JSON value.

    Example:
        >>> quantity("8"), quantity(2), quantity("1k"), quantity("many")
        (Decimal('8'), Decimal('2'), Decimal('1000'), None)
    """
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    if isinstance(found, int):
        return Decimal(found) if abs(found) < 10**30 else None
    read = _QUANTITY.fullmatch(found.strip())
    if read is None:
        return None
    suffix = read["suffix"] or ""
    try:
        if suffix[:1] in ("e", "E") and suffix not in _SUFFIXES:
            return Decimal(read["number"] + suffix)
        return Decimal(read["number"]) * _SUFFIXES.get(suffix, Decimal(1))
    except InvalidOperation:
        return None


def name_of(found: Json) -> str:
    """The name of an object.

    Args:
        found: The object.

    Raises:
        RefusedError: It has none.
    """
    name = text(mapping(found, "metadata"), "name")
    if name is None:
        raise RefusedError("metadata.name is missing")
    return name


def labels_of(found: Json) -> dict[str, str]:
    """Labels of an object; what is no text is left out.

    Args:
        found: The object.
    """
    return _texts(mapping(found, "metadata", "labels"))


def annotations_of(found: Json) -> dict[str, str]:
    """Annotations of an object; what is no text is left out.

    Args:
        found: The object.
    """
    return _texts(mapping(found, "metadata", "annotations"))


def cut(words: str) -> str:
    """At most `TEXT_LENGTH` characters on one line.

    Args:
        words: Any text.
    """
    line = " ".join(words[: 4 * TEXT_LENGTH].split())
    return line if len(line) <= TEXT_LENGTH else f"{line[: TEXT_LENGTH - 1]}…"


def written_by(found: Json, *path: str) -> tuple[str | None, datetime | None]:
    """Who last wrote a field, and when: the entry of `managedFields` that owns it.

    Args:
        found: The object.
        path: Keys of `fieldsV1`, outermost first: `f:spec`, `f:unschedulable`.

    Returns:
        Name of the field manager and the time of its entry; None where the object does not tell
        (`kubectl get -o json` leaves managed fields out).
    """
    for entry in items(mapping(found, "metadata"), "managedFields"):
        *parents, last = path
        if last in mapping(entry, "fieldsV1", *parents):
            return text(entry, "manager"), moment(entry, "time")
    return None, None


def _texts(values: Json) -> dict[str, str]:
    return {
        key: value
        for key, value in values.items()
        if isinstance(key, str) and isinstance(value, str)
    }
