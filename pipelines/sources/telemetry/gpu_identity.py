"""One spelling for a GPU's identity, whoever writes it, and the GPU behind a MIG instance.

Where a GPU sits is not known here.
"""

import re
from collections.abc import Mapping
from typing import Final

from pipelines.sources.telemetry.smi_fields import UNKNOWN

_UUID: Final = re.compile(
    r"(?:gpu-)?(?P<hex>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32})",
    re.ASCII | re.IGNORECASE,
)
_CANONICAL: Final = re.compile(r"GPU-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.ASCII)
_GROUPS: Final = (8, 12, 16, 20)  # where the dashes of a UUID stand among its digits
_MIG: Final = re.compile(r"mig-(?P<gpu>gpu-[0-9a-z-]+)/\d+(?:/\d+)?", re.ASCII | re.IGNORECASE)
_NOTHING: Final = frozenset({"none", "null", "nil"})


def canonical_gpu_uuid(text: str, *, parents: Mapping[str, str] | None = None) -> str | None:
    """Writes a GPU's UUID as `GPU-` and lower-case hexadecimal.

    Args:
        text: The UUID as a source writes it, with or without prefix and dashes, in any case; of a
            MIG instance in the older form it is the GPU in the middle, `MIG-GPU-<uuid>/1/0`.
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
    if _CANONICAL.fullmatch(text):
        return text
    bare = text.strip()
    if UNKNOWN.fullmatch(bare) or bare.strip("[]").lower() in _NOTHING:
        return None
    found = _UUID.fullmatch(bare)
    if found is not None:
        return f"GPU-{_dashed(found['hex'].lower())}"
    if bare[:4].lower() == "mig-":
        inside = _MIG.fullmatch(bare)
        parent = inside["gpu"] if inside else (parents or {}).get(bare)
        return canonical_gpu_uuid(parent) if parent else None
    return f"GPU-{bare[4:]}" if bare[:4].lower() == "gpu-" else bare


def _dashed(digits: str) -> str:
    bare = digits.replace("-", "")
    return "-".join(bare[a:b] for a, b in zip((0, *_GROUPS), (*_GROUPS, 32), strict=True))
