"""`forewarn doctor`: looks at all that the settings name, at once, and says what to do.

What is looked at is in the modules beside this one; whether the settings say what can be carried
out is `pipelines.config.check`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from pipelines.doctor.hook import hook_probes
from pipelines.doctor.probe import Looked, Probe, look_at_all
from pipelines.doctor.servers import server_probes
from pipelines.doctor.sources import source_probes
from pipelines.doctor.storage import storage_probes
from pipelines.flow.remediate import StoredCluster
from pipelines.settings import Settings, load_settings
from remediation.hook_settings import load_hook_settings
from remediation.plan import plain

_WIDEST: Final = 34


@dataclass(frozen=True)
class Examination:
    """What all probes found.

    Attributes:
        looked: Their findings.
    """

    looked: tuple[Looked, ...]

    @property
    def exit_code(self) -> int:
        """1: something cannot work; else 0."""
        return 1 if any(one.finding.state == "FAIL" for one in self.looked) else 0

    @property
    def is_hung(self) -> bool:
        """Whether a probe was given up, and may still be at work."""
        return any(one.is_hung for one in self.looked)

    def words(self) -> str:
        """A line for each probe: how it stands, what it is, what was found, what to do."""
        width = min(max((len(one.name) for one in self.looked), default=0), _WIDEST)
        lines = [_line(one, width) for one in self.looked]
        counts = {
            state: sum(one.finding.state == state for one in self.looked)
            for state in ("ok", "warn", "FAIL")
        }
        return "\n".join([*lines, ", ".join(f"{n} {state}" for state, n in counts.items())])

    def json(self) -> str:
        """The same for programs."""
        values = [
            {
                "check": one.name,
                "state": one.finding.state,
                "what": one.finding.what,
                "do": one.finding.do,
                "took_ms": one.took_ms,
            }
            for one in self.looked
        ]
        return json.dumps(values, indent=2)


def examine(
    settings: Settings,
    *,
    hook: Path | None,
    now: datetime,
    timeout_s: float,
    sends_test: bool = False,
) -> Examination:
    """Looks at everything, each within its time.

    Args:
        settings: The installation.
        hook: The hook's settings file; None: the hook is left out.
        now: The present.
        timeout_s: Seconds for each probe.
        sends_test: Whether Alertmanager is sent an alert that ends by itself.

    Raises:
        SettingsError: The hook's settings cannot be used.
    """
    probes = probes_of(settings, hook=hook, now=now, sends_test=sends_test)
    return Examination(look_at_all(probes, timeout_s=timeout_s))


def probes_of(
    settings: Settings, *, hook: Path | None, now: datetime, sends_test: bool
) -> Sequence[Probe]:
    """All probes of an installation; as `examine`."""
    probes = [
        *storage_probes(settings, now=now),
        *source_probes(settings.inputs, now=now),
        *server_probes(settings, sends_test=sends_test),
    ]
    if hook is not None:
        probes += hook_probes(
            load_hook_settings(hook),
            now=now,
            core_tables=lambda installation: StoredCluster(load_settings(installation)),
        )
    return probes


def _line(one: Looked, width: int) -> str:
    found = one.finding
    do = f" -> {found.do}" if found.do else ""
    return plain(f"{found.state:<4}  {one.name:<{width}}  {found.what} ({one.took_ms} ms){do}")
