"""The rules by which lines of a job's output are classed: reading the rule file, applying it.

Files of jobs are not read here (see `jobs.output`), and which of several classes explains a job is
decided in `features.job_causes`. The file's grammar is told at its top.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import polars as pl
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from features.errors import SettingsError
from features.vocabulary import JOB_CAUSES
from remediation.given_text import given_bytes
from remediation.strict_yaml import parse_yaml

SHIPPED_RULES: Final = Path(__file__).parents[2] / "catalogue" / "job_faults.yaml"

PATTERN_LENGTH: Final = 4000
"""Characters of a pattern; polars' expressions run in linear time, so length is all to bound."""

_GROUPS: Final = frozenset({"node", "rank", "job"})
_MOST_MISTAKES: Final = 5


def _as_pattern(text: str) -> str:
    pattern = f"(?i){text.strip()}"
    try:
        groups = pl.select(pl.lit("").str.extract_groups(pattern)).to_series().struct.fields
    except pl.exceptions.ComputeError as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    unknown = sorted(name for name in groups if not name.isdecimal() and name not in _GROUPS)
    if unknown:
        raise ValueError(f"group {', '.join(unknown)} is not known; use node, rank or job")
    return pattern


def _as_marker(text: object) -> object:
    if isinstance(text, str) and (not text.strip() or not text.isascii() or "\n" in text):
        raise ValueError(f"{text!r} is no marker; write plain ASCII text of one line")
    return text.lower() if isinstance(text, str) else text


Pattern = Annotated[str, Field(max_length=PATTERN_LENGTH), AfterValidator(_as_pattern)]
Marker = Annotated[str, BeforeValidator(_as_marker)]
Role = Literal["root", "collateral", "ignore"]


class JobRule(BaseModel):
    """One rule.

    Attributes:
        name: Its name, kept with every row.
        markers: Plain texts in lower case, one of which the line must hold.
        at: `exception` asks for the last line of a traceback instead of a marker.
        pattern: Regular expression (Rust syntax, any case) that must fit too.
        fault_class: What it says went wrong.
        cause: What that means for the job, one of `features.vocabulary.JOB_CAUSES`.
        priority: Of all that fit, the lowest explains the job.
        role: `collateral` where another process' end brings it about; `ignore` drops the line.
        min_count: Fewer lines in a file say nothing.
        example: A line it fits.
        note: For people.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=80)
    markers: tuple[Marker, ...] = ()
    at: Literal["any", "exception"] = "any"
    pattern: Pattern | None = None
    fault_class: str = Field("ignored", min_length=1, max_length=80)
    cause: str = "unknown"
    priority: int = Field(100, ge=0, le=999)
    role: Role = "root"
    min_count: int = Field(1, ge=1)
    example: str = Field(min_length=1)
    note: str = ""

    @model_validator(mode="after")
    def _is_complete(self) -> "JobRule":
        if self.cause not in JOB_CAUSES:
            raise ValueError(f"cause {self.cause!r} is none of {', '.join(JOB_CAUSES)}")
        if (self.at == "exception") == bool(self.markers):
            raise ValueError("give either markers or at: exception")
        if self.role != "ignore" and not {"fault_class", "priority"} <= self.model_fields_set:
            raise ValueError("fault_class and priority are needed")
        return self


@dataclass(frozen=True)
class RuleHit:
    """A line that a rule fits.

    Attributes:
        rule: The rule.
        node: Node that the line names.
        rank: Rank that the line names.
        job: Job id that the line names.
    """

    rule: JobRule
    node: str | None = None
    rank: int | None = None
    job: str | None = None


@dataclass(frozen=True)
class JobRules:
    """A rule file.

    Attributes:
        rules: The rules in order.
        version: Name and start of the content's SHA-256.
    """

    rules: tuple[JobRule, ...]
    version: str

    @cached_property
    def markers(self) -> Mapping[str, tuple[int, ...]]:
        """Each marker in lower case with the places of the rules that have it."""
        found: dict[str, list[int]] = {}
        for place, rule in enumerate(self.rules):
            for marker in dict.fromkeys(rule.markers):
                found.setdefault(marker, []).append(place)
        return {marker: tuple(places) for marker, places in found.items()}

    @cached_property
    def exception_rules(self) -> tuple[int, ...]:
        """Places of the rules for the last line of a traceback."""
        return tuple(at for at, rule in enumerate(self.rules) if rule.at == "exception")

    def hits(self, lines: Sequence[str], candidates: Sequence[set[int]]) -> list[RuleHit | None]:
        """Finds the first rule that fits each line.

        Args:
            lines: Lines.
            candidates: Per line the places of rules whose marker (or position) is given.

        Returns:
            Per line the first of its candidates whose pattern fits, or None.
        """
        found: list[RuleHit | None] = [None] * len(lines)
        by_rule: dict[int, list[int]] = {}
        for at, places in enumerate(candidates):
            for place in places:
                by_rule.setdefault(place, []).append(at)
        for place in sorted(by_rule):
            rule = self.rules[place]
            for at, hit in _hits_of(rule, [a for a in by_rule[place] if found[a] is None], lines):
                found[at] = hit
        return found

    def class_of(self, line: str, *, is_exception: bool = False) -> RuleHit | None:
        """The slow, plain way for a single line: tries every rule in order.

        Args:
            line: A line.
            is_exception: Whether it is the last line of a traceback.

        Returns:
            The first rule that fits.
        """
        lower = line.lower()
        for rule in self.rules:
            if rule.at == "exception":
                fits = is_exception
            else:
                fits = any(marker in lower for marker in rule.markers)
            hit = _hits_of(rule, [0], [line]) if fits else []
            if hit:
                return hit[0][1]
        return None


def load_job_rules(path: Path | None = None) -> JobRules:
    """Reads a rule file.

    Args:
        path: YAML file; None: the shipped one.

    Returns:
        The rules.

    Raises:
        SettingsError: It cannot be read, is no YAML, or breaks the grammar; a rule that does not
            fit its own example does too.
    """
    path = path or SHIPPED_RULES
    try:
        data = given_bytes(path)
        document: Any = parse_yaml(data.decode())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(
            f"rules for job output {path} cannot be read: {error}. Give a UTF-8 YAML file like "
            f"the shipped {SHIPPED_RULES.name}, or none to use that."
        ) from error
    entries = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries or set(document) != {"rules"}:
        raise SettingsError(
            f"rules for job output {path}: expected one key, rules, with a list of rules. "
            f"See {SHIPPED_RULES.name} for the grammar."
        )
    rules = JobRules(_checked(entries, path), f"{path.stem}@{hashlib.sha256(data).hexdigest()[:8]}")
    for rule in rules.rules:
        if not _hits_of(rule, [0], [rule.example]) or not _has_marker(rule):
            raise SettingsError(
                f"rules for job output {path}: rule {rule.name!r} does not fit its own example "
                f"{rule.example!r}. Correct its markers, its pattern or the example."
            )
    return rules


def _checked(entries: Sequence[Any], path: Path) -> tuple[JobRule, ...]:
    rules, mistakes = [], []
    for number, entry in enumerate(entries, start=1):
        name = entry.get("name", number) if isinstance(entry, dict) else number
        try:
            rules.append(JobRule.model_validate(entry))
        except ValidationError as error:
            for part in error.errors():
                where = ".".join(map(str, part["loc"])) or "rule"
                mistakes.append(
                    f"rule {name}, {where}: {part['msg'].removeprefix('Value error, ')}"
                )
    names = [rule.name for rule in rules]
    mistakes += [
        f"rule {name} is given twice" for name in sorted(set(names)) if names.count(name) > 1
    ]
    if mistakes:
        more = f" (and {len(mistakes) - _MOST_MISTAKES} more)"
        raise SettingsError(
            f"rules for job output {path}: {'; '.join(mistakes[:_MOST_MISTAKES])}"
            f"{more if len(mistakes) > _MOST_MISTAKES else ''}. Correct them there."
        )
    return tuple(rules)


def _has_marker(rule: JobRule) -> bool:
    return rule.at == "exception" or any(m in rule.example.lower() for m in rule.markers)


def _hits_of(
    rule: JobRule, places: Sequence[int], lines: Sequence[str]
) -> list[tuple[int, RuleHit]]:
    """The places of the lines that the rule's pattern fits, with what its groups found."""
    if not places:
        return []
    if rule.pattern is None:
        return [(at, RuleHit(rule)) for at in places]
    texts = pl.Series("line", [lines[at] for at in places], dtype=pl.String)
    fits = texts.str.contains(rule.pattern)
    if not fits.any():
        return []
    fitting = [at for at, is_fit in zip(places, fits, strict=True) if is_fit]
    if "(?P<" not in rule.pattern:
        return [(at, RuleHit(rule)) for at in fitting]
    groups = texts.filter(fits).str.extract_groups(rule.pattern).struct.unnest().to_dicts()
    return [
        (at, RuleHit(rule, row.get("node"), _rank(row.get("rank")), row.get("job")))
        for at, row in zip(fitting, groups, strict=True)
    ]


_MOST_DIGITS: Final = 9  # ranks are 32-bit numbers


def _rank(text: str | None) -> int | None:
    is_rank = text is not None and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text or "") if is_rank else None
