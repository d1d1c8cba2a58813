"""A version in the registry, and what is raised where it cannot be had.

What is done with versions is in `models.registry.model_registry`.
"""

from dataclasses import dataclass, field

from features.errors import ForewarnError


class RegistryError(ForewarnError):
    """The registry does not hold what was asked for, or may not do what was asked."""


class LostError(RegistryError):
    """A version is known to be gone or damaged; not said where nothing could be found out."""


@dataclass(frozen=True)
class RegisteredVersion:
    """One version of a registered model.

    Attributes:
        name: Registered name, such as `gpu-failure-24h`.
        version: Version number.
        is_new: Whether this call made it; False when an equal one was there.
    """

    name: str
    version: int
    is_new: bool = field(default=False, compare=False)

    @property
    def label(self) -> str:
        """What scores carry as their model version.

        >>> RegisteredVersion("gpu-failure-24h", 3).label
        'gpu-failure-24h/3'
        """
        return f"{self.name}/{self.version}"
