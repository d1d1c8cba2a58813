"""The model registry: versions and aliases in MLflow; on SQLite, without a server, by default.

Where it is says `models.registry.place`, files are written by `models.registry.version_files`; what
a version holds is in `models.bundle`, whether it may become champion is decided in
`models.evaluation.gate`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from features.errors import DataError
from models.bundle import ModelBundle, bundle_from_documents, fingerprint_of
from models.evaluation.gate import GateDecision
from models.registry.alias_log import (
    AliasMove,
    Move,
    append_move,
    begin_move,
    interrupted_move,
    locked,
    read_moves,
)
from models.registry.place import RegistryPlace
from models.registry.registered import LostError, RegisteredVersion, RegistryError
from models.registry.version_files import (
    database_errors,
    is_lost,
    open_client,
    read_version,
    store_version,
)
from models.registry.version_page import Standing, VersionPage

if TYPE_CHECKING:
    from mlflow import MlflowClient

CANDIDATE, CHAMPION, PREVIOUS = "candidate", "champion", "previous"
FINGERPRINT_TAG = "fingerprint"
GATE_TAG, GATE_PASSED_TAG = "gate", "gate_passed"
PROMOTED_TAGS = ("promoted_by", "promoted_at", "promoted_reason")
GATE = "the gate"


class ModelRegistry:
    """Versions of models with the aliases candidate, champion and previous.

    Args:
        place: Where it is; a new database takes MLflow some seconds of migrations at first use.
    """

    def __init__(self, place: RegistryPlace) -> None:
        self.place = place
        self._log = place.folder / "promotions.jsonl"
        self._lock = place.folder / "registry.lock"
        # A lock of its own: the client is opened at first use, which may be under the other one.
        self._opening = place.folder / "migrations.lock"
        self._opened: MlflowClient | None = None

    def register(
        self, bundle: ModelBundle, *, page: VersionPage | None = None
    ) -> RegisteredVersion:
        """Stores a bundle as a version and points `candidate` at it.

        A bundle equal to a stored one (same data, training, calibration and card) is not stored
        again, also not by two trainers at the same time; but it is where the stored files are lost.

        Args:
            bundle: The bundle. Its first booster is the MLflow model, the other documents lie
                beside it in the same folder.
            page: What to show of it in the MLflow UI.

        Returns:
            The version, new or found.
        """
        name, fingerprint = bundle.name, bundle.fingerprint
        with locked(self._lock):
            found = self._find(name, fingerprint)
            if found is None:
                found = self._store(bundle, fingerprint, page or VersionPage())
            self._client.set_registered_model_alias(name, CANDIDATE, str(found.version))
        return found

    def note_gate(self, version: RegisteredVersion, decision: GateDecision) -> None:
        """Keeps the gate's word with a version, whether it accepted it or not."""
        self._check_exists(version)
        self._tag(version, {GATE_TAG: decision.reason, GATE_PASSED_TAG: str(decision.is_accepted)})

    def promote(
        self,
        version: RegisteredVersion,
        *,
        decision: GateDecision,
        against: RegisteredVersion | None = None,
    ) -> None:
        """Makes a version champion on the gate's word, and the champion so far `previous`.

        Args:
            version: The version.
            decision: The gate's word on it, kept with the version.
            against: The champion that the gate held it against; None: there was none. If another
                has become champion since, the gate must be asked again.

        Raises:
            RegistryError: The gate did not accept it, or the champion is another.
        """
        self.note_gate(version, decision)
        if not decision.is_accepted:
            raise RegistryError(
                f"model {version.label} was not promoted: {decision.reason} The champion stays."
            )
        self._make_champion(
            version, by=GATE, reason=decision.reason, is_due=lambda now: now == against
        )

    def promote_by_hand(
        self, version: RegisteredVersion, *, by: str, reason: str, overrules_gate: bool = False
    ) -> None:
        """Makes a version champion on a person's word, which is kept with the version.

        Args:
            version: The version.
            by: Who.
            reason: Why.
            overrules_gate: Promote although the gate refused it, or was never asked.

        Raises:
            RegistryError: The gate refused it, or its files are lost.
            DataError: This release cannot read it.
        """
        self.load(version)  # a champion that cannot be read would leave nothing but priors
        standing = self.standing(version)
        if not standing.is_gate_passed and not overrules_gate:
            word = standing.gate or "the gate was never asked."
            raise RegistryError(
                f"model {version.label} was not promoted: {word} To promote it all the same, "
                f"overrule the gate."
            )
        self._make_champion(version, by=by, reason=reason, is_due=lambda _: True)

    def rollback(self, name: str, *, by: str, reason: str) -> RegisteredVersion:
        """Makes `previous` champion again; the alias `previous` is then free.

        Raises:
            RegistryError: There is no previous version, it is the champion, or it is lost.
            DataError: This release cannot read it.
        """
        with locked(self._lock):
            previous = self.version_of(name, PREVIOUS)
            if previous is None:
                raise RegistryError(
                    f"model {name}: there is no alias {PREVIOUS!r} to roll back to. Promote a "
                    f"version; those registered: {self._versions_in_words(name)}."
                )
            champion = self._champion_if_there(name)
            if champion is not None and champion.version == previous.version:
                if not self._finish_rollback(name, champion):
                    raise RegistryError(
                        f"model {name}: {PREVIOUS!r} is the champion, {champion.label}, itself: a "
                        f"promotion stopped half way. Promote again, or promote one of: "
                        f"{self._versions_in_words(name)}."
                    )
                return champion
            self.load(previous)
            move = self._begun("rollback", previous, champion, by=by, reason=reason)
            self._client.set_registered_model_alias(name, CHAMPION, str(previous.version))
            self._client.delete_registered_model_alias(name, PREVIOUS)
            self._finished(previous, move)
        return previous

    def standing(self, version: RegisteredVersion) -> Standing:
        """Where a version stands: aliases, the gate's word, who made it champion."""
        self._check_exists(version)
        stored = self._client.get_model_version(version.name, str(version.version))
        aliases = self._client.get_registered_model(version.name).aliases
        by, at, reason = (stored.tags.get(tag) for tag in PROMOTED_TAGS)
        passed = stored.tags.get(GATE_PASSED_TAG)
        return Standing(
            label=version.label,
            registered_at=datetime.fromtimestamp(stored.creation_timestamp / 1000, tz=UTC),
            aliases=tuple(a for a, v in sorted(aliases.items()) if int(v) == version.version),
            gate=stored.tags.get(GATE_TAG),
            is_gate_passed=None if passed is None else passed == "True",
            promoted_by=by,
            promoted_at=at,
            promoted_reason=reason,
        )

    def names(self) -> tuple[str, ...]:
        """Registered models, by name."""
        with database_errors(self._unreadable):
            return tuple(sorted(one.name for one in self._client.search_registered_models()))

    def versions(self, name: str) -> tuple[RegisteredVersion, ...]:
        """Versions of a model, oldest first; none for a name that is not there."""
        with database_errors(self._unreadable):
            stored = self._client.search_model_versions(f"name = '{name}'")
        return tuple(RegisteredVersion(name, v) for v in sorted(int(one.version) for one in stored))

    def moves(self, name: str) -> tuple[AliasMove, ...]:
        """Promotions and rollbacks of a model, oldest first."""
        return read_moves(self._log, name)

    def interrupted(self, name: str) -> AliasMove | None:
        """A promotion or rollback that was begun and not finished."""
        return interrupted_move(self._log, name)

    def version_of(self, name: str, alias: str) -> RegisteredVersion | None:
        """The version an alias points at; None when the model or the alias is not there.

        Raises:
            LostError: It points at a deleted version.
            RegistryError: The database cannot be read.
        """
        with database_errors(self._unreadable):
            if not self._client.search_registered_models(filter_string=f"name = '{name}'"):
                return None
            number = self._client.get_registered_model(name).aliases.get(alias)
            if number is None:
                return None
            # Listed aliases outlive a deleted version; asking for the version tells.
            asked = f"name = '{name}' and version_number = {number}"
            is_there = bool(self._client.search_model_versions(asked))
        if not is_there:
            raise LostError(
                f"model {name}: alias {alias!r} points at version {number}, which was deleted. "
                f"Promote or roll back to one of: {self._versions_in_words(name)}."
            )
        return RegisteredVersion(name, int(number))

    def load(self, version: RegisteredVersion) -> ModelBundle:
        """A version's bundle, which scores as it did when it was registered.

        Raises:
            RegistryError: No such version, or its files are lost or not those registered.
            DataError: This release cannot read it.
        """
        from mlflow.exceptions import MlflowException

        self._check_exists(version)
        stored = self._client.get_model_version(version.name, str(version.version))
        try:
            documents = read_version(self._client, version.name, version.version, place=self.place)
        except (MlflowException, OSError, UnicodeDecodeError) as error:
            kind = LostError if is_lost(error) else RegistryError
            raise kind(
                f"model {version.label}: its files cannot be read from {self.place.artifacts}: "
                f"{error}. Restore them, or roll back to another version."
            ) from error
        found = fingerprint_of(documents)
        if found != stored.tags.get(FINGERPRINT_TAG):
            raise LostError(
                f"model {version.label}: its files are not the ones that were registered "
                f"(fingerprint {found[:12]}, registered "
                f"{stored.tags.get(FINGERPRINT_TAG, 'none')[:12]}). Roll back to another version."
            )
        try:
            return bundle_from_documents(documents)
        except (KeyError, TypeError, ValueError) as error:
            # The files are those that were registered: another release knew other values.
            raise DataError(
                f"model {version.label}: this release cannot read what another one wrote: "
                f"{type(error).__name__} {error}. Use that release, or train again."
            ) from error

    @property
    def _client(self) -> "MlflowClient":
        """The client; opened at first use, for importing mlflow takes two seconds."""
        if self._opened is None:
            with locked(self._opening), database_errors(self._unreadable):
                self._opened = open_client(self.place)
        return self._opened

    def _make_champion(
        self,
        version: RegisteredVersion,
        *,
        by: str,
        reason: str,
        is_due: Callable[[RegisteredVersion | None], bool],
    ) -> None:
        """Moves the aliases, if it is still due beside the champion of the moment."""
        with locked(self._lock):
            champion = self._champion_if_there(version.name)
            if champion is not None and champion.version == version.version:
                return
            if not is_due(champion):
                now = champion.label if champion else "none"
                raise RegistryError(
                    f"model {version.label} was not promoted: the gate held it against another "
                    f"champion, or none; the champion is now {now}. Ask the gate again."
                )
            move = self._begun("promote", version, champion, by=by, reason=reason)
            # Previous first: a crash between the two moves leaves a champion and a way on.
            if champion is not None:
                self._client.set_registered_model_alias(
                    version.name, PREVIOUS, str(champion.version)
                )
            self._client.set_registered_model_alias(version.name, CHAMPION, str(version.version))
            self._finished(version, move)

    def _champion_if_there(self, name: str) -> RegisteredVersion | None:
        try:
            return self.version_of(name, CHAMPION)
        except LostError:  # deleted: promoting another is the way out, with none to return to
            return None

    def _begun(
        self,
        move: Move,
        version: RegisteredVersion,
        earlier: RegisteredVersion | None,
        *,
        by: str,
        reason: str,
    ) -> AliasMove:
        before = earlier.version if earlier else None
        to = version.version
        return begin_move(
            self._log, move, version.name, version=to, earlier=before, by=by, reason=reason
        )

    def _finished(self, version: RegisteredVersion, move: AliasMove) -> None:
        values = (move.by, move.at.isoformat(), move.reason)
        self._tag(version, dict(zip(PROMOTED_TAGS, values, strict=True)))
        append_move(self._log, replace(move, is_done=True))

    def _finish_rollback(self, name: str, champion: RegisteredVersion) -> bool:
        """Ends a rollback that stopped after the champion moved."""
        begun = self.interrupted(name)
        if begun is None or (begun.move, begun.version) != ("rollback", champion.version):
            return False
        self._client.delete_registered_model_alias(name, PREVIOUS)
        self._finished(champion, begun)
        return True

    def _tag(self, version: RegisteredVersion, tags: Mapping[str, str]) -> None:
        for key, value in tags.items():
            self._client.set_model_version_tag(version.name, str(version.version), key, value)

    def _store(self, bundle: ModelBundle, fingerprint: str, page: VersionPage) -> RegisteredVersion:
        tags = {**page.tags, FINGERPRINT_TAG: fingerprint}
        try:
            number = store_version(self._client, bundle, place=self.place, tags=tags, page=page)
        except OSError as error:
            raise RegistryError(
                f"model {bundle.name}: it cannot be stored in {self.place.artifacts}: {error}. "
                f"Nothing was registered; train again once it can."
            ) from error
        return RegisteredVersion(bundle.name, number, is_new=True)

    def _find(self, name: str, fingerprint: str) -> RegisteredVersion | None:
        for stored in self._client.search_model_versions(f"name = '{name}'"):
            if stored.tags.get(FINGERPRINT_TAG) == fingerprint:
                found = RegisteredVersion(name, int(stored.version))
                with suppress(LostError):  # whose files are lost is stored again
                    self.load(found)
                    return found
        return None

    def _check_exists(self, version: RegisteredVersion) -> None:
        if version.version not in {one.version for one in self.versions(version.name)}:
            raise RegistryError(
                f"model {version.name} has no version {version.version}; registered: "
                f"{self._versions_in_words(version.name)}."
            )

    def _unreadable(self, cause: str) -> RegistryError:
        return RegistryError(
            f"model registry {self.place.name} cannot be read: {cause} {self.place.advice}"
        )

    def _versions_in_words(self, name: str) -> str:
        return ", ".join(str(one.version) for one in self.versions(name)) or "none"
