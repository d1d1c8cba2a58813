"""The command `forewarn remediate metrics`: the hook's state for Prometheus.

No logic: the metrics are in `remediation.program.metrics`, the server in `pipelines.serving`.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

_LOOPBACK: Final = "127.0.0.1:9185"
_HOOK: Final = Path("/etc/forewarn/hook.yaml")


def metrics(
    hook: Annotated[
        Path | None,
        typer.Option(
            "--hook",
            help=f"Settings; default: $FOREWARN_HOOK, else {_HOOK}.",
            metavar="FILE",
            envvar="FOREWARN_HOOK",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="Address and port to serve on.", metavar="HOST:PORT")
    ] = _LOOPBACK,
) -> None:
    """Serve what the hook is at to Prometheus at /metrics until Ctrl-C; run it as the hook."""
    from pipelines.serving.metrics_server import serve_metrics
    from remediation.hook_settings import load_hook_settings
    from remediation.program.metrics import hook_registry

    registry = hook_registry(load_hook_settings(hook or _HOOK))
    serve_metrics(registry, listen=listen, say=lambda line: typer.echo(line, err=True))
