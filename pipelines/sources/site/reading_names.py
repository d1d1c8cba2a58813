"""What decides what a reading of an input gives, beside the bytes: options, and the file's name.

How an input is read is in `pipelines.sources.site.readers`; that the same reading is not landed
twice is seen to in `pipelines.landing.ingest_run`.
"""

import hashlib
from pathlib import Path

import polars as pl

from features.errors import SettingsError, SourceError
from pipelines.sources.files import node_in_name, read_bytes, time_in_name
from pipelines.sources.jobs.names import owner_of, run_of
from pipelines.sources.kernel.log import node_of_log
from pipelines.sources.private_names import hash_names
from pipelines.sources.site.input_base import FileInput, Input
from pipelines.sources.site.inputs import (
    ExpositionInput,
    JobOutputInput,
    KernelLogInput,
    KubernetesJsonInput,
    NvidiaSmiInput,
    SlurmJsonInput,
    SlurmTextInput,
    TrainingInput,
)
from pipelines.sources.site.listing import SiteInputs


def way_of_reading(inputs: SiteInputs, spec: Input) -> str:
    """Names everything but the content that decides what an input gives.

    Args:
        inputs: The list.
        spec: One of its inputs.

    Returns:
        Options, zone, and the hashes of the files that they name.

    Raises:
        SettingsError: Such a file cannot be read.
    """
    options = spec.model_dump_json(exclude={"name", "path", "may_be_absent", "keep_days"})
    parts = [options, spec.time_zone or inputs.spec.time_zone or ""]
    named = [getattr(spec, "mapping", None), getattr(spec, "rules", None)]
    try:
        files = [read_bytes(inputs.path.parent / name) for name in named if name]
        if (key := hiding_key(inputs)) is not None:
            files.append(key)
    except SourceError as error:
        raise SettingsError(f"{inputs.path}, input {spec.label}: {error}") from error
    return "\n".join([*parts, *(hashlib.sha256(data).hexdigest() for data in files)])


def hiding_key(inputs: SiteInputs) -> bytes | None:
    """The key that hides names; None: they are kept.

    Args:
        inputs: The list.

    Raises:
        SettingsError: The key is too short.
        SourceError: Its file cannot be read.
    """
    if inputs.spec.hide_names is None:
        return None
    path = inputs.path.parent / inputs.spec.hide_names.key_file
    key = read_bytes(path).strip()
    try:
        hash_names(pl.DataFrame(), columns=(), key=key)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error
    return key


def told_by_name(spec: FileInput, path: Path) -> str:
    """What a reader takes from the name of a file: the same bytes mean more than one thing there.

    Args:
        spec: The input.
        path: One of its files.

    Returns:
        Node, time, job or run, as far as its kind looks for them; empty: the content says it all.
    """
    if isinstance(spec, ExpositionInput | NvidiaSmiInput):
        return f"{node_in_name(path)} {time_in_name(path)}"
    if isinstance(spec, KernelLogInput):
        return str(spec.node or node_of_log(path))
    if isinstance(spec, JobOutputInput):
        return str(owner_of(path, spec.names))
    if isinstance(spec, TrainingInput):
        return run_of(path, spec.names)
    if isinstance(spec, SlurmTextInput | SlurmJsonInput | KubernetesJsonInput):
        return str(time_in_name(path))
    return ""


def check_name(path: Path) -> None:
    """Sees that tables can hold the name of a file.

    Args:
        path: The file.

    Raises:
        SourceError: Its bytes are not UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise SourceError(
            f"{ascii(str(path))[1:-1]}: the name is not UTF-8, and no table can hold it. Rename "
            f"the file or its folder."
        ) from error
