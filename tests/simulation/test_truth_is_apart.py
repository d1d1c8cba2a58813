from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("room", ["features", "models", "remediation", "pipelines"])
def test_no_room_that_trains_or_scores_knows_where_the_truth_is(room: str) -> None:
    files = [p for p in (ROOT / room).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert files
    naming = [str(p.relative_to(ROOT)) for p in files if b"demo_truth" in p.read_bytes()]
    assert naming == []


def test_the_list_of_inputs_does_not_lead_to_the_truth() -> None:
    demo = ROOT / "data_samples" / "demo"
    texts = [demo / "inputs.yaml", *sorted((demo / "mappings").glob("*.yaml"))]
    assert all("truth" not in path.read_text(encoding="utf-8") for path in texts)
