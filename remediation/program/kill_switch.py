"""The kill switch by hand: found, set, lifted and read with nothing but the file system.

Whether automation is stopped is asked in `remediation.actuators.kill_switch`. Nothing here needs
ledger, scores or cluster, nor settings without mistakes.
"""

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from features.errors import SettingsError
from remediation.given_text import given_text
from remediation.hook_settings import STOP_FILE, read_hook_file
from remediation.strict_yaml import parse_yaml

_NAME_IT: Final = "Name the switch itself: forewarn remediate kill-switch on --file PATH"
_MOST_BYTES: Final = 4096


def find_kill_switch(hook_file: Path) -> Path:
    """The kill switch's file, by settings that may have mistakes elsewhere.

    Args:
        hook_file: The hook's settings file.

    Raises:
        SettingsError: It cannot be told.
    """
    try:
        content = read_hook_file(hook_file)
        base = hook_file.parent.absolute()
        site: Any = content.get("site")
        place = base
        if isinstance(site, str):
            place = (base / site).parent
            site = parse_yaml(given_text(base / site))
    except (SettingsError, OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{error} {_NAME_IT}") from error
    named = site.get("kill_switch") if isinstance(site, dict) else None
    if isinstance(named, str):
        return place / named
    state = content.get("state")
    if isinstance(state, str):
        return base / state / STOP_FILE
    raise SettingsError(f"hook settings {hook_file}: neither state nor kill_switch. {_NAME_IT}")


def turn_on(path: Path, *, actor: str, at: datetime, is_named: bool = False) -> str:
    """Sets the switch; the file's being there is what counts, what it says is for people.

    Args:
        path: The switch.
        actor: Who.
        at: When.
        is_named: Whether a person named it by hand: it may be no switch of any hook.

    Returns:
        What came of it, in words.

    Raises:
        SettingsError: It cannot be set, or is named where no hook looks.
    """
    if is_named and not path.parent.is_dir():
        raise SettingsError(
            f"kill switch {path}: there is no folder {path.parent}, so no hook looks there. NOT "
            f"STOPPED. Name the path of its settings, or stop the hook itself: systemctl stop "
            f"forewarn-remediate"
        )
    try:
        file = _made(path)
    except FileExistsError:
        return f"kill switch {path} was set already. Nothing is done while it is there."
    except OSError as error:
        raise SettingsError(
            f"kill switch {path}: {error.strerror}. NOT STOPPED. Make the file as its owner, or "
            f"stop the hook itself: systemctl stop forewarn-remediate"
        ) from error
    with suppress(OSError), os.fdopen(file, "w", encoding="utf-8") as out:  # on a full disk too
        out.write(f"set by {actor} at {at:%Y-%m-%d %H:%M} UTC\n")
    return (
        f"kill switch {path} is set. No node is begun from now on; what is held stays held. "
        f"Lift it with: forewarn remediate kill-switch off"
    )


def _made(path: Path) -> int:
    """The new file, open; FileExistsError means this file, never a folder of its path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(error.errno, "its folder is a file") from error
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)


def turn_off(path: Path) -> str:
    """Lifts the switch.

    Args:
        path: The switch.

    Returns:
        What came of it, in words.

    Raises:
        SettingsError: It cannot be lifted.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise SettingsError(
                f"kill switch folder {path.parent} is absent, which counts as set. Make the folder."
            ) from None
        return f"kill switch {path} was not set."
    except OSError as error:
        raise SettingsError(f"kill switch {path}: {error.strerror}. Still stopped.") from error
    return (
        f"kill switch {path} is lifted. Unless `status` names another stop, the hook may act from "
        f"its next node on; one that was asked for by board or API ends with: forewarn remediate "
        f"resume"
    )


def said_by(path: Path) -> str:
    """What the switch's file says; empty: nothing."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", errors="replace").strip()
    except OSError:
        return ""
