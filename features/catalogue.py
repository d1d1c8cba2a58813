"""The fault catalogue: what an Xid, SXid, kernel event or node-state reason says about health.

The catalogue's rows are read elsewhere, and turning evidence into incidents is not done here.

A row of the catalogue has these columns, all text, empty where not given:

- `kind`: kind of health event the row is about (`xid`, `sxid`, `off_bus`, `gsp`, `aer`, `link`,
  ...), or `node_state_reason` for the reason text of a node state;
- `code`: Xid or SXid code the row is limited to;
- `pattern`: regular expression (Rust syntax) the message or reason must contain;
- `role`: `primary` (a fault by itself), `secondary` (follows a primary fault; alone it is one only
  where the row has a fault type), `precursor` (a sign, never an incident), `noise` (applications),
  `ignore`; for reasons also `maintenance` (planned work) and `own_action` (our own drain);
- `fault_type`: fault type of a primary, or of a secondary that stands alone;
- `group`: event group of the features, one of `EVENT_GROUPS`; empty for reasons;
- `needs`: what the fault needs, one of `NEEDS`; may be left out as a column;
- `note`: for people.

Order matters twice: an event takes the first row that fits it, and of several faults seen in one
incident the one whose row comes first gives the fault type. Codes without a row stay events of
group `other` and are never incidents.

A site may give rows of its own beside the shipped ones: a row of the same kind, code and pattern
takes the place of the shipped row, any other comes before all of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

import polars as pl
from polars.exceptions import ComputeError

from features.errors import SettingsError
from features.vocabulary import FAULT_TYPES

Role = Literal["primary", "secondary", "precursor", "noise", "ignore", "maintenance", "own_action"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

EVENT_GROUPS: Final = ("hbm", "precursor", "off_bus", "nvlink", "app", "other")

CATALOGUE_COLUMNS: Final = ("kind", "code", "pattern", "role", "fault_type", "group", "note")
"""The columns that a catalogue must have; `needs` may be there too."""

NEEDS: Final = ("restart_app", "reset", "drain_reset", "reboot", "inspect", "replace")
"""What a fault needs: the application alone started anew, the GPU reset (with the node drained
first or not), the node booted anew, a look at cables, power and cooling, or another part."""

REASON_KIND: Final = "node_state_reason"

_RULE_SCHEMA: Final = pl.Schema(
    {
        "rank": pl.Int64(),
        "kind": pl.String(),
        "code": pl.Int32(),
        "pattern": pl.String(),
        "role": pl.String(),
        "fault_type": pl.String(),
        "group": pl.String(),
    }
)

_LARGEST_CODE: Final = 2**31 - 1

_REASON_ROLES: Final = ("maintenance", "own_action")


@dataclass(frozen=True)
class FaultRule:
    """One row of the catalogue.

    Attributes:
        kind: Kind of health event, or `node_state_reason`.
        code: The only code the rule is about; None: any or none.
        pattern: What the text must contain; None: anything.
        role: What such an event is.
        fault_type: Fault type, where it can be a fault.
        group: Event group of the features.
        note: For people.
        needs: What the fault needs; None: not said.
    """

    kind: str
    code: int | None
    pattern: str | None
    role: Role
    fault_type: str | None
    group: str | None
    note: str
    needs: str | None = None

    @property
    def key(self) -> tuple[str, int | None, str | None]:
        """What it is about; no two rules of a catalogue share it."""
        return (self.kind, self.code, self.pattern)


@dataclass(frozen=True)
class FaultCatalogue:
    """Rules in order, with the version that every incident typed by them carries.

    Attributes:
        version: Version of the rules, stored on incidents.
        rules: The rules; the first that fits an event decides.
    """

    version: str
    rules: tuple[FaultRule, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, str]], *, version: str) -> "FaultCatalogue":
        """Builds a catalogue from text rows, as a CSV reader gives them.

        Args:
            rows: Rows with the columns of this module's docstring.
            version: Version to store on incidents, not empty.

        Raises:
            SettingsError: A column is missing, a word is not one of the allowed ones, a code is
                not a number, a pattern is no regular expression, or a row is given twice.
        """
        if not version:
            raise SettingsError(
                "fault catalogue: version is empty. Give one; incidents carry it so that their "
                "fault types can be traced."
            )
        return cls(version, _rules_from_rows(rows, of="fault catalogue"))

    def with_overrides(
        self, rows: Iterable[Mapping[str, str]], *, version: str
    ) -> "FaultCatalogue":
        """The catalogue with a site's own rows: each replaces its like, or comes before all others.

        Args:
            rows: Rows as for `from_rows`.
            version: Version of the rows; incidents carry both.

        Raises:
            SettingsError: As in `from_rows`; the text names the row of the overrides.
        """
        own = {rule.key: rule for rule in _rules_from_rows(rows, of="fault overrides")}
        known = {REASON_KIND, *(rule.kind for rule in self.rules)}
        unknown = sorted({rule.kind for rule in own.values()} - known)
        if unknown:
            # A misspelt kind would change nothing, without a word.
            raise SettingsError(
                f"fault overrides: kind {unknown[0]!r} is not in the catalogue, whose kinds are "
                f"{', '.join(sorted(known))}. Mend it, or give the catalogue a row of that kind."
            )
        kept = tuple(own.pop(rule.key, rule) for rule in self.rules)
        return FaultCatalogue(f"{self.version}+{version}", (*own.values(), *kept))

    def classify(self, events: pl.DataFrame) -> pl.DataFrame:
        """Adds what each health event is.

        Args:
            events: core/health_events.

        Returns:
            The same rows in order with `role`, `fault_type`, `group` (`other` without a rule) and
            `rank` (i64, the rule's place in the catalogue; null without a rule).
        """
        kinds = pl.col("kind")
        matched = self._match(events, kind=kinds, code=pl.col("code"), text=pl.col("message"))
        return matched.with_columns(pl.col("group").fill_null("other"))

    def classify_reasons(self, states: pl.DataFrame) -> pl.DataFrame:
        """Adds what the reason of each node state says.

        Args:
            states: core/node_states.

        Returns:
            The same rows in order with `role`, `fault_type`, `group` and `rank`, null where no
            rule fits.
        """
        no_code = pl.lit(None, pl.Int32)
        return self._match(states, kind=pl.lit(REASON_KIND), code=no_code, text=pl.col("reason"))

    def _match(
        self, frame: pl.DataFrame, *, kind: pl.Expr, code: pl.Expr, text: pl.Expr
    ) -> pl.DataFrame:
        """Adds role, fault_type, group and rank of the first rule that fits each row."""
        rules = pl.DataFrame(
            [
                (rank, r.kind, r.code, r.pattern, r.role, r.fault_type, r.group)
                for rank, r in enumerate(self.rules)
            ],
            schema=_RULE_SCHEMA,
            orient="row",
        )
        plain = rules.filter(pl.col("pattern").is_null())
        of_code = plain.filter(pl.col("code").is_not_null())
        of_kind = plain.filter(pl.col("code").is_null())
        keyed = frame.with_columns(kind.alias("_kind"), code.alias("_code"))
        keyed = keyed.join(
            of_code.select(pl.col("kind", "code", "rank").name.prefix("_")),
            on=["_kind", "_code"],
            how="left",
            maintain_order="left",
        ).join(
            of_kind.select(pl.col("kind").alias("_kind"), pl.col("rank").alias("_kind_rank")),
            on="_kind",
            how="left",
            maintain_order="left",
        )
        ranks = [pl.col("_rank"), pl.col("_kind_rank")]
        for rank, rule in enumerate(self.rules):
            if rule.pattern is None:
                continue
            fits = pl.col("_kind") == rule.kind
            if rule.code is not None:
                fits &= pl.col("_code") == rule.code
            # Null text where the rule cannot apply keeps the expression engine off most rows.
            is_match = pl.when(fits).then(text).str.contains(rule.pattern)
            ranks.append(pl.when(is_match).then(pl.lit(rank, pl.Int64)))
        ranked = keyed.with_columns(pl.min_horizontal(ranks).alias("rank"))
        return ranked.select(*frame.columns, "rank").join(
            rules.select("rank", "role", "fault_type", "group"),
            on="rank",
            how="left",
            maintain_order="left",
        )


def _rules_from_rows(rows: Iterable[Mapping[str, str]], *, of: str) -> tuple[FaultRule, ...]:
    """Checks rows; `of` names the file they are of, for messages."""
    rules: list[FaultRule] = []
    seen: dict[tuple[str, int | None, str | None], int] = {}
    for number, row in enumerate(rows, start=1):
        rule = _rule_from_row(row, f"{of}, row {number}")
        if rule.key in seen:
            raise SettingsError(
                f"{of}, row {number}: the same kind, code and pattern as row {seen[rule.key]} "
                f"({rule.kind}, {rule.code}, {rule.pattern}). Delete one of them."
            )
        seen[rule.key] = number
        rules.append(rule)
    return tuple(rules)


def _rule_from_row(row: Mapping[str, str], where: str) -> FaultRule:
    """One checked rule; `where` is its file and row, for messages."""
    cell = _cells(row, where)
    _check_kind(where, cell["kind"])
    code = _code_of(where, cell["code"])
    role = _role_of(where, cell["role"], kind=cell["kind"])
    _check_word(where, "fault_type", cell["fault_type"], FAULT_TYPES)
    _check_word(where, "group", cell["group"], EVENT_GROUPS)
    _check_word(where, "needs", cell["needs"], NEEDS)
    if role == "primary" and not cell["fault_type"]:
        raise SettingsError(
            f"{where}: a primary needs a fault_type, one of {', '.join(FAULT_TYPES)}. Fill it in."
        )
    if cell["pattern"]:
        _check_pattern(where, cell["pattern"])
    return FaultRule(
        kind=cell["kind"],
        code=code,
        pattern=cell["pattern"] or None,
        role=role,
        fault_type=cell["fault_type"] or None,
        group=cell["group"] or None,
        note=cell["note"],
        needs=cell["needs"] or None,
    )


def _cells(row: Mapping[str, str], where: str) -> dict[str, str]:
    """The cells by column; all columns are there but `needs`, which may be absent."""
    missing = [name for name in CATALOGUE_COLUMNS if name not in row]
    if missing:
        raise SettingsError(
            f"{where}: column {missing[0]!r} is missing, found {', '.join(row)}. "
            f"The columns are {', '.join(CATALOGUE_COLUMNS)}."
        )
    return {name: (row.get(name) or "").strip() for name in (*CATALOGUE_COLUMNS, "needs")}


def _check_kind(where: str, kind: str) -> None:
    if not kind:
        raise SettingsError(f"{where}: kind is empty. Name a kind of event or {REASON_KIND}.")
    if kind != kind.lower():
        raise SettingsError(
            f"{where}: kind {kind!r} fits no event: kinds are in lower case. Mend it."
        )


def _code_of(where: str, text: str) -> int | None:
    """The code; None: the cell is empty."""
    if not text:
        return None
    if not text.isdecimal() or int(text) > _LARGEST_CODE:
        raise SettingsError(
            f"{where}: code must be a whole number to {_LARGEST_CODE}, got {text!r}. Mend it."
        )
    return int(text)


def _role_of(where: str, text: str, *, kind: str) -> Role:
    """The role, where the kind may have it."""
    role = next((role for role in ROLES if role == text), None)
    if role is None:
        raise SettingsError(
            f"{where}: role must be one of {', '.join(ROLES)}, got {text!r}. Choose one."
        )
    if role in _REASON_ROLES and kind != REASON_KIND:
        raise SettingsError(f"{where}: role {role} is for kind {REASON_KIND}, got {kind}.")
    return role


def _check_word(where: str, column: str, word: str, allowed: tuple[str, ...]) -> None:
    if word and word not in allowed:
        raise SettingsError(
            f"{where}: {column} must be empty or one of {', '.join(allowed)}, got {word!r}. "
            "Choose one of them."
        )


def _check_pattern(where: str, pattern: str) -> None:
    """Tries the pattern with the engine that will use it."""
    try:
        pl.Series([""]).str.contains(pattern)
    except ComputeError as error:
        raise SettingsError(
            f"{where}: pattern {pattern!r} is no regular expression: {error}. Mend or empty it."
        ) from error
