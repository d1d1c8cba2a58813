"""Rules of the command line: Ctrl-C says what is left, and keeps its exit code."""

import pytest

from pipelines import cli


def test_ctrl_c_says_that_what_was_committed_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped() -> None:
        raise SystemExit(130)

    monkeypatch.setattr(cli, "app", stopped)
    with pytest.raises(SystemExit, match="130"):
        cli.main()
    assert "What was committed stays" in capsys.readouterr().err
