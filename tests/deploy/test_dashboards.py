"""The dashboards hold to what Grafana's dashboard model asks, and show something."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.deploy.exported import samples
from tests.real.prometheus_server import ABSENT, PROGRAM, PrometheusServer

FILES = sorted((Path(__file__).parents[2] / "deploy" / "grafana").glob("*.json"))
UNITS = {"none", "s", "percentunit", "bytes"}
KINDS = {"stat", "timeseries", "table", "bargauge", "row"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# May be empty on a site where nothing is wrong.
MAY_BE_EMPTY = re.compile(r"> 0$")

each = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def shown(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in load(path)["panels"] if panel["type"] != "row"]


def test_there_are_three_and_each_has_an_identity_of_its_own() -> None:
    identities = {(load(path)["uid"], load(path)["title"]) for path in FILES}
    assert {path.stem for path in FILES} == {"fleet", "scorer", "hook"}
    assert len({uid for uid, _ in identities}) == len({title for _, title in identities}) == 3


@each
def test_the_data_source_is_chosen_by_who_opens_it(path: Path) -> None:
    board = load(path)
    assert board["schemaVersion"] == 39
    assert board["timezone"] == "utc"
    first = board["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert "id" not in board  # Grafana gives one; a number here would replace another board
    for panel in shown(path):
        assert panel["datasource"] == DATASOURCE
        assert all(target["datasource"] == DATASOURCE for target in panel["targets"])


@each
def test_every_panel_says_what_it_shows_in_which_unit_and_when_it_is_bad(path: Path) -> None:
    for panel in shown(path):
        assert panel["type"] in KINDS
        assert panel["title"]
        assert panel["description"].endswith(".")
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in UNITS
        assert defaults["noValue"] == "no data"
        first, *rest = [step["value"] for step in defaults["thresholds"]["steps"]]
        assert first is None
        assert rest == sorted(rest)
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0


@each
def test_no_panel_covers_another(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    panels = load(path)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@each
def test_every_variable_is_there_and_used(path: Path) -> None:
    board = load(path)
    named = {one["name"] for one in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(board["panels"])))
    assert used == named


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason=ABSENT)
def test_on_a_real_prometheus_every_panel_shows_something(tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    times = [now - minutes * 60_000 for minutes in range(120, -1, -1)]
    series = [
        (
            {"__name__": one.name, "job": job, "instance": "a", **one.labels},
            times,
            [one.value] * len(times),
        )
        for job, one in samples(tmp_path / "exported")
    ]
    empty = []
    with PrometheusServer(tmp_path / "prometheus") as server:
        server.write(series)
        for path in FILES:
            for panel in shown(path):
                for target in panel["targets"]:
                    expression = target["expr"].replace("$horizon", "24h")
                    answer = requests.get(
                        f"{server.url}/api/v1/query",
                        params={"query": expression, "time": now / 1000},
                        timeout=30,
                    ).json()
                    assert answer["status"] == "success", (expression, answer)
                    if not answer["data"]["result"] and not MAY_BE_EMPTY.search(expression):
                        empty.append(expression)
    assert empty == []
