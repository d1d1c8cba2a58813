"""Log entries that are JSON objects: of `journalctl`, of container runtimes and log shippers.

Of journalctl these are `-o json`, `json-sse` and `json-seq`, an entry a line. Text lines are read
in `kernel.line`.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pipelines.sources.kernel.events import quotes_users

EVERY_ENTRY_OF_BOOT: Final = '"_BOOT_ID"'
"""What the bytes around an entry's boot id start with."""

JSON_WITHIN: Final = 8
"""Letters of a line within which an object begins: `data: ` and a record separator go before it."""

_BEFORE: Final = re.compile(r"(?:data:|\[|\x1e)?\s{0,4}(?=\{)")
_MESSAGES: Final = ("log", "message", "msg", "textPayload")
_TIMES: Final = ("time", "timestamp", "@timestamp")
_HOSTS: Final = ("host", "hostname")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MESSAGE_LENGTH: Final = 1 << 16


@dataclass(frozen=True)
class JsonEntry:
    """One entry.

    Attributes:
        message: Its text; bytes that are not UTF-8 are replaced.
        ts: UTC time, or None.
        host: Host it names.
        boot_id: Boot it belongs to.
    """

    message: str
    ts: datetime | None = None
    host: str | None = None
    boot_id: str | None = None


def read_entry(text: str) -> JsonEntry | None:
    """Reads one entry.

    Args:
        text: A line that starts with a brace, or with what streams of entries put before it.

    Returns:
        The entry, or None where the line is no such object or has no message.

    Example:
        >>> read_entry('{"MESSAGE": [78, 86], "_HOSTNAME": "n1"}').message
        'NV'
    """
    before = _BEFORE.match(text)
    if before is None:
        return None
    try:
        entry = json.loads(text[before.end() :].rstrip(" \t\r,]"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    if "MESSAGE" not in entry:
        return _shipped(entry)
    message = _message(entry["MESSAGE"])
    if message is None:
        return None
    tag = f"{_text(entry.get('SYSLOG_IDENTIFIER'))}: "
    message = tag + message if quotes_users(tag) else message  # as a syslog has it
    # The journal's own time is when it received the entry. At boot it receives the kernel's first
    # messages seconds late, but it is the one time that every entry has.
    ts = _time(entry.get("__REALTIME_TIMESTAMP"), entry.get("_SOURCE_REALTIME_TIMESTAMP"))
    return JsonEntry(message, ts, _text(entry.get("_HOSTNAME")), _text(entry.get("_BOOT_ID")))


def _shipped(entry: dict[str, Any]) -> JsonEntry | None:
    """An entry of a container runtime or a log shipper, of no fixed form."""
    log = _first_text(entry, _MESSAGES)
    if log is None:
        return None
    # The line may have a prefix of its own; this is when it came, and is read as such.
    time = _first_text(entry, _TIMES)
    message = _clean(f"{time} {log}" if time else log)
    return JsonEntry(message, host=_first_text(entry, _HOSTS))


def _first_text(entry: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((_clean(entry[key]) for key in keys if isinstance(entry.get(key), str)), None)


def _message(value: Any) -> str | None:
    """Text, a list of bytes (no text, or control characters in it), or several of a field."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list):
        if value and all(isinstance(part, str) for part in value):
            return _clean(" ".join(value))
        try:
            return bytes(value[:_MESSAGE_LENGTH]).decode("utf-8", "replace").strip()
        except (TypeError, ValueError):
            return None
    return None


def _clean(text: str) -> str:
    """Without halves of characters, which JSON can hold and tables cannot."""
    return text.encode("utf-8", "replace").decode().strip()


def _text(value: Any) -> str | None:
    return _clean(value) if isinstance(value, str) else None


def _time(*values: Any) -> datetime | None:
    """The first that is a number of microseconds since 1970."""
    for value in values:
        if isinstance(value, str | int) and not isinstance(value, bool):
            try:
                return _EPOCH + timedelta(microseconds=int(value))
            except (ValueError, OverflowError):
                continue
    return None
