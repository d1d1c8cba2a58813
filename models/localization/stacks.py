"""Stack dumps of ranks as values, and the text that two dumps of the same place share.

No file format is known here (see `pipelines.sources.stacks`), and no rank is judged.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MAIN_THREAD: Final = "MainThread"

_ADDRESS: Final = re.compile(r"\s*\bat 0x[0-9a-f]+|\+?0x[0-9a-f]+", re.IGNORECASE | re.ASCII)
_NUMBER: Final = re.compile(r"\d{4,}", re.ASCII)
_ANY_NUMBER: Final = re.compile(r"\d+", re.ASCII)
_KEPT_FOLDERS: Final = 2


@dataclass(frozen=True)
class Frame:
    """One call of a stack.

    Attributes:
        function: Name as dumped.
        file: Path as dumped; empty where unknown.
    """

    function: str
    file: str = ""


@dataclass(frozen=True)
class ThreadStack:
    """What one thread was doing.

    Attributes:
        name: Thread name; None: the dump gives none.
        frames: Calls, the innermost first.
    """

    name: str | None
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class RankStack:
    """What one rank was doing.

    Attributes:
        rank: Global rank.
        threads: Its threads.
    """

    rank: int
    threads: tuple[ThreadStack, ...]


Text = tuple[str, ...]
"""A stack without what differs between processes at the same place, the innermost call first."""


def main_text(stack: RankStack) -> Text:
    """The text of the thread that trains.

    Helper threads (data loader, logger, watchdog) differ between healthy ranks. Where no thread
    is called MainThread, all of them count.

    Args:
        stack: A rank's dump.

    >>> frames = (Frame("wait", "/a/torch/cuda/streams.py"), Frame("train <0x7f01>", "x.py"))
    >>> main_text(RankStack(0, (ThreadStack("MainThread", frames),)))
    ('wait (cuda/streams.py)', 'train <> (x.py)')
    """
    trains = [thread for thread in stack.threads if thread.name == MAIN_THREAD]
    if len(trains) == 1:
        return tuple(frame_text(frame) for frame in trains[0].frames)
    return all_text(stack)


def has_main_thread(stack: RankStack) -> bool:
    """Whether the dump says which thread trains.

    Args:
        stack: A rank's dump.
    """
    return sum(thread.name == MAIN_THREAD for thread in stack.threads) == 1


def all_text(stack: RankStack) -> Text:
    """The text of all threads, in an order that does not depend on their numbers.

    Args:
        stack: A rank's dump.
    """
    return tuple(line for thread in sorted(_thread_texts(stack.threads)) for line in thread)


def frame_text(frame: Frame) -> str:
    """A call without addresses, line numbers, generated numbers and the folder of the install.

    Args:
        frame: A call.
    """
    return _plain(frame.function, frame.file)


@lru_cache(maxsize=65536)
def _plain(function: str, file: str) -> str:
    name = _NUMBER.sub("#", _ADDRESS.sub("", function)).strip() or "?"  # no symbol, an address
    place = "/".join(file.replace("\\", "/").split("/")[-_KEPT_FOLDERS:])
    place = _NUMBER.sub("#", _ADDRESS.sub("", place))
    return f"{name} ({place})" if place else name


def _thread_texts(threads: Iterable[ThreadStack]) -> list[Text]:
    # Threads of a pool are numbered by who started first.
    return [
        (
            f"[{_ANY_NUMBER.sub('#', _ADDRESS.sub('', thread.name or ''))}]",
            *map(frame_text, thread.frames),
        )
        for thread in threads
    ]
