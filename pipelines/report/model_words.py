"""The registry in words: which versions there are, how two differ, what was moved by whom.

Cards are rendered by `models.candidate.card_words`; the registry itself is
`models.registry.model_registry`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from features.errors import ForewarnError
from models.bundle import ModelBundle
from models.candidate.card_sections import UNKNOWN, Table, shown
from models.candidate.card_words import card_text, text_table
from models.registry.model_registry import CHAMPION, ModelRegistry
from models.registry.registered import RegisteredVersion, RegistryError
from models.registry.version_page import page_params

_NAMED: Final = re.compile(r"(?P<name>[\w.-]+)(?:/(?P<version>\d+)|@(?P<alias>[a-z]+))?")
_MOVES_SHOWN: Final = 10
_HEADER: Final = ("version", "aliases", "gate", "average precision", "incidents", "data until")


def version_named(registry: ModelRegistry, text: str) -> RegisteredVersion:
    """The version a person names: `name/3`, `name@candidate`, or `name` for the champion.

    Raises:
        RegistryError: There is no such version, or the text names none.
    """
    found = _NAMED.fullmatch(text)
    names = registry.names()
    if found is None or found["name"] not in names:
        raise RegistryError(
            f"{text!r} names no model; write NAME/VERSION, NAME@ALIAS, or NAME for its champion. "
            f"Registered: {', '.join(names) or 'none'}."
        )
    name, versions = found["name"], registry.versions(found["name"])
    if found["version"]:
        wanted = RegisteredVersion(name, int(found["version"]))
        if wanted not in versions:
            numbers = ", ".join(str(one.version) for one in versions)
            raise RegistryError(f"{name} has no version {wanted.version}; registered: {numbers}.")
        return wanted
    alias = found["alias"] or CHAMPION
    pointed = registry.version_of(name, alias)
    if pointed is None:
        numbers = ", ".join(str(one.version) for one in versions)
        raise RegistryError(f"{name} has no {alias}; registered versions: {numbers}.")
    return pointed


def check_name(registry: ModelRegistry, name: str) -> None:
    """Refuses a name that no model has.

    Raises:
        RegistryError: There is no such model.
    """
    names = registry.names()
    if name not in names:
        raise RegistryError(
            f"{name!r} is the name of no model. Registered: {', '.join(names) or 'none'}."
        )


def list_models(registry: ModelRegistry) -> str:
    """Every version of every model, newest first, and what was moved last."""
    names = registry.names()
    if not names:
        return "No model is registered. Scores are priors until one is trained and promoted."
    return "\n\n".join(_model_in_words(registry, name) for name in names)


def show_version(registry: ModelRegistry, version: RegisteredVersion) -> str:
    """The card of a version with its standing."""
    bundle = registry.load(version)
    return card_text(bundle.card, registry.standing(version))


def compare_versions(
    registry: ModelRegistry, first: RegisteredVersion, second: RegisteredVersion
) -> str:
    """Two versions side by side: test numbers, then only the settings that differ."""
    bundles = [registry.load(one) for one in (first, second)]
    header = ("", first.label, second.label)
    numbers = tuple(
        (words, *(_number_of(bundle, pick) for bundle in bundles)) for words, pick in _COMPARED
    )
    params = [page_params(bundle) for bundle in bundles]
    keys = dict.fromkeys([*params[0], *params[1]])
    differing = tuple(
        (key, *(one.get(key, UNKNOWN) for one in params))
        for key in keys
        if params[0].get(key) != params[1].get(key)
    )
    lines = ["TEST RESULTS", *_indented(Table(header, numbers)), "", _same_rows(bundles)]
    ours, theirs = (set(bundle.model.feature_names) for bundle in bundles)
    lines += ["", "WHAT DIFFERS"]
    lines += _indented(Table(header, differing)) if differing else ["  no setting"]
    for label, only in ((first.label, ours - theirs), (second.label, theirs - ours)):
        if only:
            lines.append(f"  only {label} reads: {_few(sorted(only))}")
    return "\n".join(lines)


def _model_in_words(registry: ModelRegistry, name: str) -> str:
    rows, unread = [], []
    for version in reversed(registry.versions(name)):
        standing = registry.standing(version)
        gate = {None: "not asked", True: "passed", False: "refused"}[standing.is_gate_passed]
        told = (UNKNOWN, UNKNOWN, "cannot be read")
        try:
            told = _told_of(registry.load(version))
        except ForewarnError as error:
            # Who wants to roll back looks here first: one bad version hides none of the others.
            unread.append(f"  CANNOT BE READ: {error}")
        aliases = ", ".join(standing.aliases) or UNKNOWN
        rows.append((str(version.version), aliases, gate, *told))
    lines = [name, *_indented(Table(_HEADER, tuple(rows))), *unread]
    if registry.version_of(name, CHAMPION) is None:
        lines.append("  no champion: scores of this horizon are priors")
    begun = registry.interrupted(name)
    if begun is not None:
        lines.append(
            f"  STOPPED HALF WAY: {begun.in_words()}. Nothing is lost: run the same command again."
        )
    done = [move for move in registry.moves(name) if move.is_done][-_MOVES_SHOWN:]
    lines += [f"  {move.in_words()}" for move in reversed(done)]
    return "\n".join(lines)


def _told_of(bundle: ModelBundle) -> tuple[str, str, str]:
    """Average precision, incidents, and until when the data reach."""
    return (
        _number_of(bundle, lambda card: shown(card["test"]["all_rows"]["average_precision"])),
        str(bundle.model.n_incidents),
        f"{bundle.model.data_span[1]:%Y-%m-%d}",
    )


def _same_rows(bundles: Sequence[ModelBundle]) -> str:
    if not all("test" in bundle.card for bundle in bundles):
        return "A version without a card cannot be compared; the gate compares on the same rows."
    tests = [bundle.card["test"]["all_rows"] for bundle in bundles]
    counts = [(one.get("n_rows"), one.get("n_positive")) for one in tests]
    if counts[0] == counts[1]:
        return "Both were tested on as many rows and positives; the gate compares on the same rows."
    return (
        "They were tested on different rows, so the numbers above do not say which is better: "
        "that is the gate's word, on the same rows."
    )


def _number_of(bundle: ModelBundle, pick: Callable[[Any], str]) -> str:
    return pick(bundle.card) if "test" in bundle.card else UNKNOWN


def _rows(name: str) -> Callable[[Any], str]:
    return lambda card: shown(card["test"]["all_rows"][name])


def _loss(card: Any) -> str:
    found = card["test"]["all_rows"]["log_loss"]
    return UNKNOWN if found is None else f"{found:.4f}"


_COMPARED: Final[tuple[tuple[str, Callable[[Any], str]], ...]] = (
    ("average precision", _rows("average_precision")),
    ("AUC", _rows("auc")),
    ("precision top 1 %", _rows("precision_top_1pct")),
    ("log-loss", _loss),
    ("node alert precision", lambda card: shown(card["events"].get("node", {}).get("precision"))),
    ("node alert recall", lambda card: shown(card["events"].get("node", {}).get("recall"))),
    ("test rows", lambda card: f"{card['test']['all_rows']['n_rows']:,}"),
    ("test positives", lambda card: f"{card['test']['all_rows']['n_positive']:,}"),
)


def _indented(table: Table) -> list[str]:
    return [f"  {line}".rstrip() for line in text_table(table)]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
