"""The inbox as folders: requests come in by rename, the hook alone reads them and files them away.

What a request must hold is in `remediation.signed_requests`, what it means in
`remediation.inbox.requested`; keys and people are in `remediation.inbox.site`.

Under the inbox's folder are `new`, where the board and the API may create files and nothing else,
and `done` and `refused`, which are the hook's. A refused file lies beside a `.why.json` with rule
and reason. Nothing in `new` can stop the hook: every file is read once, up to a limit, without
following links, and is then moved away.
"""

import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from remediation.inbox.requested import request_entry
from remediation.ledger.entries import Entry, Ledger
from remediation.ledger.journal import acknowledge
from remediation.signed_requests import (
    MOST_BYTES,
    Present,
    RefusedError,
    Request,
    RequestKey,
    SignedRequest,
    check_request,
    check_signature,
    decode,
    encode,
)

NEW: Final = "new"
DONE: Final = "done"
REFUSED: Final = "refused"
MOST_FILES: Final = 1000
"""Files read in one run, so that a flood cannot hold the hook up; the rest waits for the next."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: opening a pipe would otherwise wait for its other end.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class InboxRun:
    """What one reading of the inbox found.

    Attributes:
        accepted: Requests that count from now on.
        refused: Rule and reason of every file that was refused, in words.
        stopped_by: Why nothing may be done: the inbox was not read whole, and the rest may hold a
            stop; None: it was read.
    """

    accepted: tuple[Request, ...] = ()
    refused: tuple[str, ...] = ()
    stopped_by: str | None = None


def submit(root: Path, request: Request, key: RequestKey) -> Path:
    """Puts a request into the inbox, whole or not at all; for the board and the API.

    Args:
        root: The inbox's folder.
        request: The request.
        key: The key it names.

    Returns:
        Where it was put.

    Raises:
        OSError: It cannot be written.
    """
    folder = root / NEW
    part = folder / f".{request.nonce}"
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o640)
    try:
        with os.fdopen(file, "wb") as out:
            os.fchmod(file, 0o640)  # the hook reads by its group, whatever the umask
            out.write(encode(request, key))
            out.flush()
            os.fsync(out.fileno())
        path = folder / f"{request.nonce}.json"
        part.rename(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path


def read_inbox(
    root: Path,
    *,
    keys: Mapping[str, RequestKey],
    present: Present,
    ledger: Ledger,
    actuator: str,
) -> InboxRun:
    """Reads, judges and files every request; what it says counts from its entry in the ledger on.

    The entry comes before the move, and a request that has its entry is only moved: a crash at
    any point neither loses a request nor lets it count twice.

    Args:
        root: The inbox's folder.
        keys: The valid keys by id.
        present: What requests are judged by.
        ledger: Where they are kept.
        actuator: The hook's actuator.

    Raises:
        LedgerError: The ledger cannot be read or written.
    """
    try:
        with _opened(root) as folders:
            recorded = {one.key: one for one in ledger.entries(kinds=("request",))}
            desk = _Desk(folders, keys, present, ledger, actuator, recorded)
            for name in desk.names():
                desk.take(name)
            return InboxRun(
                accepted=tuple(desk.accepted),
                refused=tuple(desk.refused),
                stopped_by=desk.stopped_by,
            )
    except BlockingIOError:
        return InboxRun(stopped_by=f"inbox {root} is being read by another hook")
    except OSError as error:
        return InboxRun(stopped_by=f"inbox {root} cannot be read ({error.strerror})")


@dataclass(frozen=True)
class _Folders:
    new: int
    done: int
    refused: int


@contextmanager
def _opened(root: Path) -> Iterator[_Folders]:
    """The folders, held open so that no renamed or linked one takes their place, and locked."""
    opened: list[int] = []
    try:
        opened.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        fcntl.flock(opened[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in (NEW, DONE, REFUSED):
            opened.append(os.open(name, _FOLDER, dir_fd=opened[0]))
        yield _Folders(*opened[1:])
    finally:
        for folder in opened:
            os.close(folder)


@dataclass
class _Desk:
    """One reading of the inbox, under its lock."""

    folders: _Folders
    keys: Mapping[str, RequestKey]
    present: Present
    ledger: Ledger
    actuator: str
    recorded: Mapping[str, Entry]
    accepted: list[Request] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stopped_by: str | None = None

    def names(self) -> list[str]:
        listed = os.listdir(self.folders.new)  # noqa: PTH208 - an open folder, not a path
        names = sorted(name for name in listed if not name.startswith("."))
        if len(names) > MOST_FILES:
            self.stopped_by = f"inbox: {len(names):,} files wait, read were {MOST_FILES:,}"
        return names[:MOST_FILES]

    def take(self, name: str) -> None:
        """Judges one file and files it; what it holds or is can only have it refused."""
        content = b""
        try:
            try:
                content = _read(self.folders.new, name)
                signed = decode(content)
                check_signature(signed, self.keys)
                self._file(name, signed)
            except RefusedError as refused:
                self._refuse(name, _label(self.folders.new, name, content), refused)
        except FileNotFoundError:
            return  # taken away since it was listed
        except OSError as error:
            self.refused.append(f"request {name!a} cannot be filed: {error.strerror}")

    def _file(self, name: str, signed: SignedRequest) -> None:
        """Keeps a request whose signature holds in the ledger, then moves it.

        Raises:
            RefusedError: Its nonce was used before.
        """
        request = signed.request
        refused = self._recorded(signed)
        if request.ledger_key not in self.recorded:
            refused = _refusal(request, self.present)
            entry = request_entry(
                signed, actuator=self.actuator, present=self.present, refused=refused
            )
            if not self.ledger.append(entry):
                return  # another hook, of another inbox, was faster; the next run sees its entry
        if refused is not None:
            self._refuse(name, request.nonce, refused)
            return
        if request.escalation is not None:
            acknowledge(self.ledger, request.escalation, actor=request.actor, at=self.present.now)
        os.rename(
            name, _filed(request.nonce), src_dir_fd=self.folders.new, dst_dir_fd=self.folders.done
        )
        self.accepted.append(request)

    def _recorded(self, signed: SignedRequest) -> RefusedError | None:
        """Why a request that has its entry already was refused then; None: it was not.

        Raises:
            RefusedError: It is not the file that the entry was made from.
        """
        nonce = signed.request.nonce
        entry = self.recorded.get(signed.request.ledger_key)
        if entry is None:
            return None
        if entry.body["digest"] != signed.digest:
            raise RefusedError("nonce_used", "another request had this nonce")
        for folder in (self.folders.done, self.folders.refused):
            if _exists(folder, _filed(nonce)):
                raise RefusedError("seen_before", "this request was filed before")
        if entry.body["status"] == "accepted":
            return None
        return RefusedError(entry.body["rule"], entry.body["reason"])

    def _refuse(self, name: str, label: str, refused: RefusedError) -> None:
        why = {
            "name": ascii(name)[1:-1],
            "rule": refused.rule,
            "reason": refused.reason,
            "at": self.present.now.isoformat(),
        }
        _write(self.folders.refused, f"{label}.why.json", json.dumps(why, indent=1).encode())
        os.rename(name, _filed(label), src_dir_fd=self.folders.new, dst_dir_fd=self.folders.refused)
        self.refused.append(f"request {why['name']} refused: {refused}")


def _refusal(request: Request, present: Present) -> RefusedError | None:
    try:
        check_request(request, present)
    except RefusedError as refused:
        return refused
    return None


def _read(folder: int, name: str) -> bytes:
    """The content of a plain file, up to one byte more than a request may have.

    Raises:
        RefusedError: It is a link, a folder or a device, or cannot be read.
        FileNotFoundError: It is gone.
    """
    try:
        opened = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:  # a link (ELOOP), a socket (ENXIO), no permission
        raise RefusedError("not_a_file", f"cannot be opened: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise RefusedError("not_a_file", "a folder, pipe or device")
        return os.read(opened, MOST_BYTES + 1)
    finally:
        os.close(opened)


def _label(folder: int, name: str, content: bytes) -> str:
    """A plain name for a refused file, the same after a crash; never built from its own."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    said = f"{name!a} {found.st_ino} {found.st_mtime_ns} ".encode()
    return hashlib.sha256(said + content).hexdigest()[:40]


def _filed(label: str) -> str:
    return f"{label}.json"


def _exists(folder: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return True
    return False


def _write(folder: int, name: str, content: bytes) -> None:
    part = f".{name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(part, flags, 0o600, dir_fd=folder), "wb") as out:
        out.write(content)
    os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
