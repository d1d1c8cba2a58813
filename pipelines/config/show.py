"""`forewarn config show`: the settings in force, and where each value came from.

Secrets are shown as what they are in the settings: the place where they are found.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pipelines.config.yaml_lines import in_words, read_document
from pipelines.sections.environment_values import given_by
from pipelines.sections.known_keys import Place
from pipelines.sections.serving import without_password
from pipelines.settings import Settings, load_settings
from remediation.plan import plain


@dataclass(frozen=True)
class Shown:
    """One value in force.

    Attributes:
        key: Key path.
        value: Plain value.
        origin: `default`, `line N`, `the file`, or the variable.
    """

    key: str
    value: Any
    origin: str


def settings_in_force(path: Path, environment: Mapping[str, str] = os.environ) -> list[Shown]:
    """Every value of the settings with its origin.

    Args:
        path: Settings file.
        environment: Variables of the process.

    Raises:
        SettingsError: The settings cannot be used.
    """
    settings = load_settings(path)
    document = read_document(path)
    variables: dict[Place, str] = {
        one.key: one.variable for one in given_by(environment, Settings).values
    }

    def origin(place: Place) -> str:
        ends = [place[:length] for length in range(len(place), 0, -1)]
        if variable := next((variables[end] for end in ends if end in variables), None):
            return variable
        # What an alias or a merge brings has no line of its own, and stands where that is.
        line = document.line_of(place)
        return "the file" if line is None else f"line {line}"

    return [
        Shown(in_words(place), value, origin(place) if is_given else "default")
        for place, value, is_given in _values(settings, ())
    ]


def in_lines(found: list[Shown], *, path: Path) -> str:
    """The values as lines, each with its origin behind it.

    Args:
        found: The values.
        path: Settings file.
    """
    texts = [f"{one.key}: {json.dumps(one.value, ensure_ascii=False)}" for one in found]
    width = min(max(map(len, texts)), 60)
    lines = [f"{text:<{width}}  # {one.origin}" for text, one in zip(texts, found, strict=True)]
    return "\n".join([plain(f"# {path}"), *map(plain, lines)])


def _values(section: BaseModel, place: Place) -> Iterator[tuple[Place, Any, bool]]:
    """Places and plain values, and whether each was given."""
    plain = section.model_dump(mode="json")
    for name in type(section).model_fields:
        value, at = getattr(section, name), (*place, name)
        if isinstance(value, BaseModel):
            yield from _values(value, at)
        else:
            shown = plain[name]
            is_given = name in section.model_fields_set
            yield at, without_password(shown) if isinstance(shown, str) else shown, is_given
