"""What is said where a server cannot listen on its address.

Addresses themselves are read in `pipelines.serving.metrics_server` and `pipelines.api.access`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from features.errors import SettingsError


@contextmanager
def listening(address: str) -> Iterator[None]:
    """Names the address that an operating system's refusal is about.

    Args:
        address: Host and port.

    Raises:
        SettingsError: It is taken, it is none of this machine's, or it may not be used.
    """
    try:
        yield
    except OSError as error:
        # What resolves names has numbers of its own, below zero.
        number = error.errno or 0
        cause = (os.strerror(number) if number > 0 else str(error.strerror or error)).lower()
        raise SettingsError(
            f"cannot listen on {address}: {cause}. `ss -ltnp` shows who listens where; "
            "stop that, or give another address by --listen."
        ) from error
