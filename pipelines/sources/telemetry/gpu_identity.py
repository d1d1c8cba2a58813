"""One spelling for a GPU's identity, whoever writes it, and the GPU behind a MIG instance.

Where a GPU sits is not known here.
"""

import re
from collections.abc import Mapping
from typing import Final

_UUID: Final = re.compile(
    r"(?:gpu-)?(?P<hex>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})", re.ASCII | re.IGNORECASE
)
_MIG: Final = re.compile(r"mig-(?P<gpu>gpu-[0-9a-z-]+)/\d+(?:/\d+)?", re.ASCII | re.IGNORECASE)
_UNKNOWN: Final = re.compile(
    r"\[?(?:n/?a|unknown(?: error)?|not supported|none|null|error|err!|"
    r"gpu is lost|insufficient permissions)\]?|",
    re.IGNORECASE,
)


def canonical_gpu_uuid(text: str, *, parents: Mapping[str, str] | None = None) -> str | None:
    """Writes a GPU's UUID as `GPU-` and lower-case hexadecimal.

    Args:
        text: The UUID as a source writes it, with or without the prefix, in any case; of a MIG
            instance in the older form it is the GPU in the middle, `MIG-GPU-<uuid>/1/0`.
        parents: GPU by MIG instance, both as written, for instances with UUIDs of their own.

    Returns:
        The identity, or None where the text tells none. A text of another form that carries the
        prefix (a serial, a shortened UUID) is kept.

    Example:
        >>> canonical_gpu_uuid("C0B5694B-2b5d-6b20-f903-558341437f6b")
        'GPU-c0b5694b-2b5d-6b20-f903-558341437f6b'
        >>> canonical_gpu_uuid("MIG-GPU-c0b5694b-2b5d-6b20-f903-558341437f6b/1/0")
        'GPU-c0b5694b-2b5d-6b20-f903-558341437f6b'
    """
    bare = text.strip()
    if _UNKNOWN.fullmatch(bare):
        return None
    found = _UUID.fullmatch(bare)
    if found is not None:
        return f"GPU-{found['hex'].lower()}"
    if bare[:4].lower() == "mig-":
        inside = _MIG.fullmatch(bare)
        parent = inside["gpu"] if inside else (parents or {}).get(bare)
        return canonical_gpu_uuid(parent) if parent else None
    return f"GPU-{bare[4:]}" if bare[:4].lower() == "gpu-" else bare
