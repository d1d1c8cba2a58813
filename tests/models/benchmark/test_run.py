"""Rules of the rolling-origin benchmark: what is trained on, what is tested, who is counted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from features.core_tables import CoreTables
from features.errors import DataError
from features.history_features import HistorySpec
from features.matrix import MatrixSpec
from features.tables import CORE_INCIDENTS, CORE_INVENTORY, CORE_TOPOLOGY
from models.benchmark import scorers as benchmark_scorers
from models.benchmark.protocol import BenchmarkProtocol, Ranking, Rival
from models.benchmark.result import MODEL, BenchmarkResult
from models.benchmark.rows import benchmark_rows, ranks_within_moments, shuffled_labels
from models.benchmark.run import run_protocol
from models.benchmark.scorers import fit
from models.evaluation.row_metrics import Bootstrap
from models.specs import TrainSpec
from models.training.boosters import TooFewIncidentsError, train

T0 = datetime(2024, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
N_NODES = 40
MONTH = 30
LATE, LEAVER, REPEATER = "gpu-1", "gpu-3", "gpu-5"


def at(days: float) -> datetime:
    return T0 + timedelta(days=days)


SPEC = TrainSpec(rounds=20, min_data_in_leaf=5, lambda_l2=1.0, min_incidents=5)
PROTOCOL = BenchmarkProtocol(
    name="small",
    first_as_of=at(30),
    every=MONTH * DAY,
    data_end=at(700),
    lead=timedelta(0),
    horizon_h=MONTH * 24,
    origins=(at(360), at(450)),
    test=90 * DAY,
    old_before=at(100),
    place_level="cage",
    features=MatrixSpec(
        parts=("history",),
        history=HistorySpec(
            windows=(30 * DAY, 365 * DAY), scopes=("own",), ordinal_levels=("cage",)
        ),
    ),
    train=(SPEC,),
    rankings=(
        Ranking(name="upper cage", features=("cage_number",), above=0.0),
        Ranking(name="own events", features=("own_incident_count",)),
    ),
    rivals=(
        Rival(
            name="age alone",
            features=("age_days", "stay_.*"),
            train=TrainSpec(rounds=5, min_data_in_leaf=5, min_incidents=5),
        ),
    ),
    bootstrap=Bootstrap(resamples=20),
)


def incident(gpu: int, day: float, fault_type: str = "off_bus") -> dict[str, object]:
    return {
        "incident_id": f"{gpu}@{day}",
        "entity_kind": "gpu",
        "entity_id": f"gpu-{gpu}",
        "node": f"n{gpu:02d}",
        "start": at(day),
        "end": at(day),
        "fault_type": fault_type,
        "evidence": "made up",
        "detected_by": "test",
        "catalogue_version": "t1",
    }


@pytest.fixture(scope="module")
def tables() -> CoreTables:
    """Forty nodes of one GPU in two cages; those of the odd, upper cage fail, each in turn."""
    stays = [
        {
            "gpu_uuid": f"gpu-{i}",
            "node": f"n{i:02d}",
            "slot": "0",
            "batch": None,
            "valid_from": at(200 if f"gpu-{i}" == LATE else 0),
            "valid_to": at(395) if f"gpu-{i}" == LEAVER else None,
        }
        for i in range(N_NODES)
    ]
    upper = list(range(1, N_NODES, 2))
    incidents = [
        incident(upper[(3 * month + k) % len(upper)], 30 + MONTH * month + 10 + k, fault)
        for month in range(22)
        for k, fault in enumerate(("off_bus", "hbm_uncorrectable", "off_bus"))
    ]
    incidents += [incident(5, day) for day in (365, 400, 425)]
    names = CORE_INVENTORY.schema.names()
    return CoreTables(
        inventory=pl.DataFrame(
            [{**dict.fromkeys(names), **stay} for stay in stays], schema=CORE_INVENTORY.schema
        ),
        topology=pl.DataFrame(
            [
                {
                    "node": f"n{i:02d}",
                    "level": "cage",
                    "place": str(i % 2),
                    "valid_from": None,
                    "valid_to": None,
                }
                for i in range(N_NODES)
            ],
            schema=CORE_TOPOLOGY.schema,
        ),
        incidents=pl.DataFrame(incidents, schema=CORE_INCIDENTS.schema),
    )


@pytest.fixture(scope="module")
def result(tables) -> BenchmarkResult:
    rows, features = benchmark_rows(tables, PROTOCOL)
    return run_protocol(rows, features, protocol=PROTOCOL)


@pytest.mark.parametrize(("end", "taken"), [(119, (30, 60)), (120, (30, 60, 90))])
def test_no_snapshot_is_taken_whose_horizon_passes_the_end_of_the_record(tables, end, taken):
    rows, _ = benchmark_rows(tables, replace(PROTOCOL, data_end=at(end)))
    assert rows["as_of"].unique().sort().to_list() == [at(day) for day in taken]
    assert "data_end" not in rows["censored_by"].to_list()


def test_a_model_is_trained_on_rows_whose_horizon_ends_by_its_origin(tables, result):
    rows, _ = benchmark_rows(tables, PROTOCOL)
    for window in result.windows:
        known = rows.filter(
            pl.col("as_of") + MONTH * DAY <= window.origin, pl.col("label").is_not_null()
        )
        assert window.n_train == known.height
        assert window.n_train_positive == known["label"].sum()


def test_what_happens_from_the_origin_on_changes_neither_training_rows_nor_their_labels(tables):
    origin = PROTOCOL.origins[0]
    later = replace(
        tables,
        incidents=tables.incidents.filter(pl.col("start") < origin),
        inventory=tables.inventory.with_columns(
            pl.when(pl.col("valid_to") < origin).then("valid_to").alias("valid_to")
        ),
    )
    is_train = pl.col("as_of") + MONTH * DAY <= origin
    # Incidents in the whole record only name the unit that is left out of a population.
    before, after = (
        benchmark_rows(t, PROTOCOL)[0].filter(is_train).drop("n_incidents") for t in (tables, later)
    )
    assert before.height > 0
    assert after.equals(before, null_equal=True)


def test_the_test_rows_begin_at_the_origin_and_end_before_its_test_time(tables, result):
    rows, _ = benchmark_rows(tables, PROTOCOL)
    for window in result.windows:
        inside = rows.filter(
            pl.col("as_of") >= window.origin, pl.col("as_of") < window.origin + PROTOCOL.test
        )
        metrics = window.metrics()
        assert metrics.n_rows + metrics.n_unlabelled == inside.height


def test_a_fleet_with_a_weak_cage_is_ranked_and_with_dealt_labels_it_is_not(tables, result):
    rows, features = benchmark_rows(tables, PROTOCOL)
    dealt = run_protocol(shuffled_labels(rows, seed=1), features, protocol=PROTOCOL)
    for window, chance in zip(result.windows, dealt.windows, strict=True):
        assert window.metrics().auc.value > 0.75
        assert chance.metrics().auc.value < 0.68  # 3 positives in 40 per moment: wide by nature


def test_dealing_labels_keeps_how_many_fail_at_each_moment(tables):
    rows, _ = benchmark_rows(tables, PROTOCOL)
    dealt = shuffled_labels(rows, seed=1)
    by_moment = [
        frame.group_by("as_of").agg(pl.col("label").sum()).sort("as_of") for frame in (rows, dealt)
    ]
    assert by_moment[0].equals(by_moment[1])
    assert not dealt["label"].equals(rows["label"])
    untouched = [name for name in rows.columns if name not in dealt_columns()]
    assert dealt.select(untouched).equals(rows.select(untouched))


def test_a_score_that_only_tells_moments_apart_ranks_nothing_within_them():
    rows = pl.DataFrame({"as_of": [at(0), at(0), at(30), at(30)]})
    of_moment, of_row = pl.Series([1.0, 1.0, 5.0, 5.0]), pl.Series([1.0, 2.0, 5.0, 9.0])
    assert ranks_within_moments(rows, of_moment).to_list() == [0.5] * 4
    assert ranks_within_moments(rows, of_row).to_list() == pytest.approx([1 / 3, 2 / 3] * 2)


def dealt_columns() -> set[str]:
    return {"label", "fault_type", "incident_id", "censored_by"}


def test_populations_leave_out_whom_they_say(result):
    window = result.windows[0]
    everyone = window.metrics("all")
    assert window.top_units == (REPEATER,)  # most positive rows, and most incidents of all
    assert window.metrics("without the top units").n_entities == everyone.n_entities - 1
    assert window.metrics("old batch").n_entities == everyone.n_entities - 1  # the late one
    untouched = window.metrics("old, no earlier incident")
    assert 0 < untouched.n_entities < window.metrics("old batch").n_entities


def test_the_unit_with_most_incidents_is_a_top_unit_though_few_rows_are_positive(tables):
    burst = [incident(7, 401 + hour / 24) for hour in range(20)]
    extra = pl.DataFrame(burst, schema=CORE_INCIDENTS.schema)
    rows, features = benchmark_rows(
        replace(tables, incidents=pl.concat([tables.incidents, extra])), PROTOCOL
    )
    window = run_protocol(rows, features, protocol=PROTOCOL).windows[0]
    assert window.top_units == (REPEATER, "gpu-7")


def test_who_left_is_unlabelled_and_in_the_other_reading_a_negative(result):
    everyone = result.windows[0].metrics("all")
    assert everyone.n_unlabelled == 1
    for scorer in (MODEL, "age alone"):
        with_leavers = result.windows[0].metrics("leavers count as negatives", scorer)
        assert with_leavers.n_rows == everyone.n_rows + 1
        assert with_leavers.n_positive == everyone.n_positive
    rows = result.windows[0].rows
    paired = [r for r in rows if r.population == "leavers negative, old batch" and r.gain]
    assert [row.scorer for row in paired] == ["age alone"]


def test_in_the_other_reading_those_who_left_are_learned_from_too(tables, monkeypatch):
    learned = []

    def spy(rows, **options):
        learned.append((rows.height, rows["label"].null_count()))
        return train(rows, **options)

    monkeypatch.setattr(benchmark_scorers, "train", spy)
    rows, features = benchmark_rows(tables, replace(PROTOCOL, rivals=()))
    run_protocol(rows, features, protocol=replace(PROTOCOL, origins=(at(450),), rivals=()))
    height = learned[0][0]
    assert learned[0] == (height, 1)
    assert (height, 0) in learned


def test_every_test_row_is_scored_by_a_model_that_never_saw_its_entity(result):
    for window in result.windows:
        assert window.metrics("unseen entities").n_rows == window.metrics("all").n_rows
        assert window.metrics("unseen entities").auc.value != window.metrics("all").auc.value


def test_where_half_of_the_entities_fail_too_rarely_the_unseen_are_not_judged(tables):
    rows, features = benchmark_rows(tables, PROTOCOL)
    known = run_protocol(rows, features, protocol=PROTOCOL).windows[0].n_train_positive
    strict = replace(PROTOCOL, train=(replace(SPEC, min_incidents=known - 5),))
    strict = replace(strict, origins=PROTOCOL.origins[:1])
    window = run_protocol(rows, features, protocol=strict).windows[0]
    assert "unseen entities" not in {row.population for row in window.rows}


@pytest.mark.parametrize("population", ["all", "old batch", "old, no earlier incident"])
def test_baselines_stand_beside_the_model(result, population):
    for window in result.windows:
        scorers = {row.scorer for row in window.rows if row.population == population}
        assert scorers >= {MODEL, "age", "place", "base rate", "history count"}
        assert any(reason.startswith("static rules: ") for reason in window.unavailable)


def test_the_gain_on_a_baseline_is_the_difference_of_both_auc(result):
    for window in result.windows:
        for row in window.rows:
            if row.population == "all" and row.scorer != MODEL:
                wanted = window.metrics().auc.value - row.metrics.auc.value
                assert row.gain.auc.value == pytest.approx(wanted)
                assert row.gain.auc.low <= row.gain.auc.value <= row.gain.auc.high


def test_the_baseline_of_places_is_learned_before_the_origin(tables):
    # From the first origin on the lower cage fails in place of the upper one.
    origin = PROTOCOL.origins[0]
    swapped = tables.incidents.with_columns(
        pl.when(pl.col("start") >= origin)
        .then(pl.col("entity_id").replace({f"gpu-{i}": f"gpu-{i ^ 1}" for i in range(N_NODES)}))
        .otherwise("entity_id")
        .alias("entity_id")
    )
    rows, features = benchmark_rows(replace(tables, incidents=swapped), PROTOCOL)
    protocol = replace(PROTOCOL, origins=(origin,))
    window = run_protocol(rows, features, protocol=protocol).windows[0]
    assert window.metrics(scorer="place").auc.value < 0.4


def test_an_origin_without_a_row_after_it_is_refused(tables):
    rows, features = benchmark_rows(tables, PROTOCOL)
    with pytest.raises(DataError, match="no labelled row in the 90 d after 2026-01-01"):
        run_protocol(
            rows, features, protocol=replace(PROTOCOL, origins=(datetime(2026, 1, 1, tzinfo=UTC),))
        )


def test_an_origin_with_too_few_incidents_before_it_is_refused(tables):
    rows, features = benchmark_rows(tables, PROTOCOL)
    with pytest.raises(TooFewIncidentsError):
        run_protocol(rows, features, protocol=replace(PROTOCOL, origins=(at(60),)))


def test_asking_for_a_scorer_that_is_not_there_says_so(result):
    with pytest.raises(DataError, match="no 'crystal ball' on 'all'"):
        result.windows[0].metrics(scorer="crystal ball")


def test_fault_types_of_one_kind_are_not_told_apart(tables):
    one_kind = tables.incidents.with_columns(pl.lit("off_bus").alias("fault_type"))
    rows, features = benchmark_rows(replace(tables, incidents=one_kind), PROTOCOL)
    window = run_protocol(rows, features, protocol=PROTOCOL).windows[0]
    assert window.fault_types.value is None


def test_a_rule_and_an_order_by_a_feature_are_baselines(result):
    for window in result.windows:
        # Only the upper cage fails: the rule finds every positive row.
        rule = window.metrics(scorer="upper cage")
        assert rule.auc.value == pytest.approx(window.metrics(scorer="place").auc.value)
        count = window.metrics(scorer="history count").auc.value
        assert window.metrics(scorer="own events").auc.value == count


def test_a_rival_stands_beside_the_model_in_both_readings_of_who_left(result):
    for window in result.windows:
        row = window.row(scorer="age alone")
        assert row.metrics.n_rows == window.metrics().n_rows
        gain = window.metrics().average_precision.value - row.metrics.average_precision.value
        assert row.gain.average_precision.value == pytest.approx(gain)
    left = result.windows[0].row("leavers count as negatives", "age alone")
    assert left.metrics.n_rows > result.windows[0].metrics().n_rows


def test_dealt_labels_are_ranked_by_chance_in_every_result(result):
    for window in result.windows:
        dealt = window.metrics("labels dealt anew")
        assert dealt.n_positive == window.metrics().n_positive
        assert dealt.auc.value == pytest.approx(0.5, abs=0.25)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rankings": (Ranking(name="odd", features=("no_such",)),)}, "no feature no_such"),
        (
            {"rivals": (Rival(name="odd", features=("no_such",), train=PROTOCOL.train),)},
            "no feature matches no_such",
        ),
    ],
)
def test_a_baseline_that_names_no_feature_is_refused(tables, wrong, said):
    rows, features = benchmark_rows(tables, PROTOCOL)
    with pytest.raises(DataError, match=said):
        run_protocol(rows, features, protocol=replace(PROTOCOL, **wrong))


def test_without_an_old_batch_and_a_level_there_is_no_such_population(tables):
    bare = replace(PROTOCOL, old_before=None, place_level=None, origins=PROTOCOL.origins[:1])
    rows, features = benchmark_rows(tables, bare)
    window = run_protocol(rows, features, protocol=bare).windows[0]
    assert "old batch" not in {row.population for row in window.rows}
    assert "place" not in {row.scorer for row in window.rows}


def test_features_that_do_not_vary_in_training_are_left_out(tables, result):
    _, features = benchmark_rows(tables, PROTOCOL)
    assert 0 < result.windows[0].n_features < len(features)


def test_scores_of_several_trainings_are_averaged(tables):
    rows, features = benchmark_rows(tables, PROTOCOL)
    specs = (SPEC, replace(SPEC, num_leaves=3))
    names = [feature.name for feature in features]
    one, other, both = (
        fit(rows, names, task=PROTOCOL.task, specs=chosen).raw_scores(rows)
        for chosen in (specs[:1], specs[1:], specs)
    )
    assert both == pytest.approx((one + other) / 2)
