"""What the documents of an installation must say together: times, paths, horizons, who may listen.

What each must say by itself is in its model; files are found in `pipelines.config.check`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from features.errors import ForewarnError
from pipelines.config.documents import Checked, Level, Problem
from pipelines.config.yaml_lines import in_words
from pipelines.retention.guard import needs
from pipelines.sections.known_keys import Place
from pipelines.settings import Settings, SplitSettings
from pipelines.sources.catalogue import load_catalogue
from remediation.hook_settings import HookSettings
from remediation.site import Site

_TICK_MINUTES: Final = 60
_ALERTS_OF_ALL: Final = 1000.0
_LOOPBACK: Final = ("127.", "localhost", "[::1]")


@dataclass(frozen=True)
class Told:
    """Makes problems of one document.

    Attributes:
        checked: The document.
    """

    checked: Checked[Any]

    def __call__(
        self, *place: int | str, expected: str, do: str, got: str = "", level: Level = "error"
    ) -> Problem:
        """A problem at a place."""
        at: Place = place
        return Problem(
            level=level,
            file=str(self.checked.document.path),
            line=self.checked.document.line_of(at),
            key=in_words(at),
            expected=expected,
            got=got,
            do=do,
        )


def check_settings(settings: Settings, tell: Told, *, now: datetime) -> Iterator[Problem]:
    """Rules of the settings file alone, and of the paths that it names.

    Args:
        settings: The installation, its paths as they are found from here.
        tell: Makes problems.
        now: The present.
    """
    yield from _times(settings, tell, now)
    yield from _split(settings, tell)
    yield from _budget(settings, tell)
    yield from _paths(settings, tell)
    yield from _listening(settings, tell)
    yield from _retention(settings, tell, now)


def check_site(settings: Settings, site: Site, tell: Told) -> Iterator[Problem]:
    """Rules of the hook's site beside the settings.

    Args:
        settings: The installation.
        site: What may be done to which nodes.
        tell: Makes problems of the file that holds it.
    """
    if "horizon_h" in site.model_fields_set and site.horizon_h not in settings.horizons_h:
        yield tell(
            "horizon_h",
            expected=f"expected a horizon that is scored, of {_listed(settings.horizons_h)}",
            got=str(site.horizon_h),
            do="Name one of them, or add it to horizons_h of the settings and train.",
        )


def check_hook(settings: Settings, hook: HookSettings, tell: Told) -> Iterator[Problem]:
    """Rules of the hook's own settings beside those of the installation.

    Args:
        settings: The installation.
        hook: The hook, its paths as they are found from here.
        tell: Makes problems of its file.
    """
    if hook.scores.folder.resolve() != settings.scores_dir.resolve():
        yield tell(
            "scores",
            "folder",
            level="warning",
            expected=f"scores of this installation are published in {settings.scores_dir}",
            got=str(hook.scores.folder),
            do="Name that folder, unless it is copied or mounted there.",
        )
    if hook.actuator.kind != "dry_run" and settings.trained_on == "synthetic":
        yield tell(
            "actuator",
            "kind",
            level="warning",
            expected="models trained on synthetic data never lead beyond a recommendation",
            got=hook.actuator.kind,
            do="Leave dry_run until a model is trained on your own record.",
        )
    if not hook.kill_switch.parent.is_dir():
        yield tell(
            "site",
            "kill_switch",
            expected=f"the kill switch's folder {hook.kill_switch.parent} is absent, which stops "
            f"the hook",
            do=f"mkdir -p {hook.kill_switch.parent}",
        )


def _times(settings: Settings, tell: Told, now: datetime) -> Iterator[Problem]:
    if settings.start > now:
        yield tell(
            "start",
            expected="the record begins in the future, so that nothing is scored yet",
            got=settings.start.isoformat(),
            do="Give the first full hour of which there is data.",
        )
    if settings.end is not None and settings.end < now:
        yield tell(
            "end",
            level="warning",
            expected="the record has ended: no new hour is scored",
            got=settings.end.isoformat(),
            do="Leave end out while the record goes on.",
        )
    tick = _TICK_MINUTES + settings.serving.settle_minutes
    if settings.score_ttl_minutes < tick:
        yield tell(
            "score_ttl_minutes",
            level="warning",
            expected=f"scores expire before the next tick can come, {tick:g} min after theirs",
            got=str(settings.score_ttl_minutes),
            do=f"Set {tick + 20:g} or more: the hook does nothing on expired scores.",
        )


def _split(settings: Settings, tell: Told) -> Iterator[Problem]:
    """Each part must be longer than the embargo of each horizon, or no row is left in it."""
    for key, length, level in _parts(settings):
        short = [h for h in settings.horizons_h if length <= settings.lead + _hours(h)]
        if short:
            is_test = level == "warning"
            whose = "outcome of the test is known" if is_test else "row is left to learn from"
            yield tell(
                "split",
                key,
                level=level,
                expected=f"no {whose} for horizon {_listed(short)} h: it takes more than the "
                f"embargo of lead + horizon, {_length(settings.lead + _hours(max(short)))}",
                got=_length(length),
                do="Move the cut, or take the horizon out of horizons_h.",
            )


def _parts(settings: Settings) -> Iterator[tuple[str, timedelta, Level]]:
    """Key, length and weight of each part of the record that a horizon must fit in."""
    split = settings.split
    if isinstance(split, SplitSettings):
        yield "train_until", split.train_until - settings.start, "error"
        yield "valid_until", split.valid_until - split.train_until, "error"
        if settings.end is not None:
            yield "valid_until", settings.end - split.valid_until, "warning"
    elif split is not None:
        yield "valid_days", timedelta(days=split.valid_days), "error"
        yield "test_days", timedelta(days=split.test_days), "warning"


def _budget(settings: Settings, tell: Told) -> Iterator[Problem]:
    budget = settings.alert_budget_per_1000_node_days
    if budget >= _ALERTS_OF_ALL:
        yield tell(
            "alert_budget_per_1000_node_days",
            level="warning",
            expected="with so many alerts each node may raise one every day",
            got=f"{budget:g}",
            do="Give the alerts that a person can look at: 10 is one a day on 100 nodes.",
        )


def _paths(settings: Settings, tell: Told) -> Iterator[Problem]:
    root = settings.data_root
    found = next((one for one in (root, *root.absolute().parents) if one.exists()), Path("/"))
    if not found.is_dir():
        yield tell("data_root", expected=f"{found} is no folder", do="Name a folder.")
    elif not os.access(found, os.W_OK | os.X_OK):
        yield tell(
            "data_root",
            expected=f"{found} cannot be written by this user ({os.geteuid()})",
            do=f"Give this user the folder {root}, or run as the one that has it.",
        )
    try:
        load_catalogue(settings.fault_catalogue, overrides=settings.fault_overrides)
    except ForewarnError as error:
        key = "fault_overrides" if settings.fault_overrides else "fault_catalogue"
        yield tell(key, expected=str(error).rstrip("."), do="Correct the file, or leave it out.")


def _retention(settings: Settings, tell: Told, now: datetime) -> Iterator[Problem]:
    try:
        needed = list(needs(settings, now=now))
    except ForewarnError:
        return  # the list of inputs is wrong, which is told
    for key, days, why in needed:
        kept = getattr(settings.retention, key)
        if kept < days:
            yield tell(
                "retention",
                key,
                level="warning",
                expected=f"{why}: at least {days} days are needed, and until then nothing is "
                f"removed",
                got=str(kept),
                do=f"Set {days} or more (docs/retention.md).",
            )


def _listening(settings: Settings, tell: Told) -> Iterator[Problem]:
    for name, section in (("api", settings.api), ("board", settings.board)):
        if not settings.api.tokens and not section.listen.startswith(_LOOPBACK):
            yield tell(
                name,
                "listen",
                expected="others can reach it, and api.tokens is empty",
                got=section.listen,
                do="Set a token (docs/api.md), or listen on 127.0.0.1.",
            )


def _hours(horizon_h: int) -> timedelta:
    return timedelta(hours=horizon_h)


def _length(time: timedelta) -> str:
    hours = time / timedelta(hours=1)
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} h"


def _listed(numbers: Any) -> str:
    return ", ".join(map(str, numbers))
