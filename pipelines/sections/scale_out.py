"""The `scale_out` section of the settings: which other processes compute features and scores.

Using them is in `pipelines.flow.scale_out`.
"""

from pydantic import Field

from pipelines.sections.section import Section


class ScaleOutSettings(Section):
    """Where features and scores of long spans are computed; by default in the process that asks.

    Attributes:
        scheduler: Address of a Dask scheduler, such as `tcp://head:8786`; its workers must see
            `data_root` at the same path, or have tables in a bucket.
        workers: Without a scheduler: processes on this machine. With one: workers to wait for
            before the first part is handed out.
    """

    scheduler: str | None = Field(default=None, pattern=r"^(tcp|tls)://[^\s/:]+:\d{1,5}$")
    workers: int = Field(default=0, ge=0, le=10_000)

    @property
    def is_on(self) -> bool:
        """Whether other processes compute at all."""
        return self.scheduler is not None or self.workers > 0
