"""Rules of the commands that remove data: what they print, and their exit codes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from features.tables import CORE_HEALTH_EVENTS
from pipelines.cli import app
from pipelines.storage.file_lock import held
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
SITE = """\
site: lab
inputs: inputs.yaml
data_root: data
start: 2026-01-05T00:00:00Z
end: 2026-02-05T00:00:00Z
horizons_h: [24]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (tmp_path / "inputs.yaml").write_text(
        "site: lab\ntime_zone: UTC\ninputs:\n"
        "  - {kind: sacct, path: 'jobs/*.txt', may_be_absent: true}\n"
    )
    (tmp_path / "forewarn.yaml").write_text(SITE)
    day = Span(T0, T0 + timedelta(days=1))
    TableStore(tmp_path / "data" / "tables").write(
        CORE_HEALTH_EVENTS, CORE_HEALTH_EVENTS.empty(), span=day
    )
    return tmp_path / "forewarn.yaml"


def run(*words: str, site: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*words, "--settings", str(site)])
    return result.exit_code, result.output


def test_retain_says_what_it_would_do_then_does_it_then_has_nothing_to_do(site: Path) -> None:
    code, said = run("retain", "--dry-run", site=site)
    assert (code, "makes one file a day of 1 day, 2026-01-05" in said) == (0, True)
    assert "would be touched" in said
    code, said = run("retain", site=site)
    assert (code, "1 change," in said) == (0, True)
    assert run("retain", site=site) == (0, "Nothing is over, and nothing is to be compacted.\n")


def test_retain_beside_another_says_so_by_its_exit_code(site: Path) -> None:
    with held(site.parent / "data" / ".retention.lock"):
        code, said = run("retain", site=site)
    assert (code, "another process is at it" in said) == (1, True)


def test_forget_counts_and_says_what_stays(site: Path) -> None:
    code, said = run("forget", "--user", "ann", "--dry-run", site=site)
    assert code == 0
    assert "nothing is kept of them" in said
    assert "What stays:" in said
    assert not (site.parent / "data" / "landing" / "forgotten.json").exists()
