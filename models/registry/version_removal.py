"""Removes versions of models that nothing needs any more, with their runs and files.

How long they are kept is for the caller to say; versions are made and promoted in
`models.registry.model_registry`.
"""

from collections.abc import Iterator
from datetime import datetime

from models.registry.alias_log import locked
from models.registry.model_registry import ModelRegistry
from models.registry.registered import RegisteredVersion, RegistryError
from models.registry.version_files import database_errors, remove_version

PINNED_TAG = "pinned"
"""A version with this tag (set in the MLflow UI, with any value) is kept for good."""


class VersionRemover(ModelRegistry):
    """A registry that can also forget."""

    def surplus(self, name: str, *, before: datetime, keep: int) -> Iterator[RegisteredVersion]:
        """The versions of a model that nothing needs, oldest first.

        Kept are those that an alias points at, that are pinned, that were registered, became
        champion or ceased to be it since, and the newest.

        Args:
            name: Registered name.
            before: Since when versions are kept.
            keep: How many of the newest are kept at any age.
        """
        moved = self._moved_since(name, before)
        for version in self.versions(name)[:-keep]:
            with database_errors(self._unreadable):
                standing, is_pinned = self.standing(version), self._is_pinned(version)
            promoted_at = standing.promoted_at and datetime.fromisoformat(standing.promoted_at)
            is_recent = max(standing.registered_at, promoted_at or before) > before
            is_named = standing.aliases or version.version in moved
            if not (is_named or is_recent or is_pinned):
                yield version

    def _moved_since(self, name: str, before: datetime) -> set[int | None]:
        """Versions of recent moves, begun ones included: scores of these are still published."""
        return {
            number
            for move in self.moves(name)
            if move.at > before
            for number in (move.version, move.earlier)
        }

    def forget(self, version: RegisteredVersion) -> None:
        """Removes a version with its run and its files; scores that it gave keep its name.

        Raises:
            RegistryError: An alias points at it, it is pinned, or it is not there.
        """
        with locked(self._lock), database_errors(self._unreadable):
            aliases = self.standing(version).aliases
            if self._is_pinned(version):
                aliases = (*aliases, PINNED_TAG)
            if aliases:
                raise RegistryError(
                    f"model {version.label} was not removed: it is {' and '.join(aliases)}"
                )
            remove_version(self._client, version.name, version.version, place=self.place)

    def _is_pinned(self, version: RegisteredVersion) -> bool:
        stored = self._client.get_model_version(version.name, str(version.version))
        return PINNED_TAG in stored.tags
