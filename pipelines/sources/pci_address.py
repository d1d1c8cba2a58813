"""PCI addresses in one spelling, so that a device compares equal however a source writes it.

Which GPU sits at an address is not known here (that is the inventory).
"""

import re
from typing import Final

PCI_PATTERN: Final = (
    r"(?:[Pp][Cc][Ii]:)?(?:(?P<domain>[0-9A-Fa-f]{4,8}):)?"
    r"(?P<bus>[0-9A-Fa-f]{2}):(?P<device>[0-9A-Fa-f]{2})(?:\.(?P<function>[0-7]))?"
)
_WHOLE: Final = re.compile(PCI_PATTERN, re.ASCII)
_WITHIN: Final = re.compile(
    r"(?<![0-9A-Fa-f:])(?:[Pp][Cc][Ii]:)?[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}"
    r"(?:\.[0-7])?(?!:?[0-9A-Fa-f])",
    re.ASCII,
)


def canonical_pci(text: str) -> str | None:
    """Writes a PCI address as `dddddddd:bb:dd.f` in lower case.

    Args:
        text: An address as drivers, dmesg and nvidia-smi write it; without a domain it is
            domain 0, without a function function 0.

    Returns:
        The address, or None where the text is none.

    Example:
        >>> canonical_pci("PCI:0008:06:00"), canonical_pci("00000008:06:00.0")
        ('00000008:06:00.0', '00000008:06:00.0')
    """
    found = _WHOLE.fullmatch(text.strip())
    if found is None:
        return None
    domain = int(found["domain"] or "0", 16)
    function = found["function"] or "0"
    return f"{domain:08x}:{found['bus'].lower()}:{found['device'].lower()}.{function}"


def first_pci(text: str) -> str | None:
    """Finds the first PCI address (with a domain) in a line.

    Args:
        text: Any text.

    Returns:
        The address in canonical spelling, or None.
    """
    found = _WITHIN.search(text)
    return canonical_pci(found.group()) if found else None
