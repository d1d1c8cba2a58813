"""What a site's list of inputs may say: one class per kind of input, checked when it is loaded.

Kinds that are servers are in `pipelines.sources.site.server_inputs`; how the list is found is in
`pipelines.sources.site.listing`; how each kind is read in `pipelines.sources.site.readers`.
"""

from pathlib import Path
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from features.errors import SettingsError
from pipelines.sources.jobs.names import DEFAULT_PATTERNS, check_patterns
from pipelines.sources.site.input_base import LONGEST_STEP_S, FileInput, Section, TimeZone
from pipelines.sources.site.places import PlaceRule
from pipelines.sources.site.server_inputs import (
    KubernetesInput,
    PrometheusInput,
    ScrapeInput,
    SlurmInput,
)
from pipelines.sources.telemetry.pages import NodeFrom


def _as_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return check_patterns(patterns)
    except SettingsError as error:
        raise ValueError(str(error)) from error


Patterns = Annotated[tuple[str, ...], AfterValidator(_as_patterns)]


class HistoryInput(FileInput):
    """Any CSV or Parquet file, described by a mapping (`pipelines.sources.history.mapping`)."""

    kind: Literal["history"]
    mapping: str = Field(min_length=1)
    time_zone: None = None  # the mapping's business


class ExpositionInput(FileInput):
    """Saved scrapes of an exporter.

    Attributes:
        node_from: Whose word counts where both know a node: the label's, or the file name's.
        every_s: Usual time between scrapes, for coverage.
    """

    kind: Literal["dcgm_text", "nvidia_gpu_exporter"]
    node_from: NodeFrom = "label"
    every_s: float | None = Field(None, gt=0, le=LONGEST_STEP_S)
    time_zone: None = None  # everything in it is UTC


class NvidiaSmiInput(FileInput):
    """Output of `nvidia-smi --query-gpu` (CSV) or `nvidia-smi -q -x` (XML)."""

    kind: Literal["nvidia_smi_csv", "nvidia_smi_xml"]


class KernelLogInput(FileInput):
    """Kernel and fabric manager logs as text or journald JSON, plain or compressed.

    Attributes:
        node: Node the logs are from, where neither lines nor file names tell.
        boot_time: When the machine booted, where lines only have seconds since boot.
        read_until: When the log ended, to find the year of lines without one.
    """

    kind: Literal["kernel_log"]
    node: str | None = Field(None, min_length=1)
    boot_time: AwareDatetime | None = None
    read_until: AwareDatetime | None = None


class SacctInput(FileInput):
    """Output of `sacct --parsable2`.

    Attributes:
        delimiter: What stands between fields; None: as the header tells.
        columns: Column names of output without a header.
    """

    kind: Literal["sacct"]
    delimiter: str | None = Field(None, min_length=1)
    columns: tuple[str, ...] | None = None


SlurmText = Literal[
    "nodes", "sinfo", "squeue", "jobs", "jobcomp", "events", "reservations", "topology"
]


class SlurmTextInput(FileInput):
    """Saved output of other Slurm commands, or a log of jobcomp/filetxt.

    Attributes:
        holds: `nodes`, `jobs`, `reservations` and `topology` of `scontrol show`, `sinfo`,
            `squeue`, `events` of `sacctmgr list event -P`, or `jobcomp`. Files of `nodes` and
            `sinfo` end with the time of the command, `<anything>__2026-01-05T00-05-00Z.txt`.
        columns: Column names of `sinfo` or `squeue` output without a header.
    """

    kind: Literal["slurm_text"]
    holds: SlurmText
    columns: tuple[str, ...] | None = None


class SlurmJsonInput(FileInput):
    """Saved JSON of sacct, squeue, sinfo, scontrol or slurmrestd, of any release."""

    kind: Literal["slurm_json"]
    time_zone: None = None  # its times are seconds since the epoch


class KubernetesJsonInput(FileInput):
    """Saved `kubectl get ... -o json`.

    Attributes:
        levels: Labels by level of place; None: the usual ones.
    """

    kind: Literal["kubernetes_json"]
    levels: dict[str, tuple[str, ...]] | None = None
    time_zone: None = None  # everything in it is UTC


class JobOutputInput(FileInput):
    """Output of jobs, whose end says why they failed.

    Attributes:
        rules: File of rules, relative to the list; None: the shipped one.
        tail_mb: How much of each file's end is read.
        names: Patterns in which the file's name tells job, node and rank.
    """

    kind: Literal["job_output"]
    rules: Path | None = None
    tail_mb: float = Field(1, gt=0, le=1024)
    names: Patterns = DEFAULT_PATTERNS


class TrainingInput(FileInput):
    """Metrics of training jobs: JSON lines, or event files of TensorBoard.

    Attributes:
        keys: Column -> the site's own keys or tags, looked at before the usual ones.
        names: Patterns in which the file's name tells the job.
    """

    kind: Literal["training_jsonl", "tensorboard"]
    keys: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    names: Patterns = DEFAULT_PATTERNS


InputSpec = Annotated[
    HistoryInput
    | ExpositionInput
    | NvidiaSmiInput
    | KernelLogInput
    | SacctInput
    | SlurmTextInput
    | SlurmJsonInput
    | KubernetesJsonInput
    | JobOutputInput
    | TrainingInput
    | PrometheusInput
    | ScrapeInput
    | SlurmInput
    | KubernetesInput,
    Field(discriminator="kind"),
]

KINDS: Final = frozenset(
    word
    for spec in get_args(get_args(InputSpec)[0])
    for word in get_args(spec.model_fields["kind"].annotation)
)
"""Every kind of input."""

_NO_OFFSET: Final = (
    NvidiaSmiInput,
    KernelLogInput,
    SacctInput,
    SlurmTextInput,
    JobOutputInput,
    TrainingInput,
)
_TIMELESS: Final = frozenset({"topology", "tensorboard"})


class HiddenNames(Section):
    """Users and job names are replaced by keyed hashes before anything is stored.

    Attributes:
        key_file: File with the key, relative to the list; the same key gives the same names.
    """

    key_file: Path


class InputList(Section):
    """The whole document.

    Attributes:
        site: Name of the site.
        time_zone: Zone of clocks that print no offset.
        inputs: The inputs, in order.
        hide_names: How users and job names are hidden; None: they are kept.
        places: Rules by which node names tell racks, switches and pools.
    """

    site: str
    time_zone: TimeZone | None = None
    inputs: tuple[InputSpec, ...] = Field(min_length=1)
    hide_names: HiddenNames | None = None
    places: tuple[PlaceRule, ...] = ()

    @model_validator(mode="after")
    def _clocks_are_known(self) -> Self:
        for at, spec in enumerate(self.inputs):
            is_timeless = bool({spec.kind, getattr(spec, "holds", "")} & _TIMELESS)
            if isinstance(spec, _NO_OFFSET) and not (
                spec.time_zone or self.time_zone or is_timeless
            ):
                raise ValueError(
                    f"inputs[{at}].time_zone is needed: kind {spec.kind} prints times without an "
                    f"offset. Give the input or the site the zone of the clock, such as UTC"
                )
        return self

    @model_validator(mode="after")
    def _no_input_twice(self) -> Self:
        names: dict[str, int] = {}
        for at, spec in enumerate(self.inputs):
            before = names.setdefault(spec.label, at)
            if before != at:
                raise ValueError(
                    f"inputs[{at}] has the same name as inputs[{before}], {spec.label!r}. Take "
                    f"one out, or give it a name of its own"
                )
        return self
