"""Files put in place in one step: readers see the old one or the new one.

What is in them is known to those who write them.
"""

import os
import secrets
from pathlib import Path

from pipelines.storage.object_paths import Place


def replace_file(
    path: Place, content: bytes, *, sync: bool = False, is_private: bool = False
) -> None:
    """Puts `content` at `path` in one step: readers see the old file or the new one.

    Args:
        path: Final place; its folder is made where absent. In a bucket, an object.
        content: The whole file.
        sync: Wait until the disk has it (published scores); a table that a crash of the
            machine takes can be made anew, and waiting costs milliseconds per partition.
        is_private: Nobody but the owner may read it, at no moment.
    """
    if not isinstance(path, Path):  # an object store puts in one step, and on its disks
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Process ids of two machines, and of any two containers, may be the same.
    writer = f"{os.getpid()}-{secrets.token_hex(4)}"
    unfinished = path.with_name(f".unfinished-{writer}-{path.name}")
    try:
        if is_private:
            unfinished.touch(mode=0o600)
        with unfinished.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
