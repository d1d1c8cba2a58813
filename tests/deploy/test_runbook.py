"""Every alert has its place in the runbook.

That commands of all pages exist is tested in `tests.docs.test_commands`.
"""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
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
