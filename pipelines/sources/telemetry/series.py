"""What names and labels of exposition text stand for: fields, GPUs, nodes, parts.

Labels are understood once per block and then referred to by number; values are not known here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pipelines.sources.pci_address import canonical_pci
from pipelines.sources.telemetry.dcgm_fields import PER_INSTANCE, ExporterName
from pipelines.sources.telemetry.gpu_identity import canonical_gpu_uuid
from pipelines.sources.telemetry.label_names import LABELS

Ints = npt.NDArray[np.int64]

UNKNOWN: Final = -1
SKIPPED: Final = -1
AMBIGUOUS: Final = -2
IDENTITY: Final = -3
NO_PARENT: Final = -2

MOST_GPUS: Final = 1000
"""Indices on a node are below; what is not is no index."""


@dataclass(frozen=True)
class Dialect:
    """The names of one exporter, or of several.

    Attributes:
        source: Kind of source.
        lookup: What a name stands for.
        ambiguous: Names in lower case that are refused, with the reason.
        identities: Names in lower case whose labels say who a GPU is and whose value says
            nothing.
    """

    source: str
    lookup: Callable[[str], ExporterName | None]
    ambiguous: Mapping[str, str]
    identities: frozenset[str] = frozenset()


class Numbered:
    """Distinct texts and their numbers, in the order they were met."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """The number of a text; `UNKNOWN` for none."""
        if not text:
            return UNKNOWN
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number


class Names:
    """Metric names by number.

    Args:
        dialect: What they mean.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._codes: list[int] = []
        self.fields: list[ExporterName] = []
        self._field_of: dict[str, int] = {}

    def codes(self, names: list[str]) -> Ints:
        """Field per name, or `SKIPPED`, `AMBIGUOUS`, `IDENTITY`; shape (names,)."""
        self._codes += [self._code(name) for name in names[len(self._codes) :]]
        return np.array(self._codes, np.int64)

    def field_of(self, name: str) -> int:
        """The number of the field that a name stands for; `SKIPPED` where there is none."""
        key = name.lower()
        known = self._field_of.get(key)
        if known is None:
            found = self._dialect.lookup(name)
            known = SKIPPED if found is None else self._number_of(found)
            self._field_of[key] = known
        return known

    def _number_of(self, found: ExporterName) -> int:
        """Its number; spellings of one name share it, so that a help text speaks of all."""
        for number, field in enumerate(self.fields):
            if field is found:
                return number
        self.fields.append(found)
        return len(self.fields) - 1

    def _code(self, name: str) -> int:
        code = self.field_of(name)
        if code != SKIPPED:
            return code
        key = name.lower()
        if key in self._dialect.ambiguous:
            return AMBIGUOUS
        return IDENTITY if key in self._dialect.identities else SKIPPED

    def per_instance(self) -> npt.NDArray[np.bool_]:
        """Whether a field is given per MIG instance, shape (fields,)."""
        return np.array([f.metric.column in PER_INSTANCE for f in self.fields], np.bool_)


class Series:
    """Label blocks by number, each understood once."""

    def __init__(self) -> None:
        self.gpus = Numbered()
        self.nodes = Numbered()
        self.pci = Numbered()
        self.models = Numbered()
        self.parts = Numbered()
        self._rows: list[tuple[int, ...]] = []
        self._pci_numbers: dict[str, int] = {}  # as written: nodes of a kind share their addresses
        self._plans: dict[tuple[str, ...], tuple[tuple[str, ...], ...]] = {}

    def columns(self, labels: list[Mapping[str, str] | None]) -> Ints:
        """Per block: gpu, node, index, pci, model, part, is a MIG instance; shape (7, blocks).

        A gpu is `NO_PARENT` where only a MIG instance is named whose GPU is not told.
        """
        self._rows += [self._row(block or {}) for block in labels[len(self._rows) :]]
        # A last column for samples without labels, which have number -1.
        rows = [*self._rows, (UNKNOWN,) * 6 + (0,)]
        return np.array(rows, np.int64).T

    def _row(self, block: Mapping[str, str]) -> tuple[int, ...]:
        uuid, node, index, pci, model, link, instance = [
            _first_told(block, keys) if keys else "" for keys in self._keys(block)
        ]
        gpu = self.gpus.number(canonical_gpu_uuid(uuid))
        if gpu == UNKNOWN and uuid[:4].lower() == "mig-":
            gpu = NO_PARENT
        is_index = index.isascii() and index.isdecimal() and len(index) < 4
        return (
            gpu,
            self.nodes.number(node),
            int(index) if is_index else UNKNOWN,
            self._pci_number(pci),
            self.models.number(model),
            self.parts.number(link),
            int(bool(instance)),
        )

    def _pci_number(self, text: str) -> int:
        number = self._pci_numbers.get(text)
        if number is None:
            number = self.pci.number(canonical_pci(text) if text else None)
            self._pci_numbers[text] = number
        return number

    def _keys(self, block: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
        """For each thing wanted the labels that may tell it; the same for most blocks."""
        keys = tuple(block)
        plan = self._plans.get(keys)
        if plan is None:
            by_lower = {key.lower(): key for key in keys}
            plan = tuple(
                tuple(by_lower[name] for name in names if name in by_lower) for names in LABELS
            )
            self._plans[keys] = plan
        return plan


def _first_told(block: Mapping[str, str], keys: tuple[str, ...]) -> str:
    for key in keys:
        text = block[key]
        if text:
            return text
    return ""
