"""Rows out of plain columns are those of the frame, whatever is null or empty in it."""

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from features.tables import GPU_SCORES
from features.vocabulary import FAULT_TYPES
from pipelines.api.fleet_view import score_table
from pipelines.api.score_rows import by_type
from tests.pipelines.api.api_world import T0

SHARES = st.sampled_from([None, [1.0] + [0.0] * 11, [1 / 12] * 12])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "entity_id": st.sampled_from(["g1", "g2", "é", "Z"]),
            "node": st.sampled_from([None, "n1", "n2", "n10"]),
            "horizon_h": st.sampled_from([1, 24]),
            "score": st.sampled_from([None, 0.0, 0.5, 1.0]),
            "status_reason": st.sampled_from([None, "newest sample is 45 min old", "odd"]),
            "fault_type": st.sampled_from([None, *FAULT_TYPES[:2]]),
            "fault_probabilities": SHARES,
            "reasons": st.lists(st.sampled_from(["hot", "", "ü"]), max_size=3),
            "missing_share": st.sampled_from([0.0, 1.0]),
        }
    ),
    max_size=9,
    unique_by=lambda row: (row["entity_id"], row["horizon_h"]),
)


@given(rows=ROWS)
def test_plain_rows_are_the_rows_of_the_frame(rows: list[dict[str, object]]) -> None:
    fixed = {"entity_kind": "gpu", "as_of": T0, "model_version": "m", "trained_on": "real"}
    full = [
        dict.fromkeys(GPU_SCORES.schema)
        | row
        | fixed
        | {"status": "unknown" if row["score"] is None else "ok"}
        for row in rows
    ]
    table = score_table(pl.DataFrame(full, schema=GPU_SCORES.schema), {"n1": "r1"})
    found = table.plain.rows(np.arange(len(rows)))
    slow = table.frame.select(list(found[0]) if found else []).to_dicts()
    for row in slow:
        row["fault_probabilities"] = by_type(row["fault_probabilities"] or [])
    assert found == slow
    for name in ("g1", "é", "none"):
        assert table.rows_of(name).tolist() == [
            at for at, row in enumerate(slow) if row["entity_id"] == name
        ]
    for name in ("n1", "n10", "none"):
        assert table.rows_on(name).tolist() == [
            at for at, row in enumerate(slow) if row["node"] == name
        ]
    for horizon_h, ranked in table.ranking.items():
        of_horizon = [row for row in slow if row["horizon_h"] == horizon_h]
        expected = sorted(
            of_horizon,
            key=lambda row: (-(-1 if row["score"] is None else row["score"]), row["entity_id"]),
        )
        assert [slow[at] for at in ranked.tolist()] == expected
