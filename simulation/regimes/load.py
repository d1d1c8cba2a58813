"""Finds and reads a regime by name or path, with the regimes that it extends.

What a regime may say is checked in `simulation.fleet.regime`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from features.errors import SettingsError
from remediation.given_text import given_text
from simulation.fleet.regime import Regime, build_regime, read_regime_document

_FOLDER: Final = Path(__file__).parent


def regime_names() -> tuple[str, ...]:
    """The names of the regimes that ship with the project, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_regime(name_or_path: str) -> Regime:
    """Loads a shipped regime by name, or any regime file by path.

    A file that says `extends: NAME` gives only what differs from that regime: mappings are
    merged key by key, anything else is replaced.

    Args:
        name_or_path: `demo`, or the path of a YAML file.

    Returns:
        The regime.

    Raises:
        SettingsError: There is no such regime, it extends itself, or it says something that
            cannot be simulated.
    """
    path = _FOLDER / f"{name_or_path}.yaml"
    if name_or_path not in regime_names():
        path = Path(name_or_path)
    if not path.is_file():
        raise SettingsError(
            f"regime {name_or_path!r} is neither a file nor one of {', '.join(regime_names())}. "
            f"Give one of these names or the path of a YAML file."
        )
    return build_regime(_document(path, extending=()), origin=str(path))


def _document(path: Path, *, extending: tuple[Path, ...]) -> dict[str, Any]:
    """A regime file with what it extends filled in; `extending` led to it."""
    try:
        text = given_text(path)
    except UnicodeDecodeError as error:
        raise SettingsError(f"regime {path} is no text in UTF-8: {error}. Give YAML.") from error
    document = read_regime_document(text, origin=str(path))
    name = document.pop("extends", None)
    if name is None:
        return document
    if name not in regime_names():
        raise SettingsError(
            f"regime {path} extends {name!r}, which is not one of {', '.join(regime_names())}. "
            f"Give one of these names."
        )
    chain, base = (*extending, path), _FOLDER / f"{name}.yaml"
    if base in chain:
        names = " -> ".join(link.stem for link in (*chain, base))
        raise SettingsError(f"regime {path} extends itself: {names}. Remove one `extends`.")
    return _merged(_document(base, extending=chain), document)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Both, mappings merged key by key; where both give anything else, the changes'."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        is_both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(old, value) if is_both else value  # type: ignore[arg-type]
    return merged
