"""`forewarn config check`: reads all documents of an installation and tells every problem at once.

Nothing is asked of any server: that is `pipelines.doctor.examination`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from features.errors import ForewarnError
from pipelines.config.documents import Checked, Problem, check_document
from pipelines.config.rules import Told, check_hook, check_settings, check_site
from pipelines.config.secret_files import check_secrets
from pipelines.config.yaml_lines import Document, read_document
from pipelines.sections.environment_values import Given, given_by, laid_over
from pipelines.settings import Settings, settings_from
from pipelines.sources.history.mapping import HistoryMapping
from pipelines.sources.jobs.rules import load_job_rules
from pipelines.sources.site.input_base import FileInput
from pipelines.sources.site.inputs import HistoryInput, InputList, JobOutputInput
from pipelines.sources.site.listing import SiteInputs
from remediation.hook_settings import HookSettings, load_hook_settings
from remediation.site import Site

_SETTINGS: Final = "docs/settings.md"
_INPUTS: Final = "docs/inputs.md"
_REMEDIATION: Final = "docs/remediation.md"
FINE: Final = 0
WARNINGS: Final = 1
ERRORS: Final = 2


@dataclass(frozen=True)
class ConfigReport:
    """What is wrong with an installation's documents.

    Attributes:
        files: The documents that were read.
        problems: What is wrong, in the order of the documents.
    """

    files: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def exit_code(self) -> Literal[0, 1, 2]:
        """0: nothing, 1: warnings only, 2: errors."""
        if any(one.level == "error" for one in self.problems):
            return ERRORS
        return WARNINGS if self.problems else FINE

    def words(self) -> str:
        """One line for each problem, and how many there are."""
        n_errors = sum(one.level == "error" for one in self.problems)
        counts = f"{n_errors} errors, {len(self.problems) - n_errors} warnings"
        lines = [one.words() for one in self.problems]
        return "\n".join([*lines, f"{counts} in {len(self.files)} files"])

    def json(self) -> str:
        """The same for programs."""
        problems = [one.values() for one in self.problems]
        return json.dumps({"files": self.files, "problems": problems}, indent=2, default=str)


def check_config(
    path: Path, *, hook: Path | None, environment: Mapping[str, str], now: datetime
) -> ConfigReport:
    """Checks settings, inputs, mappings, overrides, the site file and the hook's settings.

    Args:
        path: Settings file.
        hook: The hook's settings file; None: it is not looked at.
        environment: Variables of the process.
        now: The present.
    """
    checking = _Checking(environment, now)
    settings = checking.settings(path)
    if hook is not None:
        checking.hook(hook, settings)
    # A site file may be named by the settings and by the hook's.
    files, problems = dict.fromkeys(checking.files), dict.fromkeys(checking.problems)
    return ConfigReport(tuple(files), tuple(problems))


@dataclass
class _Checking:
    """Goes from document to document and keeps what it finds."""

    environment: Mapping[str, str]
    now: datetime
    files: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def settings(self, path: Path) -> Settings | None:
        document, given = self._read(path), given_by(self.environment, Settings)
        self.problems += _of_variables(given)
        content = document.content
        if isinstance(content, dict):
            content = laid_over(content, given.values)
        checked = check_document(
            document,
            Settings,
            guide=_SETTINGS,
            content=content,
            variables={one.key: one.variable for one in given.values},
        )
        self.problems += checked.problems
        settings = None
        if checked.value is not None:
            settings = settings_from(document.content, origin=path, given=given.values)
            self.problems += check_settings(settings, Told(checked), now=self.now)
            self.problems += check_secrets(checked, self.environment)
        if isinstance(inputs := _named(content, "inputs"), str):
            self.inputs(path.parent / inputs)
        if isinstance(site := _named(content, "remediation"), str):
            self._site(path.parent / site, settings)
        return settings

    def inputs(self, path: Path) -> None:
        """The list of inputs, and each file of mappings and rules that it names."""
        document = self._read(path)
        checked = check_document(document, InputList, guide=_INPUTS)
        self.problems += checked.problems
        if checked.value is not None:
            self.problems += check_secrets(checked, self.environment)
        entries = _named(document.content, "inputs")
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            if isinstance(entry, dict):
                self._input(checked, number, entry)

    def _input(self, checked: Checked[InputList], number: int, entry: dict[str, Any]) -> None:
        """One entry by itself: others may be wrong."""
        path, tell = checked.document.path, Told(checked)
        zone = _named(checked.document.content, "time_zone")
        try:
            listed = InputList.model_validate({"site": "", "time_zone": zone, "inputs": [entry]})
        except ValidationError:
            return  # told already, with its line
        spec = listed.inputs[0]
        if isinstance(spec, HistoryInput):
            mapping = self._read(path.parent / spec.mapping)
            self.problems += check_document(mapping, HistoryMapping, guide=_INPUTS).problems
        try:
            if isinstance(spec, JobOutputInput) and spec.rules is not None:
                load_job_rules(path.parent / spec.rules)
            if isinstance(spec, FileInput):
                SiteInputs(listed, path).files(spec)
        except ForewarnError as error:
            said = str(error).removeprefix(f"{path}: ").rstrip(".")
            self.problems.append(tell("inputs", number, expected=said, do=f"See {_INPUTS}."))

    def _site(self, path: Path, settings: Settings | None) -> None:
        checked = check_document(self._read(path), Site, guide=_REMEDIATION)
        self.problems += checked.problems
        if checked.value is not None and settings is not None:
            self.problems += check_site(settings, checked.value, Told(checked))

    def hook(self, path: Path, settings: Settings | None) -> None:
        """The hook's settings, and the site file that it may name."""
        document = self._read(path)
        content, site = document.content, _named(document.content, "site")
        if isinstance(site, str):
            self._site(path.parent / site, settings)
            content = {key: value for key, value in content.items() if key != "site"}
        checked = check_document(document, HookSettings, guide=_REMEDIATION, content=content)
        self.problems += checked.problems
        if checked.value is None:
            return
        self.problems += check_secrets(checked, self.environment)
        if settings is None:
            return
        try:
            hook = load_hook_settings(path)
        except ForewarnError:
            return  # the site file is wrong, which is told
        self.problems += check_hook(settings, hook, Told(checked))
        if not isinstance(site, str):
            self.problems += check_site(settings, hook.site, Told(checked))

    def _read(self, path: Path) -> Document:
        self.files.append(str(path))
        return read_document(path)


def _of_variables(given: Given) -> Iterator[Problem]:
    for name, wrong in given.mistakes.items():
        yield Problem(
            file="environment", key=name, expected=wrong, do=f"See {_SETTINGS}, or unset it."
        )


def _named(content: Any, key: str) -> Any:
    return content.get(key) if isinstance(content, dict) else None
