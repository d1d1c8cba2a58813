"""Every command that a page names exists, with the options it is given."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
import typer.main

from pipelines.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Code within a sentence may go on in the next line.
_CODE = re.compile(r"^```.*?^```|^(?: {4}.*\n)+|`[^`\n]+(?:\n[^`\n]+)?`", re.DOTALL | re.MULTILINE)
# Not the namespace of `kubectl -n forewarn`.
_COMMAND = re.compile(r"(?<![\w/.-])(?<!-n )forewarn( [^`|;&#<>\n]+)")


def _commands(page: str) -> Iterator[list[str]]:
    """The words after `forewarn` of each command; brackets that mark the optional are dropped."""
    for code in _CODE.findall(page):
        is_within = code.startswith("`") and not code.startswith("```")
        for words in _COMMAND.findall(code.replace("\n" if is_within else "\\\n", " ")):
            given = re.sub(r"[\[\]`]", " ", words).split()
            # An account of that name, as in `sudo -u forewarn forewarn remediate`.
            if given[0] not in ("forewarn", "..."):
                yield given


@cache
def _program() -> click.Command:
    return typer.main.get_command(app)


def _problem(given: list[str]) -> str | None:
    command, rest = _program(), list(given)
    while below := getattr(command, "commands", None):
        if not rest or rest[0].startswith("-"):
            return None
        name = rest.pop(0)
        if name not in below:
            return f"no command {name}"
        command = below[name]
    known = {
        "--help",
        *(name for one in command.params for name in [*one.opts, *one.secondary_opts]),
    }
    wrong = [word for word in rest if word.startswith("--") and word.split("=")[0] not in known]
    return f"no option {', '.join(wrong)}" if wrong else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_exist(page: Path) -> None:
    found = [
        f"forewarn {' '.join(given)}: {problem}"
        for given in _commands(page.read_text(encoding="utf-8"))
        if (problem := _problem(given))
    ]
    assert not found


def test_commands_are_found_at_all() -> None:
    assert [*_commands("    forewarn score --loop\n\nSay `forewarn why NODE | less`.\n")] == [
        ["score", "--loop"],
        ["why", "NODE"],
    ]
    assert [*_commands("Say `forewarn models rollback m\n--by ME`, or `a` and\n`b`.\n")] == [
        ["models", "rollback", "m", "--by", "ME"],
    ]
    assert _problem(["score", "--loop"]) is None
    assert _problem(["score", "--lop"]) == "no option --lop"
    assert _problem(["remediate", "whence"]) == "no command whence"
