"""Rules of the page of features."""

from pipelines.reference_docs.features import PAGE, feature_page


def test_the_page_is_what_the_registry_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == feature_page(), (
        "docs/features.md is stale: run python -m pipelines.reference_docs.features"
    )


def test_every_cell_of_the_page_is_filled() -> None:
    rows = [line for line in feature_page().splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    assert len(cells) > 100
    assert all(len(row) == 6 and all(row) for row in cells)
