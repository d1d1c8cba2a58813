"""The shadow report: GPU-hours by hand, fates of incidents, advice, and the page itself."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from features.contracts import TableContract
from features.errors import SettingsError
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_MAINTENANCE,
    CORE_NODE_STATES,
    NODE_SCORES,
)
from models.evaluation.row_metrics import Estimate
from pipelines.commands import remediate as cli_remediate
from pipelines.report.shadow.figures import Drift, Figures, Worth, figures_of, wilson
from pipelines.report.shadow.hours import Balance, fleet_of, hurt_by, loss, reckon
from pipelines.report.shadow.input import ShadowInput, Tables
from pipelines.report.shadow.page import render_shadow_report, write_shadow_report
from pipelines.report.shadow.words import (
    STAY,
    advice,
    did_sentence,
    missed_sentence,
    right_sentence,
)
from pipelines.settings import Settings, load_settings
from pipelines.storage.store import Span, TableStore
from remediation.decision import Decision
from remediation.ledger.entries import LedgerError, MemoryLedger, NewEntry
from remediation.ledger.sqlite import SqliteLedger
from remediation.shadow import WouldBe
from remediation.shadow_outcomes import Outcome
from remediation.site import Caps, Costs, Site

T = datetime(2026, 1, 5, tzinfo=UTC)
H = timedelta(hours=1)
HOSTILE = "a<script>alert(1)</script>\x1b[31m"
COSTS = Costs(
    restart_minutes=12, wait_minutes=48, detection_minutes=30, lost_work_minutes=60,
    notice_minutes=30, drain_hours=0.5, repair_hours=8, planned_repair_hours=8,
)  # fmt: skip


def table(contract: TableContract, rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=contract.schema)


def job(name: str, start: float, end: float | None, cause: str | None, **changes: Any) -> dict:
    return {
        "job_id": name, "attempt": 0, "nodes": ["a"], "n_gpus": 4, "start": T + start * H,
        "end": None if end is None else T + end * H, "cause": cause,
    } | changes  # fmt: skip


def incident(at: float, *, end: float | None = None, node: str = "a", **changes: Any) -> dict:
    return {
        "incident_id": f"i-{node}-{at}", "entity_kind": "node", "entity_id": node, "node": node,
        "start": T + at * H, "end": T + (at + 2 if end is None else end) * H,
        "fault_type": "nvlink", "evidence": "Xid 74", "detected_by": "xid",
        "catalogue_version": "1",
    } | changes  # fmt: skip


def stays(*nodes: str) -> pl.DataFrame:
    rows = [{"gpu_uuid": f"{node}-{i}", "node": node, "slot": str(i)} for node in nodes
            for i in range(8)]  # fmt: skip
    return table(CORE_INVENTORY, rows)


def fleet(*jobs: dict) -> Any:
    return fleet_of(table(CORE_JOBS, list(jobs)), stays("a"), at=T)


def would_be(action: str = "drain_after_jobs", at: float = 0.0, node: str = "a") -> WouldBe:
    decided = T + at * H
    made = Decision(
        decision_id="d", node=node, boot_id=None, as_of=decided, decided_at=decided,
        wanted=action, score=0.9, status="ok", horizon_h=24, fault_type="nvlink",
        model_version="17", trained_on="real", sentence="because",
    )  # fmt: skip
    return WouldBe(decision=made, action=action, until=decided + 24 * H)


RIGHT = Outcome(kind="right", incident=incident(10))
WRONG = Outcome(kind="wrong")
# By hand, at 10:00: 4 GPUs lose 1 h of work, 0.5 h of hanging and 1 h until they compute again.
LOST = 4 * (1 + 0.5 + 1)
CHECK = 8 * 0.5
LATER = job("later", 5, 10.5, "hardware")
EARLIER = job("earlier", -5, 10.5, "hardware")


@pytest.mark.parametrize(
    ("jobs", "is_hurt"),
    [
        ([LATER], True),
        ([job("j", 5, 10, "hang")], True),
        ([job("j", 5, 12, "unknown")], True),
        ([job("j", 5, 12.1, "unknown")], False),
        ([job("j", 5, 9.9, "hardware")], False),
        ([job("j", 10, 11, "hardware")], False),
        ([job("j", 5, 10.5, None)], False),
        ([job("j", 5, 10.5, "user_code")], False),
        ([job("j", 5, None, None)], False),
        ([job("j", 5, 10.5, "hardware", nodes=["b"])], False),
    ],
    ids=["in it", "at the onset", "at repair", "after repair", "before", "began with it",
         "ended well", "own fault", "runs on", "elsewhere"],
)  # fmt: skip
def test_a_failure_costs_only_jobs_that_it_ended(jobs: list[dict], is_hurt: bool) -> None:
    assert bool(hurt_by(incident(10), fleet(*jobs))) == is_hurt


@pytest.mark.parametrize(
    ("one", "hours"),
    [
        (LATER, LOST),
        (job("young", 9.75, 10.5, "hardware"), 4 * (0.25 + 0.5 + 1)),
        (job("noticed", 5, 10.1, "hardware"), 4 * (1 + 0.1 + 1)),
        (job("long hang", 5, 12, "hardware"), LOST),
        (job("unknown size", 5, 10.5, "hardware", n_gpus=None, nodes=["a", "b"]), 16 * 2.5),
    ],
)
def test_a_loss_is_work_hang_and_restart_and_never_more_than_was_there(
    one: dict, hours: float
) -> None:
    (run,) = fleet(one).runs["a"]
    assert loss(run, T + 10 * H, node_gpus=8, costs=COSTS) == pytest.approx(hours)


@pytest.mark.parametrize(
    ("action", "outcome", "jobs", "saved", "spent"),
    [
        ("drain_after_jobs", RIGHT, [], 0, CHECK),
        ("drain_after_jobs", RIGHT, [LATER], LOST, CHECK),
        ("drain_after_jobs", RIGHT, [EARLIER], 0, CHECK + 4 * 10),
        ("checkpoint_then_drain", RIGHT, [EARLIER], LOST, CHECK + 4 * 0.5 + 4 * 1),
        ("checkpoint_then_drain", RIGHT, [LATER], LOST, CHECK + 8 * 0.5),
        ("cordon", RIGHT, [LATER], LOST, 8 * 10),
        ("drain_after_jobs", WRONG, [], 0, CHECK),
        ("drain_after_jobs", WRONG, [job("j", -1, 3, None)], 0, CHECK + 4 * 3),
        ("drain_after_jobs", WRONG, [job("j", -1, None, None)], 0, CHECK + 4 * 24),
        ("checkpoint_then_drain", WRONG, [job("j", -1, 3, None)], 0, CHECK + 4 * 0.5 + 4),
        ("checkpoint_then_drain", WRONG, [job("j", -1, 0.4, None)], 0, CHECK + 8 * 0.5 - 1.6),
        ("cordon", WRONG, [job("j", -1, 3, None)], 0, 8 * 24 - 4 * 3),
        ("drain_after_jobs", Outcome(kind="late", incident=incident(30)), [LATER], 0, CHECK),
        ("drain_after_jobs", Outcome(kind="early", incident=incident(0.2)), [LATER], 0, CHECK),
        ("drain_after_jobs", Outcome(kind="unjudged", why="data_end"), [LATER], 0, CHECK),
    ],
)
def test_gpu_hours_by_hand(
    action: str, outcome: Outcome, jobs: list[dict], saved: float, spent: float
) -> None:
    (found,) = reckon([would_be(action)], [outcome], fleet(*jobs), costs=COSTS)
    assert found is not None
    assert (found.saved, found.spent) == (pytest.approx(saved), pytest.approx(spent))


@pytest.mark.parametrize(
    ("action", "outcome", "jobs", "kept"),
    [
        ("drain_after_jobs", WRONG, [], CHECK + 8 * 24),
        ("drain_after_jobs", RIGHT, [], CHECK + 8 * 10),
        ("drain_after_jobs", WRONG, [job("j", -1, 3, None)], CHECK + 8 * 24 - 4 * 3),
        ("checkpoint_then_drain", WRONG, [job("j", -1, 3, None)], CHECK + 8 * 24 - 4 * 0.5 + 4),
        ("cordon", WRONG, [], 8 * 24),
    ],
)
def test_a_node_kept_for_its_hold_costs_all_of_it(
    action: str, outcome: Outcome, jobs: list[dict], kept: float
) -> None:
    (found,) = reckon([would_be(action)], [outcome], fleet(*jobs), costs=COSTS)
    assert found is not None
    assert found.spent_if_kept == pytest.approx(kept)


def test_a_notice_that_ends_after_the_failure_moves_nobody() -> None:
    soon = Outcome(kind="right", incident=incident(0.4))
    jobs = fleet(job("j", -5, 0.4, "hardware"))
    (found,) = reckon([would_be("checkpoint_then_drain")], [soon], jobs, costs=COSTS)
    assert found is not None
    assert found.saved == 0


def test_a_job_is_saved_once() -> None:
    both = [would_be(), would_be(at=1)]
    first, second = reckon(both, [RIGHT, RIGHT], fleet(LATER), costs=COSTS)
    assert first is not None
    assert second is not None
    assert (first.saved, second.saved) == (pytest.approx(LOST), 0)


def test_a_job_that_began_after_the_hold_is_not_saved() -> None:
    short = replace(would_be(), until=T + 4 * H)
    (found,) = reckon([short], [RIGHT], fleet(LATER), costs=COSTS)
    assert found is not None
    assert found.saved == 0


def test_an_alarm_held_back_is_worth_nothing() -> None:
    assert reckon([would_be("watch")], [RIGHT], fleet(LATER), costs=COSTS) == (None,)


def test_a_failure_within_the_lead_saves_nothing() -> None:
    early = Outcome(kind="early", incident=incident(0.2))
    (found,) = reckon([would_be()], [early], fleet(job("j", 0.1, 0.3, "hardware")), costs=COSTS)
    assert found is not None
    assert found.saved == 0


def test_a_planned_repair_saves_what_the_site_says() -> None:
    costs = COSTS.model_copy(update={"planned_repair_hours": 5.0})
    (found,) = reckon([would_be()], [RIGHT], fleet(), costs=costs)
    assert found == Balance(saved=8 * 3, spent=CHECK, spent_if_kept=CHECK + 8 * 10)


def entry(node: str, at: float, *, no: str | None = None, **changes: Any) -> NewEntry:
    verdicts = [["policy_level", False, "level observe", "watch"]]
    body = {
        "wanted": "drain_after_jobs", "action": "watch", "boot_id": None, "score": 0.9,
        "status": "ok", "horizon_h": 24, "fault_type": "nvlink", "model_version": "17",
        "trained_on": "real", "as_of": (T + at * H).isoformat(), "sentence": f"Drain {node}.",
        "jobs": [], "verdicts": [*verdicts, *([[no, False, "because", "watch"]] if no else [])],
    } | changes  # fmt: skip
    return NewEntry(
        key=f"d-{node}-{at}", kind="decision", recorded_at=T + at * H, actuator="dry_run",
        node=node, decision_id=f"{node}-{at}", body=body,
    )  # fmt: skip


def tick(day: int) -> NewEntry:
    at = T + timedelta(days=day)
    body = {"as_of": at.isoformat(), "nodes": [], "boot_ids": [], "scores": []}
    return NewEntry(key=f"o{day}", kind="observed", recorded_at=at, actuator="dry_run", body=body)


def settings_of(**changes: Any) -> Settings:
    return Settings(
        site="alpha", inputs=Path("in.yaml"), data_root=Path("data"), start=T,
        node_states_hold_only_trouble=True, **changes,
    )  # fmt: skip


def given_of(new: list[NewEntry], *, days: int = 10, **tables: pl.DataFrame) -> ShadowInput:
    ledger = MemoryLedger()
    ledger.append_all(new)
    frames = {"incidents": CORE_INCIDENTS.empty(), "inventory": stays("a", "b", "c", "d")} | tables
    return ShadowInput(
        name="alpha", note="", entries=ledger.entries(), since=T, until=T + 24 * days * H,
        data_end=T + 24 * days * H, level="drain_after_jobs", is_synthetic=False,
        site=Site(costs=COSTS, caps=Caps(held_percent=100, actions_per_hour=9, per_rack=None)),
        settings=settings_of(), tables=Tables(**frames),
    )  # fmt: skip


def test_every_incident_has_the_best_fate_that_fits() -> None:
    given = given_of(
        [entry("a", 1), entry("b", 1, no="listed"), entry("d", 1)],
        incidents=table(
            CORE_INCIDENTS,
            [
                incident(5),
                incident(7.5),
                incident(5, node="b"),
                incident(5, node="c"),
                incident(1.2, node="d"),
                incident(0.2, node="c"),
            ],
        ),
    )
    found = figures_of(given)
    assert [(o.incident["incident_id"], o.fate) for o in found.fates] == [
        ("i-d-1.2", "too_late"),
        ("i-a-5", "caught"),
        ("i-b-5", "held_back"),
        ("i-c-5", "missed"),
        ("i-a-7.5", "caught"),
    ]
    assert found.recall.value == pytest.approx(2 / 5)
    assert "3 would have struck all the same" in missed_sentence(found)
    assert "2 of 5 known failures" in missed_sentence(found)


def test_a_failure_behind_a_persons_drain_was_announced_and_not_caught() -> None:
    work = [{"node": "a", "start": T + 3 * H, "end": T + 4 * H, "kind": "maintenance"}]
    given = given_of(
        [entry("a", 1)],
        incidents=table(CORE_INCIDENTS, [incident(5)]),
        maintenance=table(CORE_MAINTENANCE, work),
    )
    assert [one.fate for one in figures_of(given).fates] == ["hidden"]


def test_unjudged_actions_count_neither_as_right_nor_as_wrong() -> None:
    given = given_of(
        [entry("a", 1), entry("b", 1), entry("c", 239)],
        incidents=table(CORE_INCIDENTS, [incident(5)]),
    )
    found = figures_of(given)
    assert found.worth.counts == {"right": 1, "early": 0, "late": 0, "wrong": 1}
    assert found.precision.value == 0.5
    assert found.worth.unjudged == CHECK
    assert found.worth.net.value == pytest.approx(-2 * CHECK)
    assert "1 cannot be judged" in right_sentence(found)


def test_the_interval_draws_nodes() -> None:
    found = figures_of(given_of([entry("a", 1), entry("a", 30), entry("b", 1)]))
    # By hand, four nodes with -8, -4, 0, 0: below -24 lie (1 + 4) of 4^4 draws, or 2.0 %.
    assert (found.worth.net.low, found.worth.net.high) == (-24.0, 0.0)


@pytest.mark.parametrize(("n", "is_few"), [(9, True), (10, False)])
def test_under_ten_judged_are_too_few_to_say_anything(n: int, is_few: bool) -> None:
    found = figures_of(given_of([entry("a", 24.0 * i) for i in range(n)], days=20))
    assert ("too few to say anything" in right_sentence(found)) == is_few
    assert ("could be judged" in advice(found, level="cordon").why) == is_few


def test_the_static_rule_is_judged_alike() -> None:
    down = {"node": "b", "state": "down", "valid_from": T, "valid_to": T + 9 * H}
    events = [
        {
            "event_id": f"e{i}",
            "ts": T + at * H,
            "node": node,
            "kind": kind,
            "code": code,
            "count": 1,
        }
        for i, (at, node, kind, code) in enumerate(
            [
                (1, "a", "xid", 63),
                (1, "b", "xid", 31),
                (1, "c", "sxid", 63),
                (5, "d", "xid", 79),
                (3, "b", "xid", 79),
            ]
        )
    ]
    given = given_of(
        [entry("c", 1)],
        incidents=table(CORE_INCIDENTS, [incident(6), incident(5, node="d")]),
        events=table(CORE_HEALTH_EVENTS, events),
        node_states=table(CORE_NODE_STATES, [down]),
    )
    found = figures_of(given)
    assert found.static is not None
    assert found.static.counts == {"right": 1, "early": 0, "late": 0, "wrong": 0}
    assert found.n_static_unjudged == 1
    assert figures_of(given_of([entry("c", 1)])).static is None


def test_drift_names_models_dark_days_and_unknown_nodes() -> None:
    scores = [
        {"entity_kind": "node", "entity_id": node, "as_of": T + H, "horizon_h": horizon_h,
         "status": status, "reasons": [], "missing_share": 0.0, "model_version": "18",
         "trained_on": "real"}
        for node, horizon_h, status in
        [("a", 24, "ok"), ("b", 24, "unknown"), ("c", 24, "prior"), ("d", 24, "ok"),
         ("a", 1, "unknown")]
    ]  # fmt: skip
    given = given_of(
        [tick(0), tick(2), entry("a", 50)], days=4, node_scores=table(NODE_SCORES, scores)
    )
    drift = figures_of(given).drift
    assert [name for name, _, _ in drift.versions] == ["17", "18"]
    assert [f"{day:%d}" for day in drift.dark_days] == ["06", "08"]
    assert (drift.n_days, drift.unknown_share, drift.prior_share) == (4, 0.25, 0.25)


def test_decisions_that_a_hook_could_act_on_are_left_out_and_counted() -> None:
    acted = replace(entry("a", 1), actuator="slurm")
    passed = [["policy_level", True, "level drain_after_jobs", "drain_now"]]
    acted = replace(acted, body={**acted.body, "verdicts": passed})
    found = figures_of(given_of([acted]))
    assert (found.actions, found.drift.n_acted_on) == ((), 1)


GOOD = Figures(
    actions=(), held_back=(), precision=wilson(28, 30), recall=wilson(5, 9), fates=(),
    worth=Worth(saved=90, spent_right=5, wasted=5, unjudged=0, net_if_kept=30.0,
                net=Estimate(80.0, 20.0, 140.0),
                counts={"right": 28, "wrong": 2}),
    lost=100, static=None, n_static_unjudged=0, is_synthetic=False, n_assumed=0,
    drift=Drift(versions=(("17", T, T),), dark_days=(), n_days=30, unknown_share=0.01,
                prior_share=0.0, n_acted_on=0),
)  # fmt: skip


def with_worth(**changes: Any) -> Figures:
    return replace(GOOD, worth=replace(GOOD.worth, **changes))


def with_drift(**changes: Any) -> Figures:
    return replace(GOOD, drift=replace(GOOD.drift, **changes))


@pytest.mark.parametrize(
    ("found", "do", "why"),
    [
        (GOOD, "Allow cordon", "lower ends"),
        (replace(GOOD, is_synthetic=True), STAY, "synthetic"),
        (with_worth(counts={"right": 9}), STAY, "Only 9 actions"),
        (with_drift(dark_days=(T.date(),) * 4), STAY, "4 of 30 days"),
        (with_drift(unknown_share=0.21), STAY, "telemetry"),
        (with_drift(unknown_share=None), STAY, "unknown"),
        (with_worth(net=Estimate(0.0, -1.0, 1.0)), STAY, "cost more"),
        (with_worth(net=Estimate(5.0, -1.0, 9.0)), "Go to recommend", "down to nothing"),
        (with_worth(net_if_kept=0.0), "Go to recommend", "kept for its hold"),
        (replace(GOOD, precision=wilson(18, 30)), "Go to recommend", "less than"),
        (with_drift(versions=(("17", T, T), ("18", T, T))), "Go to recommend", "mix"),
    ],
)
def test_the_advice_follows_from_the_figures(found: Figures, do: str, why: str) -> None:
    said = advice(found, level="cordon")
    assert said.do.startswith(do)
    assert why in said.why


def test_cordon_is_advised_on_its_own_hours() -> None:
    assert "--level cordon first" in advice(GOOD, level="drain_after_jobs").why
    assert "--level" not in advice(GOOD, level="cordon").why


def page_of(given: ShadowInput) -> str:
    return render_shadow_report(given, figures_of(given))


def test_a_page_needs_nothing_else_and_can_be_signed() -> None:
    page = page_of(given_of([entry("a", 1)], incidents=table(CORE_INCIDENTS, [incident(5)])))
    assert not re.search(r"<script|https?://|<link|<img|@import|url\(", page)
    assert "@page { size: A4" in page
    assert "prefers-color-scheme: dark" in page
    for word in ("Name", "Date", "Signature", "Stay in observe", "Go to recommend"):
        assert f">{word}<" in page
    assert "SYNTHETIC" not in page
    assert page == page_of(
        given_of([entry("a", 1)], incidents=table(CORE_INCIDENTS, [incident(5)]))
    )


def test_a_synthetic_page_says_so_first_and_recommends_nothing() -> None:
    model = given_of([entry("a", 24.0 * i, trained_on="synthetic") for i in range(12)], days=20)
    record = replace(given_of([entry("a", 1)]), is_synthetic=True)
    for given in (model, record):
        page = page_of(given)
        assert page.index("SYNTHETIC DATA") < page.index("<h1>")
        assert "Stay in observe.</strong><p>Record or model is synthetic" in page


def test_hostile_names_are_escaped() -> None:
    given = given_of(
        [
            entry(HOSTILE, 1, sentence=HOSTILE, model_version=HOSTILE),
            entry("b", 1, no=HOSTILE),
        ],
        incidents=table(
            CORE_INCIDENTS,
            [incident(5, node=HOSTILE), incident(5, node="c", evidence=HOSTILE)],
        ),
        inventory=stays(HOSTILE, "b", "c"),
    )
    page = page_of(replace(given, name=HOSTILE, note=HOSTILE))
    assert "<script" not in page
    assert "\x1b" not in page
    assert page.count("a&lt;script&gt;alert(1)&lt;/script&gt;") >= 6


def test_an_empty_ledger_is_one_clear_sentence() -> None:
    given = given_of([])
    found = figures_of(given)
    said = did_sentence(given, found)
    assert said.startswith("The ledger holds no decision")
    assert said.count(". ") == 0
    page = page_of(given)
    assert said in page
    assert "All would-be actions" not in page
    assert advice(found, level="cordon").do == STAY


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    file = tmp_path / "forewarn.yaml"
    values = {
        "site": "alpha", "inputs": "in.yaml", "data_root": "data", "start": T.isoformat(),
        "end": (T + 240 * H).isoformat(), "trained_on": "real",
        "node_states_hold_only_trouble": True,
    }  # fmt: skip
    file.write_text(yaml.safe_dump(values))
    store = TableStore(tmp_path / "data" / "tables")
    store.write(CORE_INCIDENTS, table(CORE_INCIDENTS, [incident(5), incident(50, node="b")]))
    store.write(CORE_INVENTORY, stays("a", "b"))
    hours = Span(T, T + 6 * H)
    store.write(CORE_HEALTH_EVENTS, CORE_HEALTH_EVENTS.empty(), span=hours)
    return file


def run(*words: str | Path) -> tuple[int, str]:
    found = CliRunner().invoke(cli_remediate.app, ["shadow", *map(str, words)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.output


def test_the_command_writes_a_page_and_says_what_it_says(installation: Path) -> None:
    with SqliteLedger(installation.parent / "data" / "ledger.sqlite") as ledger:
        ledger.append_all([entry("a", 1), entry("b", 60)])
    out = installation.parent / "page.html"
    code, said = run("--out", out, "--settings", installation)
    assert code == 0
    assert "acted 2 times on 2 nodes" in said
    assert "\\xa0" not in said
    assert "1 of 1 judged action " in said  # the events end after six hours, and so the record
    assert "<h1>What the hook would have done: alpha</h1>" in out.read_text()


@pytest.mark.parametrize(
    ("since", "until", "times"),
    [("2026-01-05", "2026-01-06", 1), ("2026-01-06", "2026-01-12", 1), (None, None, 2)],
)
def test_the_time_can_be_bounded(
    installation: Path, since: str | None, until: str | None, times: int
) -> None:
    with SqliteLedger(installation.parent / "data" / "ledger.sqlite") as ledger:
        ledger.append_all([entry("a", 1), entry("b", 60)])
    words = [*(["--since", since] if since else []), *(["--until", until] if until else [])]
    _, said = run("--out", installation.parent / "p", "--settings", installation, *words)
    assert f"acted {times} time" in said


def test_no_ledger_no_report(installation: Path) -> None:
    code, said = run("--out", installation.parent / "p", "--settings", installation)
    assert code == 2
    assert "the hook has not run yet" in said
    assert not (installation.parent / "data" / "ledger.sqlite").exists()


def test_an_altered_ledger_is_not_reported_on(installation: Path) -> None:
    path = installation.parent / "data" / "ledger.sqlite"
    with SqliteLedger(path) as ledger:
        ledger.append_all([entry("a", 1), entry("b", 60)])
        ledger._connection.execute("DROP TRIGGER no_update")
        ledger._connection.execute("UPDATE entries SET node = 'x' WHERE seq = 1")
    with pytest.raises(LedgerError, match="altered"):
        write_shadow_report(
            installation.parent / "p", load_settings(installation), hook=None, since=None,
            until=None, level="cordon", now=T + 300 * H,
        )  # fmt: skip


def test_an_empty_time_is_refused(installation: Path) -> None:
    SqliteLedger(installation.parent / "data" / "ledger.sqlite").__exit__(None, None, None)
    with pytest.raises(SettingsError, match="is not before"):
        write_shadow_report(
            installation.parent / "p", load_settings(installation), hook=None, since=T, until=T,
            level="cordon", now=T + 300 * H,
        )  # fmt: skip


def test_the_hooks_own_settings_name_ledger_and_costs(installation: Path) -> None:
    folder = installation.parent
    hook = {
        "state": "state", "scores": {"folder": "scores"},
        "cluster": {"kind": "core_tables", "installation": "forewarn.yaml"},
        "site": {"costs": {"drain_hours": 3.0}},
    }  # fmt: skip
    (folder / "hook.yaml").write_text(yaml.safe_dump(hook))
    with SqliteLedger(folder / "state" / "ledger.sqlite") as ledger:
        ledger.append(entry("a", 1))
    out = folder / "page.html"
    code, _ = run("--out", out, "--settings", installation, "--hook", folder / "hook.yaml")
    assert code == 0
    assert "out for 3 h of check" in out.read_text()
