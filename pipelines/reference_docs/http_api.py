"""The reference page of the HTTP API: every route, parameter and shape, from its own description.

What a route does is in `pipelines.api`.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pipelines.api.access import open_access
from pipelines.api.application import build_application
from pipelines.api.sources import open_sources
from pipelines.reference_docs.markdown import markdown_table
from pipelines.settings import settings_from

_HEAD: Final = """# HTTP API

Every route, made from the API's own description (`python -m pipelines.reference_docs`); a running
server has it at `/api/v1/openapi.json`. Who may ask, pages, tags and errors are in
[the HTTP API](../api.md). An error is a `Problem`, whatever its status.
"""
_PREFIX: Final = "#/components/schemas/"
_PLAIN: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "yes or no",
    "object": "object",
}


def http_page() -> str:
    """The page in Markdown: the routes, then the shapes of what they answer."""
    described = _description()
    shapes = described["components"]["schemas"]
    routes = [
        _route(method, path, operation)
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
    ]
    return "\n".join([_HEAD, *routes, "## Shapes\n", *_shapes(shapes)])


def _description() -> dict[str, Any]:
    """The OpenAPI document of an installation that has nothing yet: nothing is opened or made."""
    with tempfile.TemporaryDirectory() as folder:
        needed = {"site": "docs", "inputs": "inputs.yaml", "data_root": "data"}
        settings = settings_from(
            {**needed, "start": "2026-01-01T00:00:00Z"}, origin=Path(folder) / "forewarn.yaml"
        )
        app = build_application(open_sources(settings), open_access(settings, listen=None))
        return dict(app.openapi())


def _route(method: str, path: str, operation: Mapping[str, Any]) -> str:
    said = [f"## {method.upper()} {path}", "", f"{operation['summary'].rstrip('.')}.", ""]
    if words := operation.get("description"):
        said += [" ".join(words.split()), ""]
    rows = [_parameter(one) for one in operation.get("parameters", [])]
    if rows:
        said += [markdown_table(["parameter", "in", "value", "default", "meaning"], rows), ""]
    if body := operation.get("requestBody"):
        said += [f"Body: {_content(body)}.", ""]
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            said += [f"Answer: {status}, {_content(answer)}.", ""]
    return "\n".join(said)


def _content(part: Mapping[str, Any]) -> str:
    kinds = [
        _kind(held["schema"]) if held.get("schema") else f"`{media}`"
        for media, held in part.get("content", {}).items()
    ]
    return " or ".join(kinds) or "nothing"


def _parameter(one: Mapping[str, Any]) -> list[str]:
    schema = one["schema"]
    default = "**required**" if one.get("required") else _value(schema.get("default"))
    meaning = one.get("description") or schema.get("description", "")
    return [f"`{one['name']}`", one["in"], _kind(schema), default, meaning]


def _shapes(shapes: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(shapes):
        shape = shapes[name]
        needed = shape.get("required", ())
        rows = [
            [
                f"`{key}`",
                _kind(field),
                "" if key in needed else _value(field.get("default")) or "may be absent",
                field.get("description", ""),
            ]
            for key, field in shape.get("properties", {}).items()
        ]
        words = " ".join(shape.get("description", "").split())
        yield f"### {name}\n\n{words}\n"
        if rows:
            yield markdown_table(["field", "value", "default", "meaning"], rows) + "\n"
        else:
            yield f"{_kind(shape)}.\n"


def _kind(schema: Mapping[str, Any]) -> str:  # noqa: PLR0911 - a table of kinds
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_PREFIX)
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        kinds = [_kind(one) for one in choices if one.get("type") != "null"]
        has_null = len(kinds) < len(choices)
        return " or ".join([*dict.fromkeys(kinds), *(["null"] if has_null else [])])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if schema.get("format") == "date-time":
        return "time with zone"
    low, high = schema.get("minimum"), schema.get("maximum")
    words = _PLAIN.get(schema.get("type", ""), "any value")
    words += f", at least {low:g}" if low is not None else ""
    return words + (f", at most {high:g}" if high is not None else "")


def _value(default: Any) -> str:
    if default is None:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
