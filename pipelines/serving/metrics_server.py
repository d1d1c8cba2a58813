"""Serves the metrics over HTTP, on loopback unless told otherwise.

What the metrics are is in `open_metrics` and `remediation.program.metrics`. They name nodes and
their risk: an address that others can reach needs a network that may see them.
"""

import threading
from collections.abc import Callable
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from features.errors import SettingsError
from pipelines.serving.listening import listening


def start_metrics(
    registry: CollectorRegistry, *, listen: str
) -> tuple[WSGIServer, threading.Thread]:
    """Starts serving in a thread.

    Args:
        registry: The metrics.
        listen: Host and port; port 0 takes a free one.

    Raises:
        SettingsError: The address is none, or cannot be listened on.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"--listen: expected HOST:PORT, such as 127.0.0.1:9184, got {listen!r}")
    with listening(listen):
        return start_http_server(int(port), addr=host.strip("[]"), registry=registry)


def serve_metrics(registry: CollectorRegistry, *, listen: str, say: Callable[[str], None]) -> None:
    """Serves until the process is told to stop.

    Args:
        registry: The metrics.
        listen: Host and port.
        say: Told where.
    """
    server, thread = start_metrics(registry, listen=listen)
    say(f"metrics at http://{listen}/metrics")
    try:
        thread.join()
    except KeyboardInterrupt:
        server.shutdown()
