"""The inbox as a site sets it up: its folders, its keys, and what each person may ask for.

How requests are read and filed is in `remediation.inbox.files`.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from features.errors import SettingsError
from remediation.cluster.state import ClusterState
from remediation.inbox.files import DONE, NEW, REFUSED, InboxRun, read_inbox
from remediation.inbox.requested import present_of
from remediation.ledger.entries import Ledger
from remediation.process_settings import InboxSettings
from remediation.signed_requests import RequestKey
from remediation.site import Site

_LONGEST_KEY: Final = 8192


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """An inbox with its keys and people, as the hook reads it.

    Attributes:
        root: Its folder.
        keys: The valid keys by id.
        actors: What each known actor may ask for.
    """

    root: Path
    keys: Mapping[str, RequestKey]
    actors: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, settings: InboxSettings) -> Self:
        """The inbox that the settings name; its folders are made where absent.

        Raises:
            SettingsError: A key cannot be read or is too short, or the folders cannot be made.
        """
        prepare_inbox(settings.folder)
        keys = {
            name: RequestKey(load_key(file=one.file, variable=one.variable), one.actors)
            for name, one in settings.keys.items()
        }
        return cls(root=settings.folder, keys=keys, actors=settings.actors)

    def read(
        self, state: ClusterState, *, ledger: Ledger, actuator: str, site: Site, now: datetime
    ) -> InboxRun:
        """As `read_inbox`, judged by the cluster as it is.

        Args:
            state: The cluster now.
            ledger: Where requests are kept.
            actuator: The hook's actuator.
            site: Gives the policy levels.
            now: The present.
        """
        present = present_of(
            ledger, state, actuator=actuator, actors=self.actors, site=site, now=now
        )
        return read_inbox(
            self.root, keys=self.keys, present=present, ledger=ledger, actuator=actuator
        )


def prepare_inbox(root: Path) -> None:
    """Makes the folders where absent: `new` open to the group for putting in, the others closed.

    Raises:
        SettingsError: They cannot be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        for name, mode in ((NEW, 0o3730), (DONE, 0o700), (REFUSED, 0o700)):
            folder = root / name
            if not folder.exists():
                _make(folder, mode)
    except OSError as error:
        raise SettingsError(f"inbox {root}: {error.strerror}. {_by_root(root)}") from error


def _make(folder: Path, mode: int) -> None:
    """Makes a folder that is never there with other rights than these."""
    folder.mkdir(mode=0o700)
    try:
        # Sticky: nobody takes away what others put in. Set-group: what is put in belongs to the
        # hook's group, which may read it.
        folder.chmod(mode)
    except OSError:
        folder.rmdir()
        raise


def _by_root(root: Path) -> str:
    """How the inbox is made where the hook itself may not, as under its systemd unit."""
    owner = f"{os.geteuid()} {os.getegid()}"
    modes = {root: "0750", root / NEW: "3730", root / DONE: "0700", root / REFUSED: "0700"}
    lines = "; ".join(f"d {folder} {mode} {owner} -" for folder, mode in modes.items())
    return (
        "A unit with RestrictSUIDSGID cannot make it, and outside of its ReadWritePaths it can "
        f"write nothing. Put these lines into /etc/tmpfiles.d/forewarn-inbox.conf: {lines}; then, "
        "as root: systemd-tmpfiles --create forewarn-inbox.conf"
    )


def load_key(*, file: Path | None = None, variable: str | None = None) -> bytes:
    """A key from a file that only its owner can read, or from an environment variable.

    Args:
        file: The file.
        variable: The variable's name.

    Raises:
        SettingsError: Not exactly one is given, it cannot be read, or others can read the file.
    """
    if (file is None) == (variable is None):
        raise SettingsError("request key: name either a file or an environment variable")
    if file is None:
        return os.environ.get(str(variable), "").strip().encode()
    try:
        with file.open("rb") as opened:
            found = os.fstat(opened.fileno())
            if found.st_mode & 0o077 or not stat.S_ISREG(found.st_mode):
                mode = stat.S_IMODE(found.st_mode)
                raise SettingsError(
                    f"request key: {file} has mode {mode:04o}; expected a file of mode 0600"
                )
            return opened.read(_LONGEST_KEY).strip()
    except OSError as error:
        raise SettingsError(f"request key: {file}: {error.strerror}") from error
