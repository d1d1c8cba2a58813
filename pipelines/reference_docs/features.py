"""Writes `docs/features.md`: the table of all features, from the registry.

What a feature is, is declared once by its family's module in `features`; no word of it is here.

Run as `python -m pipelines.reference_docs.features`; a test compares the file with what this module
says.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from features.matrix import PARTS, MatrixSpec, matrix_features
from features.registry import FAMILIES, FAMILY_WORDS, Feature, window_suffix
from features.tables import CORE_TOPOLOGY
from features.telemetry_features import telemetry_features
from pipelines.flow.feature_set import full_telemetry
from pipelines.sources.catalogue import load_catalogue

PAGE: Final = Path(__file__).parents[2] / "docs" / "features.md"

_HEAD: Final = """# Features

One column of the feature matrix per row, in the order of the matrix within each family. Made from
the feature registry by `python -m pipelines.reference_docs.features`; a test fails when this page
is stale.

Nothing at or after the moment of prediction, `as_of`, enters a feature: windows are
`[as_of - w, as_of)`, and what has no fixed window looks at all that lies before `as_of`. *Known*
says when a value is there; null means unknown and is never filled in. The table shows the default
settings; beside it a site has, for each level of its topology such as `rack`, the counts, the
time since the last and the rate that the node has (`rack_incident_count_7d`), and no feature of a
metric that it does not collect.
"""

_FULL: Final = """# Only with `feature_set: full`

Turned on in the [settings](settings.md), beside all of the above. The rack is what the topology
calls one: `rack`, or what the setting `rack_level` says.
"""


def feature_page() -> str:
    """The page in Markdown: one table per family, of a site without topology but racks."""
    nowhere = CORE_TOPOLOGY.empty()
    catalogue = load_catalogue()
    usual = matrix_features(MatrixSpec(catalogue=catalogue), nowhere)
    every = matrix_features(MatrixSpec(catalogue=catalogue, parts=PARTS), nowhere)
    optional = [feature for feature in every if feature not in usual]
    names = {feature.name for feature in usual}
    full = telemetry_features(full_telemetry("rack"))
    added = [feature for feature in full if feature.name not in names]
    head = (
        f"{len(usual)} features by default, {len(usual) + len(added)} with `feature_set: full`.\n"
    )
    parts = [_HEAD, head, *_sections(usual), _FULL, *_sections(added)]
    parts.append("# Off by default\n\nTurned on by naming the part `repairs` in a matrix spec.\n")
    return "\n".join([*parts, *_sections(optional)])


def _sections(features: Sequence[Feature]) -> Iterator[str]:
    for family in FAMILIES:
        members = [feature for feature in features if feature.family == family]
        if members:
            yield _section(FAMILY_WORDS[family], members)


def _section(title: str, features: list[Feature]) -> str:
    lines = [
        f"## {title.capitalize()} ({len(features)})",
        "",
        "| feature | unit | window | meaning | known | from |",
        "|---|---|---|---|---|---|",
    ]
    for feature in features:
        window = window_suffix(feature.window) if feature.window is not None else "-"
        inputs = ", ".join(f"`{name}`" for name in feature.inputs)
        cells = [f"`{feature.name}`", feature.unit, window, feature.meaning, feature.availability]
        lines.append(f"| {' | '.join([*cells, inputs])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(feature_page(), encoding="utf-8")
