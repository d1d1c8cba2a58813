"""Bytes of a log file as blocks, plain or compressed (gzip, xz, bzip2, Zstandard), never whole.

What the bytes say is not known here.
"""

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from features.errors import SourceError

BLOCK_BYTES: Final = 1 << 17
"""Small enough for a second-level cache, so that a block is read from memory once."""

_SMALL_BYTES: Final = 1 << 14
BROKEN_OFF: Final = "the compressed file is damaged or breaks off; what came before is kept"

_GZIP: Final = b"\x1f\x8b"
_XZ: Final = b"\xfd7zXZ\x00"
_BZIP2: Final = b"BZh"
_ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")  # what PowerShell writes for `>`


class BrokenLogError(Exception):
    """A compressed file ends too early or is damaged; it never leaves this package."""


def read_blocks(path: Path, *, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Reads a log file block by block.

    Whether it is compressed is told by its first bytes, not by its name: a log that is rotated
    under our hands may be either.

    Args:
        path: The file.
        block_bytes: Size of a block, after decompression.

    Yields:
        Blocks, none of them empty.

    Raises:
        SourceError: The file cannot be opened or read.
        BrokenLogError: It is compressed, and damaged or cut short.
    """
    try:
        with path.open("rb", buffering=0) as file:
            opened = _opened(file, file.read(len(_XZ)))
            while block := _next_block(opened, block_bytes):
                yield block
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}. Check that it exists, is a "
            f"file, and that this user may read it."
        ) from error


def _opened(file: io.FileIO, magic: bytes) -> Any:
    """The file, unpacked and in UTF-8; modules for it are loaded late, as most logs are plain."""
    file.seek(0)
    if magic.startswith(_GZIP):
        import gzip

        return gzip.GzipFile(fileobj=file)
    if magic.startswith(_XZ):
        import lzma

        return lzma.LZMAFile(file)
    if magic.startswith(_BZIP2):
        import bz2

        return bz2.BZ2File(file)
    if magic.startswith(_ZSTANDARD):
        # It takes 50 MB of memory, and few logs are packed like this.
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    if magic.startswith(_UTF_16):
        import codecs

        return codecs.EncodedFile(file, "utf-8", "utf-16", errors="replace")
    return file


def _next_block(opened: Any, block_bytes: int) -> bytes:
    """The next bytes; empty at the end."""
    if isinstance(opened, io.FileIO):
        return opened.read(block_bytes)
    try:
        # What could be unpacked before a file breaks off comes before the error: a read of many
        # bytes would throw it away.
        if hasattr(opened, "read1"):
            return bytes(opened.read1(block_bytes))
        return bytes(opened.read(min(block_bytes, _SMALL_BYTES)))
    except _unpack_errors() as error:
        raise BrokenLogError(str(error)) from error


def _unpack_errors() -> tuple[type[Exception], ...]:
    """What a damaged file raises; asked for only when something is raised."""
    import lzma

    return (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError)
