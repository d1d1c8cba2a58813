"""Reads the files that people write (settings, lists, mappings, rules, secrets), within bounds.

Also resolves the paths in them. What they must say is checked where they are read; data and our
own files are read elsewhere.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)

MOST_BYTES: Final = 16 * 2**20
"""More than any such file has: a list of 200,000 GPUs takes 8 MB."""


def given_bytes(path: Path) -> bytes:
    """The content of a file that a person named.

    Args:
        path: A regular file, or a link to one. A pipe would be waited for without end, a device
            read without end.

    Raises:
        OSError: It cannot be read, is no regular file, or has more than MOST_BYTES.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(opened).st_mode
        if stat.S_ISDIR(kind):  # `open` would tell the number in place of the path
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            words = "a pipe or device, not a regular file; name a file"
            raise OSError(errno.EINVAL, words, str(path))
        with open(opened, "rb", closefd=False) as file:
            content = file.read(MOST_BYTES + 1)
    finally:
        os.close(opened)
    if len(content) > MOST_BYTES:
        words = f"larger than {MOST_BYTES // 2**20} MB, so it is not what is meant here"
        raise OSError(errno.EFBIG, words, str(path))
    return content


def given_text(path: Path) -> str:
    """The same as text.

    Args:
        path: As in `given_bytes`.

    Raises:
        OSError: As in `given_bytes`.
        UnicodeDecodeError: It is not UTF-8.
    """
    # Line ends as in any text file of Python.
    return given_bytes(path).decode().replace("\r\n", "\n").replace("\r", "\n")


def located(model: Model, folder: Path) -> Model:
    """Checked values with every relative path among them, however deep, set below a folder.

    Args:
        model: What a file says.
        folder: The file's folder.
    """
    values = {name: getattr(model, name) for name in type(model).model_fields}
    below = {name: _located_value(value, folder) for name, value in values.items()}
    # What is left as it is stays a default: pydantic counts all that is updated as given.
    return model.model_copy(update={n: v for n, v in below.items() if v is not values[n]})


def _located_value(value: Any, folder: Path) -> Any:
    """The value, and the same object where there is no path in it."""
    if isinstance(value, Path):
        return folder / value
    if isinstance(value, BaseModel):
        below = located(value, folder)
        return value if below == value else below
    if isinstance(value, dict):
        found = {key: _located_value(one, folder) for key, one in value.items()}
        return value if found == value else found
    if isinstance(value, tuple):
        within = tuple(_located_value(one, folder) for one in value)
        return value if within == value else within
    return value
