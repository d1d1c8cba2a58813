"""Token buckets: how often one caller may ask. Bounded memory, whoever comes.

Who a caller is is decided in `gate`.
"""

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

MOST_CALLERS: Final = 10_000


@dataclass
class RateLimit:
    """A bucket for each caller, filled at `rate_per_s` up to `burst`.

    Attributes:
        rate_per_s: Requests a second.
        burst: Requests at once.
        most: Callers remembered; the one longest unseen is forgotten, and begins anew.
    """

    rate_per_s: float
    burst: int
    most: int = MOST_CALLERS
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def wait_s(self, caller: str, *, now_s: float) -> float:
        """Takes one request out of a caller's bucket.

        Args:
            caller: Who asks.
            now_s: Seconds of a clock that only goes forward.

        Returns:
            0 where it may go on; else seconds until it may ask again.
        """
        left, at = self._buckets.pop(caller, (float(self.burst), now_s))
        left = min(float(self.burst), left + (now_s - at) * self.rate_per_s)
        wait = 0.0 if left >= 1 else (1 - left) / self.rate_per_s
        self._buckets[caller] = (left - 1 if wait == 0 else left, now_s)
        if len(self._buckets) > self.most:
            self._buckets.popitem(last=False)
        return wait


def network_of(host: str) -> str:
    """What an address is counted by: an IPv6 user has 2**64 addresses of their own.

    >>> network_of("10.0.0.1"), network_of("2001:db8::1:2")
    ('10.0.0.1', '2001:db8::/64')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))
