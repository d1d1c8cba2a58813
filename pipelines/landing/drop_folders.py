"""Whether files of the inputs have come or changed since they were last read.

They are read in `pipelines.landing.ingest`; an input that cannot be listed is for its run to
report.
"""

import hashlib
from typing import Final

from features.errors import SourceError
from pipelines.landing.landed import LANDED_TABLES
from pipelines.settings import Settings
from pipelines.sources.site.input_base import FileInput
from pipelines.sources.site.listing import SiteInputs, load_inputs
from pipelines.sources.site.readers import tables_of

HOURLY: Final = frozenset(key for key, table in LANDED_TABLES.items() if table.partition == "hour")
"""Tables whose inputs are read with every hour."""


def fingerprint(settings: Settings) -> str:
    """A word that changes when a file comes, goes or grows.

    Only inputs that are not read with every hour are looked at: records of jobs, nodes, places.

    Args:
        settings: The installation.

    Raises:
        SettingsError: The list of inputs cannot be read.
    """
    inputs = load_inputs(settings.inputs)
    digest = hashlib.sha256()
    for spec in inputs.spec.inputs:
        if isinstance(spec, FileInput) and not HOURLY & set(tables_of(inputs, spec)):
            for line in _lines(inputs, spec):
                digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


def _lines(inputs: SiteInputs, spec: FileInput) -> list[str]:
    lines = []
    try:
        for path in inputs.files(spec):
            stat = path.stat()
            lines.append(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n")
    except (SourceError, OSError):
        lines.append(f"{spec.path}\0absent\n")
    return lines
