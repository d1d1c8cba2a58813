"""Places of nodes from their names: racks, rows, switches and pools, to `core/topology`.

Places that a file lists come through a mapping (`pipelines.sources.history.mapping`).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import polars as pl
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from features.tables import CORE_TOPOLOGY
from pipelines.sources.result import ReadTally, SourceResult

SOURCE: Final = "places"

PATTERN_LENGTH: Final = 1000
NAME_LENGTH: Final = 255
"""Bytes a host name may have; a longer one is none."""

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_LEVEL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,49}")


def _as_pattern(pattern: str) -> str:
    try:
        pl.select(pl.lit("").str.extract_groups(pattern))
    except pl.exceptions.ComputeError as error:
        raise ValueError(f"{pattern!r} is no regular expression (Rust syntax): {error}") from error
    return pattern


class PlaceRule(BaseModel):
    r"""How the names of some nodes tell where they stand.

    Patterns run in time linear in the name, whatever they are.

    Attributes:
        pattern: Regular expression on the node's name, in Rust syntax, with named groups.
        places: Level -> place, with `{group}` for what a group matched. A level whose groups
            matched nothing gives no place.

    Example:
        >>> rule = PlaceRule(
        ...     pattern=r"^(?P<rack>r\d+)n(?P<unit>\d+)$", places={"rack": "{rack}", "row": "A"}
        ... )
        >>> places_by_name(["r07n12"], [rule]).table("core/topology")["place"].to_list()
        ['r07', 'A']
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pattern: Annotated[
        str, Field(min_length=1, max_length=PATTERN_LENGTH), AfterValidator(_as_pattern)
    ]
    places: dict[str, str] = Field(min_length=1, max_length=20)

    @model_validator(mode="after")
    def _names_its_groups(self) -> "PlaceRule":
        groups = set(self.groups)
        for level, text in self.places.items():
            if not _LEVEL.fullmatch(level):
                raise ValueError(f"{level!r} is no name of a level; write one such as rack")
            unknown = sorted(set(_PLACEHOLDER.findall(text)) - groups)
            if unknown:
                raise ValueError(
                    f"{level} names {', '.join(unknown)}; the pattern's groups are "
                    f"{', '.join(sorted(groups)) or '(none)'}"
                )
            if not text.strip() or "{" in _PLACEHOLDER.sub("", text):
                raise ValueError(f"{level}: {text!r} is no place; write one such as {{rack}}")
        return self

    @property
    def groups(self) -> tuple[str, ...]:
        """The named groups of the pattern."""
        found = pl.select(pl.lit("").str.extract_groups(self.pattern)).to_series()
        return tuple(name for name in found.struct.fields if not name.isdecimal())


def places_by_name(
    nodes: Iterable[str], rules: Sequence[PlaceRule], *, origin: str = "node names"
) -> SourceResult:
    """Places nodes by their names.

    Args:
        nodes: Names of nodes; repeats count once.
        rules: Rules in order; a node takes the first whose pattern matches it.
        origin: What the names come from, for the account.

    Returns:
        `core/topology`, valid at all times, sorted by node and level. Nodes that no rule matches
        are quarantined, with their number and an example: a node without a place takes part in no
        cap on racks, which nobody would notice.
    """
    distinct = sorted(set(nodes))
    tally = ReadTally(table=CORE_TOPOLOGY.asset_key, source=SOURCE, origin=origin)
    tally.read(len(distinct))
    names = [node for node in distinct if _is_name(node)]
    odd = [node for node in distinct if not _is_name(node)]
    if odd:
        broken = f"the node's name does not have 1 to {NAME_LENGTH} bytes of UTF-8"
        tally.quarantined(broken, ascii(odd[0]), count=len(odd))
    left = pl.Series("node", names, dtype=pl.String)
    parts = [CORE_TOPOLOGY.empty()]
    for rule in rules:
        is_match = left.str.contains(rule.pattern)
        placed = _placed(left.filter(is_match), rule)
        n_nodes = placed["node"].n_unique()
        tally.parsed(n_nodes)
        placeless = left.filter(is_match).filter(~left.filter(is_match).is_in(placed["node"]))
        if placeless.len():
            tally.quarantined(
                "the rule that matches the node's name gives it no place",
                placeless[0],
                count=placeless.len(),
            )
        parts.append(placed)
        left = left.filter(~is_match)
    if left.len():
        tally.quarantined("no rule matches the node's name", left[0], count=left.len())
    return tally.result({CORE_TOPOLOGY.asset_key: pl.concat(parts).sort("node", "level")})


def _is_name(node: str) -> bool:
    try:
        return 0 < len(node.encode()) <= NAME_LENGTH
    except UnicodeEncodeError:
        return False


def _placed(nodes: pl.Series, rule: PlaceRule) -> pl.DataFrame:
    """Topology rows of the nodes that a rule matches."""
    groups = nodes.str.extract_groups(rule.pattern)
    columns = {"node": nodes} | {f"group_{name}": groups.struct.field(name) for name in rule.groups}
    frame = pl.DataFrame(columns)
    levels = [
        frame.select(
            "node",
            pl.lit(level).alias("level"),
            _filled(text).alias("place"),
            *(
                pl.lit(None, CORE_TOPOLOGY.schema[name]).alias(name)
                for name in ("valid_from", "valid_to")
            ),
        )
        for level, text in rule.places.items()
    ]
    rows = pl.concat(levels).filter(pl.col("place").is_not_null() & (pl.col("place") != ""))
    return rows.select(CORE_TOPOLOGY.schema.names())


def _filled(text: str) -> pl.Expr:
    """The text with its `{groups}` filled; null where any of them matched nothing."""
    names = _PLACEHOLDER.findall(text)
    return pl.format(_PLACEHOLDER.sub("{}", text), *(f"group_{name}" for name in names))
