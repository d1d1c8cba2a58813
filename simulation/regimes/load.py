"""Finds and reads a regime by name or path.

What a regime may say is checked in `simulation.fleet.regime`.
"""

from pathlib import Path
from typing import Final

from features.errors import SettingsError
from simulation.fleet.regime import Regime, parse_regime

_FOLDER: Final = Path(__file__).parent


def regime_names() -> tuple[str, ...]:
    """The names of the regimes that ship with the project, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_regime(name_or_path: str) -> Regime:
    """Loads a shipped regime by name, or any regime file by path.

    Args:
        name_or_path: `demo`, or the path of a YAML file.

    Returns:
        The regime.

    Raises:
        SettingsError: There is no such regime, or it says something that cannot be simulated.
    """
    path = _FOLDER / f"{name_or_path}.yaml"
    if name_or_path not in regime_names():
        path = Path(name_or_path)
    if not path.is_file():
        raise SettingsError(
            f"regime {name_or_path!r} is neither a file nor one of {', '.join(regime_names())}. "
            f"Give one of these names or the path of a YAML file."
        )
    return parse_regime(path.read_text(encoding="utf-8"), origin=str(path))
