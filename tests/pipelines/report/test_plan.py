import polars as pl

from features.tables import DECISIONS, NODE_SCORES
from pipelines.report.data import read_rows
from pipelines.report.plan import MAX_CARDS, headline, plan_cards, ranking
from tests.pipelines.report.report_fixture import (
    AS_OF,
    bare_input,
    decision,
    decisions,
    reads,
    report_input,
    score_rows,
    table,
)

NO_SCORES = NODE_SCORES.empty()


def nodes_of(rows: list[dict[str, object]]) -> list[str]:
    return [card["node"] for card in plan_cards(table(DECISIONS, rows), latest=NO_SCORES).rows]


def test_only_nodes_that_want_something_done_are_cards() -> None:
    assert [card["node"] for card in plan_cards(decisions(), latest=NO_SCORES).rows] == [
        "gpu-02",
        "gpu-08",
        "gpu-12",
    ]


def test_what_is_held_back_entirely_is_still_a_card() -> None:
    assert nodes_of([decision("a", "drain_now", "none", 0.9)]) == ["a"]


def test_the_gravest_action_comes_first_then_the_gravest_wish_then_the_score() -> None:
    rows = [
        decision("a", "watch", "watch", 0.9),
        decision("b", "cordon", "cordon", 0.2),
        decision("c", "drain_now", "watch", 0.5),
        decision("d", "drain_now", "drain_now", 0.4),
        decision("e", "watch", "watch", 0.95),
    ]
    assert nodes_of(rows) == ["d", "b", "c", "e", "a"]


def test_cards_beyond_the_limit_are_counted() -> None:
    rows = [decision(f"n{i:03d}", "watch", "watch", 0.5) for i in range(MAX_CARDS + 3)]
    found = plan_cards(table(DECISIONS, rows), latest=NO_SCORES)
    assert len(found.rows) == MAX_CARDS
    assert found.n_left_out == 3


def test_the_riskiest_node_ranks_first_and_the_unknown_last() -> None:
    scores = [
        score_rows("a", AS_OF, 0.1),
        score_rows("b", AS_OF, None),
        score_rows("c", AS_OF, 0.7),
        score_rows("c", AS_OF, 0.3, horizon_h=1),
    ]
    report = report_input(node_scores=table(NODE_SCORES, scores), node_threshold=0.7)
    rows = ranking(report).rows
    assert [row["node"] for row in rows] == ["c", "a", "b"]
    assert [row["is_above"] for row in rows] == [True, False, False]
    assert [row["others"] for row in rows] == [["30\xa0%"], ["unknown"], ["unknown"]]
    assert rows[2]["width"] is None


def test_a_headline_without_a_plan_says_what_is_known() -> None:
    assert headline(bare_input()) == "Of 1 node: 1 without a score."


def test_reads_are_summed_by_kind_of_source_in_order_of_name() -> None:
    rows = read_rows(reads().sample(fraction=1.0, shuffle=True, seed=2))
    assert [row["source"] for row in rows] == ["dcgm_text", "kernel_log", "sacct"]
    assert rows[0]["cells"] == ["2", "96,010", "95,990", "17", "3"]
    assert read_rows(pl.DataFrame(schema=reads().schema)) == ()
