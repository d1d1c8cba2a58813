"""Holds a YAML document against its pydantic model and tells all that is wrong, line by line.

Which documents an installation has, and how they must fit together, is in
`pipelines.config.check`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from pipelines.config.yaml_lines import Document, Mistake, in_words
from pipelines.sections.known_keys import Place, keys_at, nearest
from pipelines.sections.serving import without_password
from remediation.plan import plain
from remediation.strict_yaml import is_quotable, shortly

_Model = TypeVar("_Model", bound=BaseModel)
Level = Literal["error", "warning"]

_INPUT_SHOULD: Final = re.compile(r"^Input should (?:be |have )?")
_WORD: Final = re.compile(r"'([^']+)'")
_PLAIN: Final = {
    "missing": "it must be given",
    "union_tag_not_found": "it must have a kind",
    "model_type": "expected a section of keys and values",
    "model_attributes_type": "expected a section of keys and values",
    "dict_type": "expected a section of keys and values",
}
"""What pydantic says in words of its own trade, in ours."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong, or looks wrong.

    Attributes:
        level: An error keeps a part from working; a warning is for a person to judge.
        file: File, or `environment`.
        line: Line in it; None: unknown, or the whole file.
        key: Key path, or variable; empty: the file.
        expected: What it should be.
        got: What it is; empty: said in `expected`, or not to be shown.
        do: What to do.
    """

    level: Level = "error"
    file: str
    line: int | None = None
    key: str = ""
    expected: str
    got: str = ""
    do: str

    def words(self) -> str:
        """It in one line."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f" {self.key}:" if self.key else ""
        got = f", got {self.got}" if self.got else ""
        return plain(f"{where}: {self.level}:{key} {self.expected}{got}. {self.do}")

    def values(self) -> dict[str, Any]:
        """It as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Checked(Generic[_Model]):
    """A document that was checked.

    Attributes:
        document: As it lies in the file.
        value: What it says; None: it cannot be used.
        problems: What is wrong with it.
    """

    document: Document
    value: _Model | None
    problems: tuple[Problem, ...]


def check_document(
    document: Document,
    model: type[_Model],
    *,
    guide: str,
    content: Any = None,
    variables: Mapping[Place, str] | None = None,
) -> Checked[_Model]:
    """Checks all of a document.

    Args:
        document: The document.
        model: What it must say.
        guide: Where its keys are described.
        content: What counts in place of the document's own content.
        variables: Environment variables that gave a value of it, by place.

    Returns:
        The value, if everything is right, and every problem.
    """
    problems = [_of_yaml(document, one, guide) for one in document.mistakes]
    content = document.content if content is None else content
    if not isinstance(content, dict):
        return Checked(document, None, tuple(problems or [_of_no_keys(document, content, guide)]))
    try:
        value = model.model_validate(content)
    except ValidationError as error:
        said = _Said(document, model, guide, variables or {})
        # A list whose entries are all wrong is also called too short.
        found = [one for one in error.errors() if one["type"] != "too_short" or not one["input"]]
        problems += [said.of(one) for one in found if one["type"] != "invalid_key"]
        problems += said.of_odd_keys([one for one in found if one["type"] == "invalid_key"])
        return Checked(document, None, tuple(sorted(problems, key=lambda one: one.line or 0)))
    return Checked(document, None if problems else value, tuple(problems))


def shown(value: object) -> str:
    """A value, short and without the password of an address."""
    if isinstance(value, date):
        return value.isoformat()
    return shortly(without_password(value) if isinstance(value, str) else value)


@dataclass(frozen=True)
class _Said:
    """Says what pydantic found in our words."""

    document: Document
    model: type[BaseModel]
    guide: str
    variables: Mapping[Place, str]

    def of(self, found: Mapping[str, Any]) -> Problem:
        place: Place = tuple(found["loc"])
        expected, do = self._expected(found, place)
        variable = self._variable(place)
        return Problem(
            file="environment" if variable else str(self.document.path),
            line=None if variable else self.document.line_of(place),
            key=variable or in_words(self._written(place)),
            expected=expected,
            got=shown(found["input"]) if is_quotable(found) else "",
            do=do,
        )

    def of_odd_keys(self, found: Sequence[Mapping[str, Any]]) -> list[Problem]:
        """Keys that are no text, by the words of the file: pydantic names what YAML made of it."""
        sections = {self._written(tuple(one["loc"]))[:-1] for one in found}
        return [
            Problem(
                file=str(self.document.path),
                line=self.document.lines[place],
                key=in_words(place),
                expected="expected a name as a key, which YAML reads as something else",
                do=f"{self.guide} has the names; one that is none needs quotes.",
            )
            for place in self.document.odd_keys
            if place[:-1] in sections
        ]

    def _expected(self, found: Mapping[str, Any], place: Place) -> tuple[str, str]:
        kind, message = str(found["type"]), str(found["msg"])
        context = found.get("ctx", {})
        if kind == "extra_forbidden":
            known = keys_at(self.model, place[:-1])
            return "no key of this name is known", self._instead(str(place[-1]), known)
        if kind in _PLAIN:
            return _PLAIN[kind], f"See {self.guide}."
        if kind in ("union_tag_invalid", "literal_error", "enum"):
            known = tuple(_WORD.findall(str(context.get("expected_tags") or context["expected"])))
            wrong = found["input"]
            if isinstance(wrong, dict):
                wrong = wrong.get("kind", "")
            return f"expected one of {', '.join(known)}", self._instead(str(wrong), known)
        if _INPUT_SHOULD.match(message):
            return f"expected {_INPUT_SHOULD.sub('', message)}", f"See {self.guide}."
        return message.removeprefix("Value error, ").rstrip("."), f"See {self.guide}."

    def _instead(self, word: str, known: tuple[str, ...]) -> str:
        near = nearest(word, known)
        if near is not None:
            return f"Did you mean {near}?"
        return f"Known here: {', '.join(known)}." if known else f"See {self.guide}."

    def _variable(self, place: Place) -> str | None:
        ends = (place[:length] for length in range(len(place), 0, -1))
        if found := next((self.variables[end] for end in ends if end in self.variables), None):
            return found
        if not place or place in self.document.lines:
            return None
        # A section that the file does not have: what is wrong with it was given for keys of it.
        within = (name for key, name in self.variables.items() if key[: len(place)] == place)
        return next(within, None)

    def _written(self, place: Place) -> Place:
        """The place without what pydantic puts between the keys of the file."""
        at: Place = ()
        for number, step in enumerate(place):
            is_last = number == len(place) - 1
            if is_last or (*at, step) in self.document.lines or step in keys_at(self.model, at):
                at = (*at, step)
        return at


def _of_yaml(document: Document, mistake: Mistake, guide: str) -> Problem:
    return Problem(
        file=str(document.path),
        line=mistake.line,
        key=mistake.key,
        expected=mistake.words,
        do=f"{guide} shows its form.",
    )


def _of_no_keys(document: Document, content: object, guide: str) -> Problem:
    return Problem(
        file=str(document.path),
        expected="expected keys and values",
        got="an empty file" if content is None else type(content).__name__,
        do=f"{guide} shows its form.",
    )
