"""What a Prometheus series is about: which GPU by which exporter, which metric, in which unit.

Samples are not looked at here, and field names are in `pipelines.sources.telemetry.dcgm_fields`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal

from features.errors import SettingsError
from features.telemetry_metrics import Metric
from pipelines.sources.pci_address import canonical_pci
from pipelines.sources.telemetry import label_names
from pipelines.sources.telemetry.dcgm_fields import (
    PER_INSTANCE,
    ExporterName,
    exporter_name,
    stated_scale,
)
from pipelines.sources.telemetry.dcgm_names import AMBIGUOUS_NAMES
from pipelines.sources.telemetry.gpu_identity import canonical_gpu_uuid

NODE_LABELS: Final = (*label_names.NODE_LABELS, "instance")
"""Where the node's name is looked for, in order and in any case; `instance` without its port."""

_MATCHER: Final = re.compile(
    r'\s*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<op>=~|!~|!=|=)\s*"(?P<value>(?:[^"\\\n]|\\.)*)"\s*',
    re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\(.)")
_PLAIN: Final = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_PORT: Final = re.compile(r":\d{1,5}$", re.ASCII)
_UNIT: Final = re.compile(r"\(in (?P<unit>[A-Za-z]+)\)")

# The same few texts come with every series of a GPU.
_gpu_uuid: Final = lru_cache(1 << 14)(canonical_gpu_uuid)
_pci: Final = lru_cache(1 << 12)(canonical_pci)

Op = Literal["=", "!=", "=~", "!~"]


@dataclass(frozen=True)
class Matcher:
    """One condition on a label, `job="dcgm"`."""

    name: str
    op: Op
    value: str

    def __str__(self) -> str:
        return f'{self.name}{self.op}"{_escaped(self.value)}"'


def parse_matcher(text: str) -> Matcher:
    r"""Reads a condition as PromQL writes it.

    Args:
        text: The condition.

    Raises:
        SettingsError: It is none.

    Example:
        >>> str(parse_matcher('job =~ "dcgm.*"'))
        'job=~"dcgm.*"'
    """
    found = _MATCHER.fullmatch(text)
    if found is None:
        raise SettingsError(
            f'matcher {text!r} is not of the form label="value" (or !=, =~, !~). '
            f"Write one condition per matcher, in PromQL's spelling."
        )
    value = _ESCAPE.sub(lambda m: _PLAIN.get(m[1], m[0]), found["value"])
    op: Op = found["op"]  # type: ignore[assignment]
    return Matcher(found["name"], op, value)


def any_of(name: str, values: Sequence[str]) -> Matcher:
    """The condition that a label is one of several values.

    Args:
        name: Label.
        values: The values, taken literally.
    """
    return Matcher(name, "=~", "|".join(_quoted(value) for value in values))


def _quoted(value: str) -> str:
    """A value as RE2 takes it literally; `re.escape` would escape what RE2 refuses to see so."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", value)


def selector(matchers: Sequence[Matcher]) -> str:
    """A PromQL selector of all conditions."""
    return "{" + ",".join(str(matcher) for matcher in matchers) + "}"


@dataclass(frozen=True, order=True)
class Line:
    """A GPU as one exporter reports it. Empty text: not said.

    Attributes:
        gpu_uuid: Identity.
        node: Node.
        slot: Index on the node.
        replica: Which of several Prometheus replicas recorded it.
    """

    gpu_uuid: str
    node: str
    slot: str
    replica: str


@dataclass(frozen=True)
class Meaning:
    """What a series measures.

    Attributes:
        line: Whose it is.
        metric: What is measured.
        scale: Factor to the metric's unit.
        part: Part of the metric (a single NVLink), see `dcgm_fields.ExporterName`.
        rank: Place among the names of the metric; of several at one time the lowest counts.
        pci_bus_id: Address of the GPU, where said.
        model: Product name, where said.
    """

    line: Line
    metric: Metric
    scale: float = 1.0
    part: str = ""
    rank: int = 0
    pci_bus_id: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class Series:
    """What is known of a series from its labels.

    Attributes:
        labels: Label -> value.
        meaning: What it measures; None: nothing we use.
        refused: The rule it breaks; its samples go to quarantine.
        key: What series are sorted by: line, metric, name's rank, labels.
    """

    labels: Mapping[str, str]
    meaning: Meaning | None = None
    refused: str | None = None
    key: tuple[object, ...] = ()

    @property
    def text(self) -> str:
        """Name and labels, as PromQL writes them."""
        return series_text(self.labels)


@dataclass(frozen=True)
class Reader:
    """How labels are read.

    Attributes:
        node_labels: Where the node's name is looked for, in order and in any case.
        replica_label: Label that tells replicas apart.
        scales: Factor by name, where the exporter's help text states a unit; None: help texts
            contradict each other.
    """

    node_labels: Sequence[str] = NODE_LABELS
    replica_label: str | None = None
    scales: Mapping[str, float | None] = field(default_factory=dict)

    def read(self, labels: Mapping[str, str]) -> Series:
        """Reads a series' labels.

        Args:
            labels: Label -> value, `__name__` among them.

        Returns:
            What it is about. MIG instances fold into their GPU: values that DCGM gives per
            instance are nobody's, those of the whole GPU are the GPU's.
        """
        name = labels.get("__name__", "")
        known = exporter_name(name)
        if known is None:
            reason = AMBIGUOUS_NAMES.get(name.lower())
            return Series(labels, refused=f"{name} is {reason}" if reason else None)
        lower: dict[str, str] = {}
        for key, value in labels.items():
            if value:
                lower.setdefault(key.lower(), value)
        written = _first(lower, label_names.UUID_LABELS)
        has_instance = bool(_first(lower, label_names.INSTANCE_LABELS))
        is_instance = has_instance or written[:4].lower() == "mig-"
        if is_instance and known.metric.column in PER_INSTANCE:
            return Series(labels)
        gpu_uuid = _gpu_uuid(written)
        if gpu_uuid is None:
            return Series(labels, refused="no UUID label: the GPU is unknown")
        scale = self.scales.get(name, known.scale)
        if scale is None:
            return Series(labels, refused=f"help texts give {name} in several units")
        replica = labels.get(self.replica_label, "") if self.replica_label else ""
        slot = _first(lower, label_names.INDEX_LABELS)
        line = Line(gpu_uuid, self._node(lower), slot, replica)
        return _useful(labels, lower, line=line, known=replace(known, scale=scale))

    def _node(self, lower: Mapping[str, str]) -> str:
        for name in map(str.lower, self.node_labels):
            value = lower.get(name, "")
            if value:
                return _PORT.sub("", value).strip("[]") if name == "instance" else value
        return ""


def _useful(
    labels: Mapping[str, str], lower: Mapping[str, str], *, line: Line, known: ExporterName
) -> Series:
    """A series of which all is known; of counters, links that a label tells apart are parts."""
    link = _first(lower, label_names.LINK_LABELS) if known.metric.kind == "counter" else ""
    meaning = Meaning(
        line,
        known.metric,
        known.scale,
        known.part or link,
        known.rank,
        pci_bus_id=_pci(_first(lower, label_names.PCI_LABELS)),
        model=_first(lower, label_names.MODEL_LABELS) or None,
    )
    place = (line.gpu_uuid, line.node, line.slot, line.replica)
    of_metric = (known.metric.dcgm_id, meaning.part, known.rank)
    return Series(labels, meaning, key=(*place, *of_metric, tuple(sorted(labels.items()))))


def _first(lower: Mapping[str, str], names: Sequence[str]) -> str:
    """The first of several labels that says something."""
    return next((lower[name] for name in names if name in lower), "")


def series_text(labels: Mapping[str, str]) -> str:
    """A series as PromQL writes it, labels sorted."""
    rest = ",".join(
        f'{name}="{_escaped(labels[name])}"' for name in sorted(labels) if name != "__name__"
    )
    return labels.get("__name__", "") + (f"{{{rest}}}" if rest else "")


def _escaped(value: str) -> str:
    if "\\" not in value and '"' not in value and "\n" not in value:
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def help_scales(helps: Mapping[str, Sequence[str]]) -> dict[str, float | None]:
    """Factors that help texts state, for units that changed between exporter releases.

    Args:
        helps: Help texts by name, of all targets.

    Returns:
        Factor by name, where a text states one we know to vary; None where texts disagree.
    """
    scales: dict[str, float | None] = {}
    for name, texts in helps.items():
        known = exporter_name(name)
        if known is None:
            continue
        found = set()
        for text in texts:
            unit = _UNIT.search(text)
            scale = stated_scale(known.metric, unit["unit"]) if unit else None
            if scale is not None:
                found.add(scale)
        if found:
            scales[name] = found.pop() if len(found) == 1 else None
    return scales
