"""What a Prometheus series is about: which GPU by which exporter, which metric, in which unit.

Samples are not looked at here, and field names are in `pipelines.sources.telemetry.dcgm_fields`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from features.errors import SettingsError
from features.telemetry_metrics import Metric
from pipelines.sources.pci_address import canonical_pci
from pipelines.sources.telemetry.dcgm_fields import PER_INSTANCE, exporter_name, stated_scale
from pipelines.sources.telemetry.dcgm_names import AMBIGUOUS_NAMES
from pipelines.sources.telemetry.gpu_identity import canonical_gpu_uuid

NODE_LABELS: Final = ("Hostname", "hostname", "node", "kubernetes_node", "nodename", "instance")
"""Where the node's name is looked for, in order; `instance` without its port."""

UUID_LABELS: Final = frozenset({"uuid", "gpu_uuid"})
"""Labels of the GPU's identity, lower case: exporters have written them in every case."""

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
        node_labels: Where the node's name is looked for, in order.
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
        lower = {key.lower(): value for key, value in labels.items()}
        written = next((lower[key] for key in sorted(UUID_LABELS) if lower.get(key)), "")
        is_instance = bool(lower.get("gpu_i_id")) or written[:4].lower() == "mig-"
        if is_instance and known.metric.column in PER_INSTANCE:
            return Series(labels)
        gpu_uuid = _gpu_uuid(written)
        if gpu_uuid is None:
            return Series(labels, refused="no UUID label: the GPU is unknown")
        scale = self.scales.get(name, known.scale)
        if scale is None:
            return Series(labels, refused=f"help texts give {name} in several units")
        replica = labels.get(self.replica_label, "") if self.replica_label else ""
        line = Line(gpu_uuid, self._node(labels), lower.get("gpu", ""), replica)
        meaning = Meaning(
            line,
            known.metric,
            scale,
            known.part,
            known.rank,
            pci_bus_id=_pci(lower.get("pci_bus_id", "")),
            model=lower.get("modelname") or None,
        )
        key = (
            gpu_uuid,
            line.node,
            line.slot,
            replica,
            known.metric.dcgm_id,
            known.part,
            known.rank,
            tuple(sorted(labels.items())),
        )
        return Series(labels, meaning, key=key)

    def _node(self, labels: Mapping[str, str]) -> str:
        for name in self.node_labels:
            value = labels.get(name, "")
            if value:
                return _PORT.sub("", value).strip("[]") if name == "instance" else value
        return ""


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
