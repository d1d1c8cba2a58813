"""The reference pages of settings: every key with type, default and meaning, from the models.

The settings themselves are in `pipelines.settings` and `remediation.hook_settings`.
"""

import inspect
import re
import types
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo

from pipelines.reference_docs.markdown import markdown_table
from pipelines.sections.secret_source import SecretSource
from pipelines.settings import Settings
from remediation.hook_settings import HookSettings

_SETTINGS: Final = """# Settings

Every key of the settings file, made from its model (`python -m pipelines.reference_docs`). What
they are for, with examples, is in [settings](../settings.md), [scores](../scores.md),
[the API](../api.md) and [the board](../board.md). A key that is not here is refused, with the file
and the key.
"""
_HOOK: Final = """# The hook's settings

Every key of the hook's own file, made from its model (`python -m pipelines.reference_docs`). How
to go from observing to acting is in [the hook](../remediation.md). What stands under `site` may
also be a file of its own. A key that is not here is refused, with the file and the key.
"""
_ENTRY: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)
_PLAIN: Final = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "yes or no",
    Path: "path",
    AwareDatetime: "time with zone",
    SecretSource: "secret: `file` (whole path) or `variable`",
}


def settings_page() -> str:
    """The page of the settings of an installation, in Markdown."""
    return "\n".join([_SETTINGS, *_sections(Settings, "")])


def hook_settings_page() -> str:
    """The page of the hook's settings, in Markdown."""
    return "\n".join([_HOOK, *_sections(HookSettings, "")])


def _sections(model: type[BaseModel], path: str) -> Iterator[str]:
    """One table for a model's own values, then one for each section within it."""
    meanings = _meanings(model)
    rows, within = [], []
    for name, field in model.model_fields.items():
        key = f"{path}.{name}" if path else name
        inner = list(_models(field.annotation))
        shape = _suffix(field.annotation)
        within += [(one, f"{key}{shape}", len(inner) > 1) for one in inner]
        default = _default(field, has_section=bool(inner))
        rows.append([f"`{key}`", _type_words(field), default, meanings.get(name, "")])
    title = f"## `{path}`" if path else "## Top level"
    yield f"{title}\n\n{_first_line(model)}\n"
    yield markdown_table(["key", "value", "default", "meaning"], rows) + "\n"
    for one, key, is_one_of_many in within:
        shown = list(_sections(one, key))
        if is_one_of_many:
            shown[0] = shown[0].replace(f"`{key}`", f"`{key}`: {_choice(one)}", 1)
        yield from shown


def _choice(model: type[BaseModel]) -> str:
    """What tells a section from those that may stand in its place."""
    kind = model.model_fields.get("kind")
    values = get_args(kind.annotation) if kind is not None else ()
    return f"kind {values[0]}" if values else ", ".join(model.model_fields)


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """What the docstrings of a model and its bases say of each attribute."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        text = inspect.cleandoc(base.__doc__ or "") if issubclass(base, BaseModel) else ""
        head, _, attributes = text.partition("Attributes:\n")
        if head != text:
            # The settings file writes `null`, or leaves the key out, where the code has None.
            in_words = attributes.replace("None", "none")
            found |= {name: " ".join(words.split()) for name, words in _ENTRY.findall(in_words)}
    return found


def _first_line(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "").splitlines()[0]


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The sections that a value may hold; where a secret is found is a value of its own."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation not in _PLAIN:
            yield annotation
    else:
        for part in get_args(annotation):
            yield from _models(part)


def _suffix(annotation: object) -> str:
    """How a key within goes on: below a name of one's own, or in each entry of a list."""
    origin = get_origin(annotation)
    if origin is dict:
        return ".NAME"
    if origin is tuple:
        return "[]"
    parts = [_suffix(part) for part in get_args(annotation)]
    return next((part for part in parts if part), "")


def _type_words(field: FieldInfo) -> str:
    return _words(field.annotation) + _bounds(field.metadata)


def _words(annotation: Any) -> str:  # noqa: PLR0911 - a table of kinds
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(parts[0]) + _bounds(parts[1:])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        kinds = [_words(part) for part in parts if part is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if origin is tuple:
        return f"list: {_words(parts[0])}"
    if origin is dict:
        return f"by name: {_words(parts[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{one.value}`" for one in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return getattr(annotation, "__name__", str(annotation)).lower()


def _bounds(metadata: Sequence[object]) -> str:
    said = []
    for rule in metadata:
        if isinstance(rule, FieldInfo):
            said.append(_bounds(rule.metadata).removeprefix(", "))
        elif isinstance(rule, Ge):
            said.append(f"at least {rule.ge}")
        elif isinstance(rule, Gt):
            said.append(f"above {rule.gt}")
        elif isinstance(rule, Le):
            said.append(f"at most {rule.le}")
        elif isinstance(rule, Lt):
            said.append(f"below {rule.lt}")
    return "".join(f", {one}" for one in said if one)


def _default(field: FieldInfo, *, has_section: bool) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "its defaults" if has_section else "none"
    values = value if isinstance(value, tuple | list | dict) else [value]
    return ", ".join(_shown(one) for one in values) or "empty"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if str(value) else "empty"
