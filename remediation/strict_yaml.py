"""Reads YAML and refuses a key that is given twice, where the last one would win in silence.

Also says in words what pydantic found wrong with the values. What a document must say is checked
where it is read.
"""

from collections.abc import Mapping
from typing import Any

import yaml


class _StrictLoader(yaml.SafeLoader):
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
    except (ValueError, OverflowError) as error:
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error
    except RecursionError as error:
        raise yaml.YAMLError("values are nested too deeply") from error


def said_of(found: Mapping[str, Any]) -> str:
    """What pydantic found wrong, in words for who wrote the file.

    >>> said_of({"type": "extra_forbidden", "msg": "Extra inputs are not permitted"})
    'no key of this name is known; docs/remediation.md lists them'
    """
    if found["type"] == "extra_forbidden":
        return "no key of this name is known; docs/remediation.md lists them"
    return str(found["msg"]).removeprefix("Value error, ")
