"""Which keys a document may have at a place, as its model says, and the nearest to a wrong one.

No document is read here.
"""

import difflib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel

Place = tuple[int | str, ...]
"""Where a value is: keys, and numbers within lists."""

_NEAR_ENOUGH: Final = 0.6


def sections_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The models that a value of an annotation, or what it is made of, may be.

    >>> class Inner(BaseModel): ...
    >>> [one.__name__ for one in sections_of(dict[str, Inner] | None)]
    ['Inner']
    """
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return (annotation,)
    if get_origin(annotation) is Literal:
        return ()
    found = [one for part in get_args(annotation) for one in sections_of(part)]
    return tuple(dict.fromkeys(found))


def keys_at(model: type[BaseModel], place: Place) -> tuple[str, ...]:
    """The keys that are known at a place; none where no section is.

    Args:
        model: Of the whole document.
        place: The section's place. What pydantic puts between keys (the kind of an input) and
            numbers in lists are understood.
    """
    names = [key for section in _walked(model, place) for key in _keys(section)]
    return tuple(dict.fromkeys(names))


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known word that a misspelt one was most likely meant to be; None: none is near.

    >>> nearest("lead_minuts", ["lead_minutes", "horizons_h"])
    'lead_minutes'
    """
    lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(word.lower().replace("-", "_"), lower, 1, _NEAR_ENOUGH)
    return lower[found[0]] if found else None


def _walked(model: type[BaseModel], place: Place) -> tuple[type[BaseModel], ...]:
    at: tuple[type[BaseModel], ...] = (model,)
    for step in place:
        inner = [one for section in at for one in _inner(section, step)]
        if inner or any(step in _keys(section) for section in at):
            at = tuple(dict.fromkeys(inner))
        elif any(_is_kind(section, step) for section in at):
            at = tuple(section for section in at if _is_kind(section, step))
    return at


def _keys(section: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in section.model_fields.items())


def _inner(section: type[BaseModel], step: int | str) -> Iterator[type[BaseModel]]:
    for name, field in section.model_fields.items():
        if step == (field.alias or name):
            yield from sections_of(field.annotation)


def _is_kind(section: type[BaseModel], step: int | str) -> bool:
    field = section.model_fields.get("kind")
    return field is not None and step in get_args(field.annotation)
