"""Every alert has its place in the runbook, and every command there exists as it is written."""

import re
import shlex
from pathlib import Path

import click
import pytest
import typer
import yaml

from pipelines.cli import app

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
DOCUMENTS = ("runbook.md", "deployment.md")
PARTS = ("**Means**", "**How bad**", "**Look**", "**Mend**", "**Over when**")


def alerts() -> list[str]:
    rules = [
        rule
        for path in (ROOT / "deploy" / "prometheus").glob("*alerts.yaml")
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]
    return [rule["alert"] for rule in rules if "alert" in rule]


def sections() -> dict[str, str]:
    """Text of each alert's section by its name; a heading's anchor is the name in small letters."""
    parts = re.split(r"^### (\w+)\n", RUNBOOK, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("alert", alerts())
def test_every_alert_has_a_section_that_says_all_five_things(alert: str) -> None:
    said = sections()[alert]
    at = [said.find(part) for part in PARTS]
    assert -1 not in at
    assert at == sorted(at)


def test_alerts_that_are_sent_without_prometheus_have_one_too() -> None:
    sent = {
        name
        for path in (ROOT / "pipelines").rglob("*.py")
        for name in re.findall(
            r'"(Forewarn(?:Node|Coverage|Check|Job|Hours)\w+)"', path.read_text()
        )
    }
    assert sent >= {"ForewarnNodeFailureLikely", "ForewarnCoverageLow"}
    assert sent <= set(sections())


def commands(name: str) -> list[str]:
    """Every command of ours that a document writes as code, on one line or over two."""
    text = (ROOT / "docs" / name).read_text()
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    plain = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in fenced for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"^    (.+)$", plain, flags=re.MULTILINE)
    lines += [" ".join(one.split()) for one in re.findall(r"`([^`]+)`", plain)]
    found = []
    for line in lines:
        match = re.match(r"(?:.*[ /])?(?<!-n )(forewarn [a-z].*)", line.split(" #")[0])
        if match:
            found.append(match.group(1))
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_exists_with_its_options(name: str) -> None:
    asked = commands(name)
    assert len(asked) > 5
    for line in asked:
        words = shlex.split(line)[1:]
        found: click.Command = typer.main.get_command(app)
        while words and hasattr(found, "commands") and words[0] in found.commands:
            found = found.commands[words.pop(0)]
        assert not hasattr(found, "commands"), line
        known = {option for one in found.params for option in (*one.opts, *one.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, line
