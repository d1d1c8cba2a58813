"""Settings given by the environment: `FOREWARN__SECTION__KEY=value` counts before the file.

The one rule is here; reading the file, and checking all values, is in `pipelines.settings`.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

from pipelines.sections.known_keys import nearest
from remediation.strict_yaml import parse_yaml

PREFIX: Final = "FOREWARN__"
_BETWEEN: Final = "__"
_BRACKETS: Final = (("[", "]"), ("{", "}"))


@dataclass(frozen=True)
class EnvironmentValue:
    """A value that a variable gives.

    Attributes:
        variable: The variable.
        key: Place of its key in the settings.
        value: What it gives, before its type is known.
    """

    variable: str
    key: tuple[str, ...]
    value: Any


@dataclass(frozen=True)
class Given:
    """What the environment says of the settings.

    Attributes:
        values: Values of keys that there are.
        mistakes: Variables that give none, each with what is wrong.
    """

    values: tuple[EnvironmentValue, ...]
    mistakes: Mapping[str, str]


def given_by(environment: Mapping[str, str], model: type[BaseModel]) -> Given:
    """Finds the variables of the rule and the keys that they are for.

    Args:
        environment: Variables of the process.
        model: The settings' model.
    """
    values, mistakes = [], {}
    known: dict[tuple[str, ...], str] = {}
    for variable in sorted(name for name in environment if name.startswith(PREFIX)):
        steps = tuple(variable.removeprefix(PREFIX).lower().split(_BETWEEN))
        first = known.setdefault(steps, variable)
        if first != variable:
            mistakes[variable] = f"it is given twice, also as {first}; keep one"
            continue
        if wrong := _unknown(steps, model):
            mistakes[variable] = wrong
            continue
        try:
            values.append(EnvironmentValue(variable, steps, _value(environment[variable])))
        except yaml.YAMLError as error:
            mistakes[variable] = f"its value is no YAML: {' '.join(str(error).split())[:200]}"
    return Given(tuple(values), mistakes)


def laid_over(content: Mapping[str, Any], values: Sequence[EnvironmentValue]) -> dict[str, Any]:
    """A document's values with others in their place; the document stays as it is.

    Args:
        content: The document.
        values: What counts before it. A section given whole comes before keys of it.

    >>> laid_over({"api": {"burst": 2}}, [EnvironmentValue("V", ("api", "burst"), "3")])
    {'api': {'burst': '3'}}
    """
    made = dict(content)
    for one in sorted(values, key=lambda value: len(value.key)):
        at = made
        for step in one.key[:-1]:
            inner = at.get(step)
            at[step] = dict(inner) if isinstance(inner, dict) else {}
            at = at[step]
        at[one.key[-1]] = one.value
    return made


def _unknown(steps: tuple[str, ...], model: type[BaseModel]) -> str | None:
    """What is wrong with a name; None: there is such a key."""
    section: type[BaseModel] | None = model
    for depth, step in enumerate(steps):
        before = PREFIX + "".join(f"{one.upper()}{_BETWEEN}" for one in steps[:depth])
        if section is None:
            above = before.removesuffix(_BETWEEN)
            return f"{above} is no section; give it whole, as YAML in one line"
        known = tuple(section.model_fields)
        if step not in known:
            near = nearest(step, known)
            return "there is no such setting" + (
                f"; did you mean {before}{near.upper()}" if near else ""
            )
        section = _section(section.model_fields[step].annotation)
    return None


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section that a key holds; None where it is a value, or a mapping or list of sections."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) not in (Annotated, Union, UnionType):
        return None
    found = [one for part in get_args(annotation) if (one := _section(part))]
    return found[0] if len(found) == 1 else None


def _value(text: str) -> Any:
    """Text stays text, for the key's own type reads it; what stands in brackets is YAML.

    >>> _value("[24, 168]"), _value("[::1]:8080")
    ([24, 168], '[::1]:8080')
    """
    bare = text.strip()
    if bare in ("null", "~"):
        return None
    return parse_yaml(bare) if (bare[:1], bare[-1:]) in _BRACKETS else text
