"""`forewarn ettr`, `checkpoint-advice` and `simulate recovery`, as a user calls them."""

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from typer.testing import CliRunner

from features.errors import DataError, SettingsError, SourceError, StructureError
from features.tables import CORE_JOBS, NODE_SCORES
from pipelines.cli import app
from pipelines.storage.store import Span, TableStore

T = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


def job(job_id, start_h, end_h, state, **more):
    end = None if end_h is None else T + end_h * HOUR
    row = {"job_id": job_id, "attempt": 0, "partition": "p\x1b", "n_gpus": 8, "nodes": ["n1"]}
    return row | {"start": T + start_h * HOUR, "end": end, "end_state": state} | more


def jobs():
    rows = [
        job("a", 0, 1.5, "NODE_FAIL", cause="hardware"),
        job("a", 2, 4, "COMPLETED", attempt=1),
        job("b", 0, 1, "CANCELLED"),
        job("c", 0, 1, "COMPLETED", n_gpus=None),
        job("d", 5, None, "RUNNING"),
    ]
    return pl.DataFrame(rows, schema=CORE_JOBS.schema)


@pytest.fixture
def file(tmp_path):
    jobs().write_parquet(tmp_path / "jobs.parquet")
    return tmp_path / "jobs.parquet"


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "forewarn.yaml").write_text(
        f"site: s\ninputs: inputs.yaml\ndata_root: data\nstart: {T.isoformat()}\n"
        f"end: {(T + 24 * HOUR).isoformat()}\n"
    )
    store = TableStore(tmp_path / "data" / "tables")
    store.write(CORE_JOBS, jobs())
    return tmp_path / "forewarn.yaml"


def run(*arguments):
    answer = CliRunner().invoke(app, [*map(str, arguments)])
    if answer.exception and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer.output


def test_ettr_of_a_file_says_the_ratio_its_bounds_and_what_is_assumed(file):
    text = run("ettr", "--jobs", file, "--as-of", "2026-01-05T05:00")
    # Kept 1 h + 1 h 55 of 3.5 h and a wait of half an hour; 1 h of b is unknown.
    assert text.startswith("ETTR of all jobs up to 2026-01-05 05:00 UTC: 72.9%; between 58.3%")
    assert "a checkpoint every 60 min" in text
    assert "1 of 4 attempts do not say how many GPUs they had" in text
    assert "\x1b" not in text


def test_ettr_of_an_installation_is_that_of_its_store(settings, file):
    by_store = run("ettr", "--settings", settings, "--as-of", "2026-01-05T05:00", "--json")
    by_file = run("ettr", "--jobs", file, "--as-of", "2026-01-05T05:00", "--json")
    assert json.loads(by_store) == json.loads(by_file)
    assert json.loads(by_store)["families"][-1]["ettr"] == pytest.approx(8.75 / 12, abs=0.001)


def test_ettr_of_one_job_and_of_a_job_to_come(file):
    text = run(
        "ettr", "--jobs", file, "--as-of", "2026-01-05T05:00", "--job", "a", "--job", "b",
        "--nodes", 2000,
    )  # fmt: skip
    assert "Job a: ETTR 72.9%, 0.0% in its worst hour" in text
    assert "Job b: unknown" in text
    assert text.endswith("wait 0 min: 0.684\n")


def test_jobs_that_cannot_be_read_are_one_clear_error(tmp_path, file):
    (tmp_path / "bad").write_text("x")
    with pytest.raises(SourceError, match="bad cannot be read as Parquet"):
        run("ettr", "--jobs", tmp_path / "bad")
    with pytest.raises(SourceError, match="absent cannot be read: No such file"):
        run("ettr", "--jobs", tmp_path / "absent")
    jobs().drop("start").write_parquet(tmp_path / "less")
    with pytest.raises(StructureError, match="less: .*start"):
        run("ettr", "--jobs", tmp_path / "less")
    pl.concat([jobs(), jobs()]).write_parquet(tmp_path / "twice")
    with pytest.raises(SourceError, match="rows break the contract of core/jobs"):
        run("ettr", "--jobs", tmp_path / "twice")
    with pytest.raises(DataError, match="none of 5 attempts in core/jobs began before"):
        run("ettr", "--jobs", file, "--as-of", "2020-01-01")


def test_a_file_ends_with_its_last_event_and_no_job_is_taken_to_run_on_after_it(file, settings):
    last = "2026-01-05 05:00 UTC"  # the start of d, which has no end
    assert f"up to {last}" in run("ettr", "--jobs", file)
    with pytest.raises(SettingsError, match=f"2026-01-05 05:01 UTC is after .* ends {last}"):
        run("ettr", "--jobs", file, "--as-of", "2026-01-05T05:01")
    for command in ("ettr", "checkpoint-advice"):
        with pytest.raises(SettingsError, match="is after the record"):
            run(command, "--settings", settings, "--as-of", "2026-01-06T00:01")


@pytest.mark.parametrize(
    "options",
    [
        ("ettr", "--checkpoint-min", "inf"),
        ("ettr", "--restart-min", "inf"),
        ("checkpoint-advice", "--save-min", "inf"),
        ("checkpoint-advice", "--failures-per-node-day", "inf"),
        ("simulate", "recovery", "--days", "inf"),
    ],
)
def test_what_is_no_number_of_minutes_or_days_is_refused(options):
    answer = CliRunner().invoke(app, [*options])
    assert answer.exit_code == 2
    assert "Invalid value" in answer.output


def test_no_jobs_named_is_an_error_that_says_what_to_name(monkeypatch):
    monkeypatch.delenv("FOREWARN_SETTINGS", raising=False)
    with pytest.raises(SettingsError, match="pass --settings FILE"):
        run("ettr")


def test_advice_uses_the_scores_and_says_where_there_are_none(settings):
    text = run("checkpoint-advice", "--settings", settings)
    assert "Many nodes have no score" in text
    assert " 11h 06   11h 06        0.0065       1         1  d" in text
    score = {
        "entity_kind": "node", "entity_id": "n1", "as_of": T + 24 * HOUR, "horizon_h": 24,
        "score": 0.5, "status": "ok", "reasons": [], "missing_share": 0.0, "model_version": "1",
        "trained_on": "real",
    }  # fmt: skip
    store = TableStore(settings.parent / "data" / "tables")
    frame = pl.DataFrame([score], schema=NODE_SCORES.schema)
    store.write(NODE_SCORES, frame, span=Span(T + 23 * HOUR, T + 24 * HOUR))
    text = run("checkpoint-advice", "--settings", settings)
    assert "  1h 04   11h 06        0.6931       1         0  d" in text
    [row] = json.loads(run("checkpoint-advice", "--settings", settings, "--json"))
    assert row["job_id"] == "d"


def test_advice_where_no_job_runs_says_so(settings):
    text = run("checkpoint-advice", "--settings", settings, "--as-of", "2026-01-05T04:30")
    assert text.endswith("No job runs on known nodes at that moment.\n")


def test_the_recovery_study_prints_its_tables_and_the_same_again():
    command = ["simulate", "recovery", "--days", 10, "--seeds", 2]
    text = run(*command)
    assert text == run(*command)
    assert "A job of 1,200 machines x 8 GPUs for 10 days" in text
    for section in ("ETTR  ", "How incidents end", "What foresight adds", "with one parameter"):
        assert section in text
    assert "with one parameter" not in run(*command, "--no-sensitivity")


def test_the_recovery_study_of_one_seed_is_whole_json():
    text = run("simulate", "recovery", "--days", 5, "--seeds", 1, "--no-sensitivity", "--json")
    document = json.loads(text)
    assert document["regimes"][0]["ettr"]["half"] is None
    assert [one["name"] for one in document["regimes"]] == [
        "byterobust", "reschedule", "requeue", "plain",
    ]  # fmt: skip
