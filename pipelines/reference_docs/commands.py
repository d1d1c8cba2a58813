"""The reference page of commands: every command of `forewarn` with arguments, options, defaults.

What a command does is in `pipelines.cli` and the modules it names.
"""

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, Literal, get_args, get_origin

import typer.main

from pipelines.cli import app
from pipelines.reference_docs.markdown import markdown_table

_HEAD: Final = """# Commands

Every command of `forewarn`, made from the program itself (`python -m pipelines.reference_docs`).
Unless a command says otherwise, exit code 0 is success, 1 asks a person to look, and 2 means that
it could not run: one line on standard error says why and what to do. 130 is Ctrl-C.

A settings file is named by `--settings` or by `FOREWARN_SETTINGS`.
"""


def commands_page() -> str:
    """The page in Markdown: one section per command."""
    sections = list(_sections(typer.main.get_command(app), "forewarn"))
    return "\n".join([_HEAD, *sections])


def _sections(command: Any, path: str) -> Iterator[str]:
    """The command's own section, or those of the commands below it."""
    below = getattr(command, "commands", None)
    if below is None:
        yield _section(command, path)
        return
    if path != "forewarn" and command.epilog:
        yield f"## {path}\n\n{_text(command.help)}\n\n{_text(command.epilog)}\n"
    for name in sorted(below):
        yield from _sections(below[name], f"{path} {name}")


def _section(command: Any, path: str) -> str:
    shown = [one for one in command.params if one.name != "help" and not one.hidden]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    usage = " ".join([path, *(_argument(one) for one in arguments), "[OPTIONS]"])
    said = [f"## {path}", "", _text(command.help), "", f"    {usage}", ""]
    if shown:
        rows = [[_name(one), _value(one), _default(one), one.help or ""] for one in shown]
        said += [markdown_table(["argument or option", "value", "default", "meaning"], rows), ""]
    return "\n".join(said)


def _text(words: str | None) -> str:
    """Help as paragraphs; a form feed ends what is shown."""
    return inspect.cleandoc((words or "").split("\f")[0])


def _argument(parameter: Any) -> str:
    name = _shown_name(parameter)
    many = "..." if parameter.nargs == -1 else ""
    return f"{name}{many}" if parameter.required else f"[{name}{many}]"


def _shown_name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_shown_name(parameter)}`"
    return " / ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _value(parameter: Any) -> str:
    if parameter.param_type_name == "option" and parameter.is_flag:
        return ""
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        words = ", ".join(f"`{one.value}`" for one in kind)
    elif get_origin(kind) is Literal:
        words = ", ".join(f"`{one}`" for one in get_args(kind))
    else:
        words = parameter.metavar or {"int": "whole number", "float": "number"}.get(
            getattr(kind, "__name__", ""), "text"
        )
    low, high = parameter.min, parameter.max
    words += f", at least {low}" if low is not None else ""
    words += f", at most {high}" if high is not None else ""
    return f"{words}; may be repeated" if parameter.multiple else words


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "**required**"
    if parameter.envvar:
        return f"`${parameter.envvar}`"
    if value is None or value is False or value == "" or callable(value):
        return ""
    values = value if isinstance(value, list | tuple) else [value]
    return ", ".join(_shown(one) for one in values)


def _shown(value: Any) -> str:
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return "yes" if value is True else f"`{value}`"
