"""The replay report: what is read, which policy is replayed, what is said, and the page itself."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from features.errors import SettingsError
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_TOPOLOGY,
    GPU_SCORES,
    NODE_SCORES,
)
from models.evaluation.row_metrics import Estimate
from models.policies.warnings import WarningPolicy
from pipelines import cli
from pipelines.flow.publish import publish_scores
from pipelines.report.shadow.hours import fleet_of, lost_in_all
from pipelines.storage.store import Span, TableStore
from pipelines.studies.replay.input import ReplayInput, read_history, read_policy
from pipelines.studies.replay.report import ReplayFigures, render_replay, replay_figures
from pipelines.studies.replay.words import summary, verdict
from remediation.shadow_outcomes import place_incidents
from simulation.replay.books import KINDS
from simulation.replay.comparison import Comparison, Figures
from simulation.replay.engine import replay
from simulation.replay.signals import never
from tests.simulation.replay.replay_world import (
    FREE,
    H,
    T,
    event,
    history,
    incident,
    job,
    record,
    score,
    table,
)

HOSTILE = "a<script>alert(1)</script>\x1b[31m"
GRID = Path(__file__).parents[5] / "shared/data/grid5000/node_states_until_2006-07.parquet"
PHILLY = Path(__file__).parents[5] / "shared/data/philly/jobs.csv"
HURT = job("j", 5, 10.5, "hardware", n_gpus=8)


def small(**changes: Any) -> ReplayInput:
    """One failure that the scores announce."""
    found = history(record(jobs=[HURT], incidents=[incident(10)], scores=[score(2, 0.9)],
                           events=[event(1)]))  # fmt: skip
    return ReplayInput(name="alpha", note="", history=found, site=FREE, **changes)


def figures(name: str, **changes: Any) -> Figures:
    values = {
        "name": name, "lost": 100.0, "saved": Estimate(0.0, 0.0, 0.0), "avoided": 0.0,
        "spent": 0.0, "unused": 0.0, "actions": {"drain_after_jobs": 10},
        "drains": {"useful": 0, "late": 0, "wasted": 0, "open": 0},
        "by_kind": dict.fromkeys(KINDS, 1.0),
        "n_failure_interruptions": 1, "n_drain_interruptions": 0, "ettr": 0.9,
    }  # fmt: skip
    return Figures(**(values | changes))


def side_by_side(**model: Any) -> Comparison:
    oracle = figures(
        "oracle", saved=Estimate(90.0, 50.0, 99.0), avoided=100.0, spent=10.0,
        drains={"useful": 10, "late": 0, "wasted": 0, "open": 0},
    )  # fmt: skip
    found = {"never": figures("never"), "model": figures("model", **model), "oracle": oracle}
    return Comparison(figures=found, runs={}, finding="check")


def drains(useful: int, wasted: int) -> Mapping[str, int]:
    return {"useful": useful, "late": 0, "wasted": wasted, "open": 0}


LOSES = {"saved": Estimate(-20.0, -30.0, -5.0), "avoided": 10.0, "spent": 30.0}
SAVES = {"saved": Estimate(20.0, 5.0, 30.0), "avoided": 50.0, "spent": 30.0}


@pytest.mark.parametrize(
    ("found", "kept", "said"),
    [
        (LOSES | {"drains": drains(1, 9)}, {},
         ("does not pay here: it loses 20 GPU-hours .* pay once 30 % of them are useful, each "
         "sparing what the oracle's do on average, and 10 % were; .* failures cost 3 times")),
        (LOSES | {"avoided": 0.0, "drains": drains(0, 10)}, {}, "does not pay .* and 0 % were"),
        ({}, {}, (
            "would have done nothing.* cost jobs 4.0 GPU-hours .* alone costs 4.0.*"
            "perfect .* would save 90")),
        (SAVES | {"drains": drains(5, 5)}, SAVES,
         ("saves 20 GPU-hours .95 % interval 5.0 to 30.; .* pay once 30 % .* those here do on "
          "average, and 50 % were")),
        (SAVES | {"drains": drains(5, 5)}, LOSES, "holds only if the check .* it loses 20"),
        (SAVES | {"saved": Estimate(20.0, -5.0, 30.0), "drains": drains(5, 5)}, SAVES,
         "which chance alone may have done"),
    ],
    ids=["loses", "avoids nothing", "does nothing", "saves", "saves by checks", "by chance"],
)  # fmt: skip
def test_one_sentence_says_whether_acting_pays_and_from_when_on(
    found: dict[str, Any], kept: dict[str, Any], said: str
) -> None:
    text = verdict(small(), side_by_side(**found), side_by_side(**kept)).replace("\u00a0", " ")
    assert re.search(said, text.replace("\u2212", "-")), text
    assert "anecdote" in text


def test_cheap_recovery_is_named_where_even_the_oracle_saves_nothing() -> None:
    found = side_by_side(**LOSES, drains=drains(1, 9))
    nothing = {**found.figures, "oracle": figures("oracle")}
    text = verdict(small(), replace(found, figures=nothing), found)
    assert "Even a perfect forecast would save nothing: recovery is cheap here" in text


@st.composite
def worlds(draw: st.DrawFn) -> Any:
    jobs = []
    for number in range(draw(st.integers(0, 6))):
        start = draw(st.integers(-10, 40)) / 2
        end = start + draw(st.integers(1, 60)) / 2
        nodes = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True))
        cause = draw(st.sampled_from([None, "hardware", "hang", "user_code"]))
        jobs.append(job(f"j{number}", start, end, cause, nodes=nodes))
    starts = st.lists(st.integers(1, 60).map(lambda half: half / 2), max_size=3, unique=True)
    incidents = [
        incident(at, node=node, end=at + draw(st.integers(1, 9))) for node in "abc"
        for at in draw(starts)
    ]  # fmt: skip
    return record(jobs=jobs, incidents=incidents)


@settings(max_examples=20)
@given(given=worlds())
def test_never_draining_loses_what_the_shadow_report_says_failures_cost(given: Any) -> None:
    found = history(given)
    by_kind = replay(found, FREE, never()).books.by_kind()
    lost = lost_in_all(
        place_incidents(given.incidents, given.inventory),
        fleet_of(given.jobs, given.inventory, at=T),
        costs=FREE.costs,
    )
    assert by_kind["rework"] + by_kind["hung"] + by_kind["restart"] == pytest.approx(lost)


def test_the_page_escapes_needs_nothing_else_and_is_the_same_each_time() -> None:
    given = replace(small(), name=HOSTILE, note=HOSTILE, cautions=(HOSTILE,))
    found = replay_figures(given, has_sweeps=True)
    page = render_replay(given, found)
    assert page == render_replay(given, found)
    assert "<script" not in page
    assert "\x1b" not in page
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert page.count("<svg") == 6
    assert len(re.findall(r'id="([^"]+)"', page)) == len(set(re.findall(r'id="([^"]+)"', page)))
    assert "useful" in page
    assert "NVLink, 8.0 h later" in page


def test_the_text_names_every_strategy_and_only_what_there_is() -> None:
    given = small()
    bare = replace(given, history=replace(given.history, events=(), scores=None))
    for one, names in (
        (given, ["never", "always", "static rules", "history rank", "model", "oracle"]),
        (bare, ["never", "always", "history rank", "oracle"]),
    ):
        found: ReplayFigures = replay_figures(one, has_sweeps=False)
        lines = summary(one, found.found, found.kept)
        table_lines = lines[lines.index("") + 2 : lines.index("") + 2 + len(names)]
        assert [re.split(r"  +", line)[0] for line in table_lines] == names
        assert found.sweeps == ()


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    values = {
        "site": "alpha", "inputs": "in.yaml", "data_root": "data", "start": T.isoformat(),
        "end": (T + 48 * H).isoformat(), "trained_on": "real", "horizons_h": [24],
        "node_states_hold_only_trouble": True,
    }  # fmt: skip
    (tmp_path / "forewarn.yaml").write_text(yaml.safe_dump(values))
    store = TableStore(tmp_path / "data" / "tables")
    small_record = record(jobs=[HURT], incidents=[incident(10)])
    store.write(CORE_INCIDENTS, small_record.incidents)
    store.write(CORE_INVENTORY, small_record.inventory)
    store.write(CORE_TOPOLOGY, small_record.topology)
    store.write(CORE_JOBS, small_record.jobs)
    whole = Span(T, T + 48 * H)
    store.write(CORE_HEALTH_EVENTS, CORE_HEALTH_EVENTS.empty(), span=whole)
    rows = [score(at, 0.9 if node == "a" and at > 1 else 0.1, node) for at in range(1, 48)
            for node in "abc"]  # fmt: skip
    store.write(NODE_SCORES, table(NODE_SCORES, rows), span=whole)
    return tmp_path


def policy(folder: Path, **changes: Any) -> Path:
    values = FREE.model_dump(mode="json", include={"costs", "caps", "burst", "levels"}) | {
        "warning": {"threshold": 0.5, "n": 1, "k": 1, "tick_minutes": 60}
    } | changes  # fmt: skip
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump({key: one for key, one in values.items() if one is not None}))
    return file


def run(*words: str | Path) -> tuple[int, str]:
    found = CliRunner().invoke(cli.app, ["replay", *map(str, words)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.output


def test_the_command_reads_an_installation_and_writes_page_and_figures(installation: Path) -> None:
    page, figures_file = installation / "page.html", installation / "figures.json"
    code, said = run("--history", installation, "--policy", policy(installation), "--no-sweeps",
                     "--out", page, "--json", figures_file)  # fmt: skip
    assert code == 0
    assert "3 nodes, 24 GPUs" in said
    assert "Acting on the scores saves" in said
    assert "<h1>" in page.read_text()
    values = json.loads(figures_file.read_text())
    # 8 GPUs lose 1 h of work, 0.5 h hung and 1 h of restart; the check costs 8 x 0.5.
    assert values["strategies"]["check"]["model"]["saved"]["value"] == 20 - 4 * 2
    assert [one["verdict"] for one in values["drains"]][:1] == ["useful"]


def test_the_warning_comes_with_the_published_scores_as_for_a_live_hook(installation: Path) -> None:
    file = policy(installation, warning=None)
    read = {"level": None, "since": None, "until": None, "now": T + 49 * H}
    with pytest.raises(SettingsError, match="names no warning"):
        read_history(installation, file, **read)  # type: ignore[arg-type]
    publish(installation, policies={})
    with pytest.raises(SettingsError, match="Name warning in the policy file"):
        read_history(installation, file, **read)  # type: ignore[arg-type]
    chosen = WarningPolicy(threshold=0.7, n=2, k=3, tick=H, cooldown=timedelta(0))
    publish(installation, policies={24: chosen})
    site = read_history(installation, file, **read).site  # type: ignore[arg-type]
    assert (site.warning.threshold, site.warning.n, site.warning.k) == (0.7, 2, 3)
    assert site.horizon_h == 24


def publish(folder: Path, *, policies: Mapping[int, WarningPolicy]) -> None:
    nodes = table(NODE_SCORES, [score(47, 0.9)])
    gpu = score(47, 0.9) | {"entity_kind": "gpu", "entity_id": "a-0"}
    publish_scores(
        folder / "data" / "scores", node_scores=nodes, gpu_scores=table(GPU_SCORES, [gpu]),
        published_at=T + 47 * H, ttl=H, policies=policies,
    )  # fmt: skip


def test_a_hooks_settings_file_and_its_site_file_give_the_same_policy(tmp_path: Path) -> None:
    site = policy(tmp_path)
    hook = tmp_path / "hook.yaml"
    hook.write_text(
        yaml.safe_dump(
            {
                "state": "state",
                "scores": {"folder": "scores"},
                "cluster": {"kind": "core_tables", "installation": "forewarn.yaml"},
                "site": "policy.yaml",
            }
        )
    )
    same = {"kill_switch"}
    one, two = (read_policy(file, level=None).model_dump(exclude=same) for file in (site, hook))
    assert one == two


def test_a_policy_that_acts_nowhere_is_refused_unless_a_level_is_asked_for(tmp_path: Path) -> None:
    file = policy(tmp_path, levels=[{"level": "recommend"}])
    with pytest.raises(SettingsError, match="--level"):
        read_policy(file, level=None)
    assert read_policy(file, level="cordon").level_of("a", None)[0] == "cordon"


def test_priors_and_several_models_are_told(installation: Path) -> None:
    store = TableStore(installation / "data" / "tables")
    rows = [score(1, 0.9, status="prior"), score(2, 0.9, model_version="m/2")]
    store.write(NODE_SCORES, table(NODE_SCORES, rows), span=Span(T, T + 48 * H))
    found = read_history(installation, policy(installation), level=None, since=None, until=None,
                         now=T + 49 * H)  # fmt: skip
    assert len(found.cautions) == 2
    assert "1 of 2 scores are priors" in found.cautions[1]


def test_scores_of_days_that_were_trained_on_are_told(installation: Path) -> None:
    file = installation / "forewarn.yaml"
    values = yaml.safe_load(file.read_text())
    for hours, n_cautions in ((1, 0), (24, 1)):
        until = (T + hours * H).isoformat()
        split = {"train_until": (T + 0.5 * H).isoformat(), "valid_until": until}
        file.write_text(yaml.safe_dump(values | {"split": split}))
        found = read_history(installation, policy(installation), level=None, since=None,
                             until=None, now=T + 49 * H)  # fmt: skip
        assert len(found.cautions) == n_cautions


def test_an_empty_time_and_half_a_pair_of_traces_are_refused(installation: Path) -> None:
    for since, until in ((48, None), (-1, None), (0, 50), (12, 6)):
        with pytest.raises(SettingsError, match="empty or not within the record, which is from"):
            read_history(installation, policy(installation), level=None, since=T + since * H,
                         until=until and T + until * H, now=T + 49 * H)  # fmt: skip
    code, said = run("--policy", policy(installation), "--grid5000", "x.parquet")
    assert code == 2
    assert "--philly" in said


def test_a_wrong_folder_a_wrong_policy_and_a_wrong_place_are_refused_by_name(
    installation: Path,
) -> None:
    def refused(folder: Path, file: Path, *more: Any) -> str:
        found = CliRunner().invoke(
            cli.app, ["replay", "--history", str(folder), "--policy", str(file), *map(str, more)]
        )
        assert isinstance(found.exception, SettingsError)
        return str(found.exception)

    file = policy(installation)
    assert "no file" in refused(installation / "absent", file)
    assert f"--policy {installation}: no such file" in refused(installation, installation)
    assert "is a folder" in refused(installation, file, "--out", installation)
    assert "Not a directory" in refused(installation, file, "--json", file / "x.json")


def test_a_record_without_jobs_is_told(installation: Path) -> None:
    TableStore(installation / "data" / "tables").write(CORE_JOBS, CORE_JOBS.empty())
    found = read_history(installation, policy(installation), level=None, since=None, until=None,
                         now=T + 49 * H)  # fmt: skip
    assert "every drain looks wasted" in found.cautions[0]


@pytest.mark.slow
@pytest.mark.skipif(
    not (GRID.is_file() and PHILLY.is_file()),
    reason="the real data sets (../shared/data/grid5000 and philly) are not here",
)
def test_grid5000_with_philly_jobs_runs_as_documented(tmp_path: Path) -> None:
    code, said = run("--grid5000", GRID, "--philly", PHILLY, "--policy", policy(tmp_path),
                     "--since", "2006-06-01", "--until", "2006-06-15", "--no-sweeps")  # fmt: skip
    assert code == 0
    assert "103 nodes, 824 GPUs" in said
    assert "oracle" in said
