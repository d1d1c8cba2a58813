"""NCCL flight recorders as PyTorch writes them in JSON.

Fields after PyTorch's `FlightRecorderDetail.hpp`: numbers of `pg_status` are texts, `ranks` of
`pg_config` is a text of numbers, `process_group` is name and description. Its usual dump is a
pickle, which runs code when read and is refused. What the records say is in
`models.localization.flight_recorder`.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from features.errors import SourceError
from models.localization.flight_recorder import FlightRecord, GroupProgress, OpenTransfer

_NUMBER: Final = re.compile(r"\d+", re.ASCII)
_TRANSFER: Final = re.compile(r"^\w+:(send|recv) (\d+)(?:->|<-)(\d+)$", re.ASCII)


def is_recorder(content: object) -> bool:
    """Whether a JSON document is a flight recorder."""
    return isinstance(content, dict) and "pg_config" in content


def record_of_json(content: Mapping[str, Any], *, rank: int) -> FlightRecord:
    """One rank's record.

    Args:
        content: The parsed document.
        rank: Global rank.

    Raises:
        SourceError: A part is not what the format says.
    """
    try:
        return _record(content, rank)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SourceError(
            f"a part of the flight recorder is not as PyTorch writes it ({error!r:.80})"
        ) from error


def _record(content: Mapping[str, Any], rank: int) -> FlightRecord:
    config = content["pg_config"]
    members = {
        str(name): tuple(map(int, _NUMBER.findall(str(group["ranks"]))))
        for name, group in config.items()
    }
    entries = [entry for entry in content.get("entries") or [] if _is_open_or_done(entry)]
    ids = {str(entry["process_group"][0]): str(entry["pg_id"]) for entry in entries}
    status = content.get("pg_status") or {}
    groups = tuple(
        _progress(name, ranks, entries, status.get(ids.get(name, name)) or {})
        for name, ranks in members.items()
        if rank in ranks
    )
    transfers = tuple(
        found for entry in entries if (found := _transfer(entry, members)) is not None
    )
    return FlightRecord(rank, groups, transfers)


def _is_open_or_done(entry: Mapping[str, Any]) -> bool:
    if entry["state"] not in ("scheduled", "started", "completed"):
        raise ValueError(f"state {entry['state']!r}")
    return True


def _progress(
    name: str, ranks: tuple[int, ...], entries: list[Any], status: Mapping[str, Any]
) -> GroupProgress:
    """The further of what the status says and what the entries, a ring of the latest, say."""
    own = [e for e in entries if e["process_group"][0] == name and not e.get("is_p2p")]
    reached = {
        "enqueued": _latest(own, ("scheduled", "started", "completed")),
        "started": _latest(own, ("started", "completed")),
        "completed": _latest(own, ("completed",)),
    }
    for kind, at in reached.items():
        # -1 stands for none yet, 0 where the group never ran a collective.
        reached[kind] = max(at, int(status.get(f"last_{kind}_collective", 0)))
    opened = sorted(
        (int(e["collective_seq_id"]), str(e["profiling_name"]))
        for e in own
        if e["state"] != "completed"
    )
    return GroupProgress(name, ranks, operation=opened[0][1] if opened else "", **reached)


def _latest(entries: list[Any], states: tuple[str, ...]) -> int:
    return max((int(e["collective_seq_id"]) for e in entries if e["state"] in states), default=0)


def _transfer(entry: Mapping[str, Any], members: dict[str, tuple[int, ...]]) -> OpenTransfer | None:
    if not entry.get("is_p2p") or entry["state"] == "completed":
        return None
    found = _TRANSFER.match(str(entry["profiling_name"]))
    if found is None:
        return None  # a batch of transfers, whose parts have entries of their own
    direction: Literal["send", "recv"] = "send" if found[1] == "send" else "recv"
    # Both forms name the rank itself first and the peer last, by their place in the group.
    name = str(entry["process_group"][0])
    return OpenTransfer(name, direction, sorted(members[name])[int(found[3])])
