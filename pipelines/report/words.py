"""Numbers, times and names of a report as text.

No table and no plot; escaping for HTML is the template's.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from models.evaluation.row_metrics import Estimate

UNKNOWN = "unknown"
_SPACE = "\u00a0"
_REPLACEMENT = "\ufffd"

ACTION_WORDS = {
    "none": "Nothing to do",
    "watch": "Watch",
    "cordon": "Cordon: no new jobs",
    "drain_after_jobs": "Drain after its jobs end",
    "checkpoint_then_drain": "Checkpoint jobs, then drain",
    "drain_now": "Drain now",
}

FAULT_WORDS = {
    "hbm_uncorrectable": "uncorrectable HBM error",
    "row_remap_failure": "row remap failure",
    "off_bus": "GPU off the bus",
    "gsp": "GSP firmware",
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "thermal": "thermal",
    "power": "power",
    "nic_fabric": "NIC or fabric",
    "host": "host",
    "sdc": "silent data corruption",
    "other_gpu": "other GPU fault",
}


@dataclass(frozen=True)
class Tile:
    """One number in large type."""

    value: str
    label: str
    note: str


def fault_words(fault_type: str | None) -> str:
    """A fault type as a reader would say it."""
    return UNKNOWN if fault_type is None else FAULT_WORDS.get(fault_type, plain(fault_type))


def percent(share: float | None) -> str:
    """A share as a percentage, with as many digits as it deserves.

    >>> [percent(share).replace(chr(160), " ") for share in (0.4213, 0.0642, 0.0002, 0.0, None)]
    ['42 %', '6.4 %', '<0.1 %', '0 %', 'unknown']
    """
    if share is None:
        return UNKNOWN
    if 0.0 < share < 0.0005:
        return f"<0.1{_SPACE}%"
    if 0.995 <= share < 1.0:
        return f">99{_SPACE}%"
    digits = 1 if 0.0 < share < 0.0995 else 0
    return f"{100 * share:.{digits}f}{_SPACE}%"


def round_percent(share: float) -> str:
    """A round share, such as an axis tick, without digits it does not need.

    >>> [round_percent(share).replace(chr(160), " ") for share in (0.01, 0.003, 0.15)]
    ['1 %', '0.3 %', '15 %']
    """
    return f"{100 * share:.3g}{_SPACE}%"


def number(value: float | None, digits: int = 3) -> str:
    """A number of fixed digits, or "unknown"."""
    return UNKNOWN if value is None else minus(f"{value:.{digits}f}")


def minus(text: str) -> str:
    """A formatted number with a minus sign that no line break follows."""
    return text.replace("-", "\u2212")


def interval(estimate: Estimate, digits: int = 3) -> str:
    """The interval of an estimate, without its value; empty where it has none."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{number(estimate.low, digits)} to {number(estimate.high, digits)}"


def percent_interval(estimate: Estimate) -> str:
    """The interval of a share."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{percent(estimate.low)} to {percent(estimate.high)}"


def moment(at: datetime) -> str:
    """A time to the minute, UTC."""
    return f"{at:%Y-%m-%d %H:%M}{_SPACE}UTC"


def hours(value: float) -> str:
    """A duration in the unit a person would use.

    >>> [hours(value).replace(chr(160), " ") for value in (0.5, 7.25, 24, 100)]
    ['30 min', '7.2 h', '24 h', '4.2 d']
    """
    if value < 1:
        return f"{60 * value:.0f}{_SPACE}min"
    if value > 72:
        return f"{value / 24:.1f}".removesuffix(".0") + f"{_SPACE}d"
    return f"{value:.1f}".removesuffix(".0") + f"{_SPACE}h"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun.

    >>> counted(1, "node"), counted(1200, "node"), counted(2, "entry", "entries")
    ('1 node', '1,200 nodes', '2 entries')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def plain(text: str) -> str:
    """Text from outside without characters that steer a terminal, a page or an XML parser.

    >>> plain("node" + chr(27) + "[31m")
    'node�[31m'
    """
    return "".join(
        " " if sign in "\t\r\n" else _REPLACEMENT if unicodedata.category(sign)[0] == "C" else sign
        for sign in text
    )


def without_domain(names: Sequence[str]) -> list[str]:
    """Names without the domain that all of them share, which tells nothing apart.

    >>> without_domain(["a-1.gpu.site", "b.gpu.site"]), without_domain(["a.x", "b"])
    (['a-1', 'b'], ['a.x', 'b'])
    """
    domains = {name.partition(".")[2] for name in names}
    if len(domains) != 1 or domains == {""}:
        return list(names)
    return [name.partition(".")[0] for name in names]


def short(text: str, limit: int) -> str:
    """Text of at most `limit` characters; a long one loses its middle, for ends tell names apart.

    >>> short("GPU-5d3a81f2-0000-7777", 11)
    'GPU-5…-7777'
    """
    text = plain(text)
    if len(text) <= limit:
        return text
    front = (limit - 1) // 2
    return f"{text[:front]}…{text[-(limit - 1 - front) :]}"
