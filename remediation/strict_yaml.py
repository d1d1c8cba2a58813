"""Reads YAML and refuses a key that is given twice, where the last one would win in silence.

Also says in words what pydantic found wrong with the values. What a document must say is checked
where it is read.
"""

import reprlib
from collections.abc import Mapping
from typing import Any, Final

import yaml

# What stands where keys, or another key, belong may be the secret itself in place of a reference.
_NOT_QUOTED: Final = frozenset(
    {"missing", "extra_forbidden", "model_type", "model_attributes_type", "dict_type"}
)

_SHORT: Final = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80


class PlacedLoader(yaml.SafeLoader):
    """A safe loader that says in which line a value is that cannot be."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's signature
        """Builds a value as PyYAML does: a day that no month has, or too long a number, is none."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            words = f"a value cannot be read: {error}"
            raise yaml.constructor.ConstructorError(None, None, words, node.start_mark) from error


class _StrictLoader(PlacedLoader):
    """A safe loader that knows a repeated key when it sees one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        """Builds a mapping as PyYAML does, after looking for repeated keys."""
        seen: dict[object, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag.endswith(":merge"):
                continue
            line = key_node.start_mark.line + 1
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"key {key_node.value!r} is given twice, in lines {seen[key_node.value]} and "
                    f"{line}; keep one",
                    None,
                )
            seen[key_node.value] = line
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """The document's plain values.

    Args:
        text: One YAML document.

    Raises:
        yaml.YAMLError: It is no YAML, gives a key twice, or holds a value that cannot be: a day
            that no month has, a number without end, lists nested without end.

    >>> parse_yaml("a: 1")
    {'a': 1}
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - the loader is a SafeLoader
    except yaml.MarkedYAMLError as error:
        # Without PyYAML's picture of the line: a secret may stand in it.
        mark = error.problem_mark
        where = "" if mark is None else f", in line {mark.line + 1}"
        raise yaml.YAMLError(f"{error.problem or error.context}{where}") from error
    except RecursionError as error:
        raise yaml.YAMLError("values are nested too deeply") from error


def is_quotable(found: Mapping[str, Any]) -> bool:
    """Whether the value that pydantic found wrong may be shown: it is no secret out of its place.

    >>> is_quotable({"type": "int_type", "input": "x"}), is_quotable({"type": "dict_type"})
    (True, False)
    """
    value = found.get("input")
    within = value if isinstance(value, list) else [value]
    return found["type"] not in _NOT_QUOTED and not any(isinstance(x, dict | list) for x in within)


def shortly(value: object) -> str:
    """A value in few words: a few lines of aliases of aliases are gigabytes when written out.

    >>> shortly([[[1]]])
    '[[[...]]]'
    """
    return _SHORT.repr(value)


def said_of(found: Mapping[str, Any]) -> str:
    """What pydantic found wrong, in words for who wrote the file.

    >>> said_of({"type": "extra_forbidden", "msg": "Extra inputs are not permitted"})
    'no key of this name is known; docs/remediation.md lists them'
    """
    if found["type"] == "extra_forbidden":
        return "no key of this name is known; docs/remediation.md lists them"
    return str(found["msg"]).removeprefix("Value error, ")
