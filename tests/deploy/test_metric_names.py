"""Rules, dashboards and runbook ask for nothing that the exporters do not print."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy.exported import samples

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
RULES = sorted((ROOT / "deploy" / "prometheus").glob("*alerts.yaml"))
NAME = re.compile(r"\bforewarn_[a-z0-9_]+")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Labels by name of what is printed."""
    found: dict[str, set[str]] = {}
    for _, one in samples(tmp_path_factory.mktemp("exported")):
        found.setdefault(one.name, set()).update(one.labels)
    return found


def expressions(path: Path) -> Iterator[str]:
    if path.suffix == ".json":
        for panel in json.loads(path.read_text())["panels"]:
            yield from (target["expr"] for target in panel.get("targets", ()))
    else:
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from (rule["expr"] for rule in group["rules"])


@pytest.mark.parametrize("path", [*DASHBOARDS, *RULES], ids=lambda path: path.name)
def test_every_metric_that_is_asked_for_is_printed(
    path: Path, printed: dict[str, set[str]]
) -> None:
    asked = {name for one in expressions(path) for name in NAME.findall(one)}
    assert asked
    assert asked <= set(printed), f"{path.name}: not printed: {sorted(asked - set(printed))}"


@pytest.mark.parametrize("path", [*DASHBOARDS, *RULES], ids=lambda path: path.name)
def test_every_label_that_is_asked_for_is_printed(path: Path, printed: dict[str, set[str]]) -> None:
    for expression in expressions(path):
        for name, matchers in re.findall(r"(forewarn_[a-z0-9_]+)\{([^}]*)\}", expression):
            asked = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", matchers))
            assert asked <= printed[name], f"{name}{{{matchers}}}"


def test_the_runbook_names_no_metric_that_is_not_printed(printed: dict[str, set[str]]) -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    assert set(NAME.findall(runbook)) <= set(printed)


def test_every_metric_is_in_a_rule_or_on_a_dashboard(printed: dict[str, set[str]]) -> None:
    asked = {
        name for path in (*DASHBOARDS, *RULES) for one in expressions(path)
        for name in NAME.findall(one)
    }  # fmt: skip
    left = {one for one in printed if one not in asked}
    # Moments whose ages are shown, and counts that stand beside others.
    assert left == {
        "forewarn_scores_as_of_timestamp_seconds",
        "forewarn_scores_published_timestamp_seconds",
        "forewarn_nodes_not_listed",
        "forewarn_ticks_total",
        "forewarn_drift_week_timestamp_seconds",
    }
