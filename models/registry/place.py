"""Where a model registry is: its database or server, and where the files of versions go.

Opening it, and what is in it, is in `models.registry.model_registry`.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

_ENVIRONMENT: Final = threading.RLock()


@dataclass(frozen=True, kw_only=True)
class RegistryPlace:
    """Where a registry is.

    Attributes:
        name: What messages call it.
        uri: Address for MLflow; may hold a password.
        folder: On this machine: the log of promotions and the locks of writers.
        artifacts: Address of the files of versions; None: the server's own choice.
        advice: What to do when it cannot be read.
        database: The file of an embedded one.
        environment: What MLflow takes from the environment alone, secrets among it; an empty
            value takes the variable away. It is set while MLflow is called, never longer.
    """

    name: str
    uri: str = field(repr=False)
    folder: Path
    artifacts: str | None
    advice: str
    database: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def embedded(cls, *, database: Path, artifacts: Path) -> Self:
        """A registry in a SQLite file, its artifacts in a folder."""
        database, artifacts = database.absolute(), artifacts.absolute()
        return cls(
            name=str(database),
            uri=f"sqlite:///{database}",
            folder=database.parent,
            artifacts=artifacts.as_uri(),
            advice=f"Restore the file from a backup; {database.name} and the folder "
            f"{artifacts.name} belong together.",
            database=database,
        )

    @property
    def is_there(self) -> bool:
        """Whether it may hold anything: an embedded one is made at the first use."""
        return self.database is None or self.database.exists()

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """Sets the environment for calls of MLflow, one thread at a time."""
        if not self.environment:
            yield
            return
        with _ENVIRONMENT:
            before = {name: os.environ.get(name) for name in self.environment}
            try:
                _set(self.environment)
                yield
            finally:
                _set({name: value or "" for name, value in before.items()})


class InEnvironment:
    """An object of MLflow whose methods are called in a place's environment.

    Args:
        called: The object.
        place: The place.
    """

    def __init__(self, called: object, place: RegistryPlace) -> None:
        self._called, self._place = called, place

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._called, name)

        def call(*given: Any, **named: Any) -> Any:
            with self._place.in_environment():
                return method(*given, **named)

        return call


def _set(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)
