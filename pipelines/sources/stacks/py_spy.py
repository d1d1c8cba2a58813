"""Stack dumps of py-spy, as JSON (`py-spy dump --json`) and as text (`py-spy dump`).

Fields after py-spy's `src/stack_trace.rs` and `src/dump.rs`. What the stacks say is in
`models.localization`.
"""

import re
from typing import Any, Final

from features.errors import SourceError
from models.localization.stacks import Frame, ThreadStack

_THREAD: Final = re.compile(
    r'^Thread (?P<id>\S+) \((?P<state>[^)]*)\)(?:: "(?P<name>.*)")?\s*$', re.ASCII
)
_FRAME: Final = re.compile(r"^ {4}(?P<name>\S.*?) \((?P<file>[^()]*?)(?::\d+)?\)\s*$")
_BARE_FRAME: Final = re.compile(r"^ {4}(?P<name>\S.*?)\s*$")
_LOCAL: Final = re.compile(r"^ {8}")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_HEADER: Final = re.compile(r"^(?:Process \d+: |Python v\d)")


def threads_of_json(content: object) -> tuple[ThreadStack, ...]:
    """The threads of a JSON dump.

    Args:
        content: The parsed document: a list of threads.

    Raises:
        SourceError: It is no dump, or a thread has no frames field.
    """
    if not isinstance(content, list):
        raise SourceError("expected a list of threads, as `py-spy dump --json` writes")
    if not content:
        raise SourceError("the list of threads is empty: the process may have ended")
    return tuple(_thread(item) for item in content)


def threads_of_text(text: str) -> tuple[ThreadStack, ...]:
    """The threads of a text dump.

    Args:
        text: The dump; colours are taken out.

    Raises:
        SourceError: No thread is in it, a frame stands before any, or a line is of no known form.
    """
    threads: list[tuple[str | None, list[Frame]]] = []
    for line in _COLOUR.sub("", text).splitlines():
        if not line.strip() or _HEADER.match(line) or (threads and _LOCAL.match(line)):
            continue
        if found := _THREAD.match(line):
            threads.append((found["name"], []))
        elif found := _FRAME.match(line):
            _last(threads, line).append(Frame(found["name"], found["file"]))
        elif found := _BARE_FRAME.match(line):
            _last(threads, line).append(Frame(found["name"]))
        else:
            raise SourceError(f"a line is none of a py-spy dump: {line[:80]!r}")
    if not threads:
        raise SourceError("no line `Thread ...`, as `py-spy dump` writes")
    return tuple(ThreadStack(name, tuple(frames)) for name, frames in threads)


def _last(threads: list[tuple[str | None, list[Frame]]], line: str) -> list[Frame]:
    if not threads:
        raise SourceError(f"a frame stands before any thread: {line.strip()[:80]!r}")
    return threads[-1][1]


def _thread(item: Any) -> ThreadStack:
    frames = item.get("frames") if isinstance(item, dict) else None
    if not isinstance(frames, list):
        raise SourceError("a thread has no list `frames`")
    name = item.get("thread_name")
    return ThreadStack(name if isinstance(name, str) else None, tuple(map(_frame, frames)))


def _frame(item: Any) -> Frame:
    name = item.get("name") if isinstance(item, dict) else None
    if not isinstance(name, str):
        raise SourceError("a frame has no text `name`")
    # The short name is what the text form shows, so that a folder may hold both.
    file = item.get("short_filename") or item.get("filename")
    return Frame(name, file if isinstance(file, str) else "")
