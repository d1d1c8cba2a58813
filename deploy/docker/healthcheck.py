"""The container's health: asks whichever part of Forewarn is its first process how it does.

Nothing of Forewarn is imported, so that a look costs 50 ms and not a second. Exit code 0: well, or
a command that has no health (`ingest`, `demo`); 1: not.
"""

# ruff: noqa: INP001 - a script that is copied into the image, no module of a package
import os
import sys
import time
import urllib.request
from pathlib import Path

PAGES = {
    "api": ("127.0.0.1:8080", "/api/v1/health/live"),
    "board": ("127.0.0.1:8081", "/api/v1/health/live"),
    "metrics": ("127.0.0.1:9184", "/metrics"),
    "remediate metrics": ("127.0.0.1:9185", "/metrics"),
}
# Written at every step; a tick of the largest fleet takes minutes, a round with checks an hour.
NOTES = {"score": "scorer_status.json", "remediate loop": "round.json"}
LONGEST_S = {"score": 2700, "remediate loop": 3600}
STATE = ("/var/lib/forewarn-data/scores", "/var/lib/forewarn-scores/scores", "/var/lib/forewarn")


def part_of(words):
    """Which part a command line starts, and its further words.

    Args:
        words: The command line, program included.
    """
    at = next((i for i, word in enumerate(words) if word.rsplit("/", 1)[-1] == "forewarn"), None)
    spoken = words[at + 1 :] if at is not None else []
    for length in (2, 1):
        name = " ".join(spoken[:length])
        if name in PAGES or name in NOTES:
            return name, spoken[length:]
    return None, []


def address_of(name, rest):
    """Where a part answers: as its command line says, asked by loopback.

    Args:
        name: A key of PAGES.
        rest: The further words of its command line.
    """
    listen, path = PAGES[name]
    if "--listen" in rest[:-1]:
        listen = rest[rest.index("--listen") + 1]
    host, _, port = listen.rpartition(":")
    host = "127.0.0.1" if host in ("0.0.0.0", "[::]") else host  # noqa: S104 - compared only
    return f"http://{host}:{port}{path}"


def is_fresh(name, folders, now):
    """Whether a part has written its note lately.

    Args:
        name: A key of NOTES.
        folders: Where the note may be.
        now: The present, seconds since 1970.
    """
    notes = [Path(one) / NOTES[name] for one in folders]
    times = [one.stat().st_mtime for one in notes if one.exists()]
    return bool(times) and now - max(times) < LONGEST_S[name]


def main():
    """The exit code."""
    words = Path("/proc/1/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    name, rest = part_of(words)
    if name in PAGES:
        with urllib.request.urlopen(address_of(name, rest), timeout=10):  # noqa: S310 - http only
            return 0
    if name in NOTES:
        folders = os.environ.get("FOREWARN_HEALTH", ":".join(STATE)).split(":")
        return 0 if is_fresh(name, folders, time.time()) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
