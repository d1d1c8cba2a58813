"""A YAML document with the line of each of its keys, and every key that it gives twice.

What a document must say is checked in `pipelines.config.documents`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipelines.sections.known_keys import Place
from remediation.given_text import given_text
from remediation.strict_yaml import PlacedLoader


@dataclass(frozen=True)
class Mistake:
    """Why a document, or a part of it, cannot be read.

    Attributes:
        words: What is wrong.
        line: Where; None: unknown.
        key: Key, in the form `a.b[0]`; empty: the document.
    """

    words: str
    line: int | None = None
    key: str = ""


@dataclass(frozen=True)
class Document:
    """A document as it lies in a file.

    Attributes:
        path: The file.
        content: Its plain values; None: it cannot be read.
        lines: Line of each place in it, from 1.
        mistakes: What is wrong with it as YAML.
        odd_keys: Places of keys that are no text: numbers, dates, true, null.
    """

    path: Path
    content: Any = None
    lines: Mapping[Place, int] = field(default_factory=dict)
    mistakes: tuple[Mistake, ...] = ()
    odd_keys: tuple[Place, ...] = ()

    def line_of(self, place: Place) -> int | None:
        """The line of a place, or of the nearest section around it; None for the whole.

        Args:
            place: As pydantic names it; what it puts between keys is passed over.
        """
        at: Place = ()
        for step in place:
            if (*at, step) in self.lines:
                at = (*at, step)
        return self.lines.get(at)


class _Part(NamedTuple):
    """A key or an entry: its place, the node that holds it, its line, whether it is an odd key."""

    place: Place
    holder: int
    line: int
    is_odd: bool


def read_document(path: Path) -> Document:
    """Reads a file; what is wrong with it is told, never raised."""
    try:
        text = given_text(path)
    except OSError as error:
        return Document(path, mistakes=(Mistake(f"the file cannot be read: {error.strerror}"),))
    except UnicodeDecodeError as error:
        return Document(path, mistakes=(Mistake(f"the file is not UTF-8: {error.reason}"),))
    except ValueError:
        return Document(path, mistakes=(Mistake("its name holds what no file's name can"),))
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        parts = list(_walk(node, (), set()))
        content = yaml.load(text, Loader=PlacedLoader)  # noqa: S506 - it is a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or " ".join(str(error).split())
        line = None if mark is None else mark.line + 1
        return Document(path, mistakes=(Mistake(f"no YAML: {said}", line),))
    except RecursionError:
        return Document(path, mistakes=(Mistake("values are nested too deeply"),))
    lines = {part.place: part.line for part in parts}
    odd = tuple(part.place for part in parts if part.is_odd)
    return Document(path, content, lines, tuple(_given_twice(parts)), odd)


def in_words(place: Place) -> str:
    """A place as a person writes it.

    >>> in_words(("inputs", 0, "url"))
    'inputs[0].url'
    """
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return words.removeprefix(".")


def _walk(node: yaml.Node | None, place: Place, seen: set[int]) -> Iterator[_Part]:
    """Every part of a document, each node once: aliases of aliases would have no end."""
    if id(node) in seen:
        return
    seen.add(id(node))
    for step, at, inner in _parts(node):
        is_odd = isinstance(step, str) and not at.tag.endswith(":str")
        yield _Part((*place, step), id(node), at.start_mark.line + 1, is_odd)
        yield from _walk(inner, (*place, step), seen)


def _given_twice(parts: Sequence[_Part]) -> Iterator[Mistake]:
    first: dict[tuple[int, int | str], int] = {}
    for part in parts:
        key = (part.holder, part.place[-1])
        if key in first:
            words = f"given twice, in lines {first[key]} and {part.line}; keep one"
            yield Mistake(words, part.line, in_words(part.place))
        first.setdefault(key, part.line)


def _parts(node: yaml.Node | None) -> Iterator[tuple[int | str, yaml.Node, yaml.Node]]:
    """Each part of a node: its key or number, the node that says where it is, and its value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge"):
                yield key.value, key, value
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield number, value, value
