"""Removes versions of models that nothing needs any more, with their runs and files.

How long they are kept is for the caller to say; versions are made and promoted in
`models.registry`.
"""

from collections.abc import Iterator
from datetime import datetime

from models.alias_log import locked
from models.registry import ModelRegistry, RegisteredVersion, RegistryError
from models.version_files import remove_version

PINNED_TAG = "pinned"
"""A version with this tag (set in the MLflow UI, with any value) is kept for good."""


class VersionRemover(ModelRegistry):
    """A registry that can also forget."""

    def surplus(self, name: str, *, before: datetime, keep: int) -> Iterator[RegisteredVersion]:
        """The versions of a model that nothing needs, oldest first.

        Kept are those that an alias points at, that are pinned, that were registered or became
        champion since, and the newest.

        Args:
            name: Registered name.
            before: Since when versions are kept.
            keep: How many of the newest are kept at any age.
        """
        for version in self.versions(name)[:-keep]:
            standing = self.standing(version)
            promoted_at = standing.promoted_at and datetime.fromisoformat(standing.promoted_at)
            is_recent = max(standing.registered_at, promoted_at or before) > before
            if not (standing.aliases or is_recent or self._is_pinned(version)):
                yield version

    def forget(self, version: RegisteredVersion) -> None:
        """Removes a version with its run and its files; scores that it gave keep its name.

        Raises:
            RegistryError: An alias points at it, or it is not there.
        """
        with locked(self._lock):
            if aliases := self.standing(version).aliases:
                raise RegistryError(
                    f"model {version.label} was not removed: it is {' and '.join(aliases)}"
                )
            remove_version(self._client, version.name, version.version, place=self.place)

    def _is_pinned(self, version: RegisteredVersion) -> bool:
        stored = self._client.get_model_version(version.name, str(version.version))
        return PINNED_TAG in stored.tags
