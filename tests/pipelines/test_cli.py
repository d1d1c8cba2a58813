"""Rules of the command line: its version, and what Ctrl-C leaves."""

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines import cli

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_ctrl_c_says_that_what_was_committed_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped() -> None:
        raise SystemExit(130)

    monkeypatch.setattr(cli, "app", stopped)
    with pytest.raises(SystemExit, match="130"):
        cli.main()
    assert "What was committed stays" in capsys.readouterr().err


def test_the_version_is_that_of_the_project() -> None:
    told = CliRunner().invoke(cli.app, ["--version"])
    version = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"]
    assert (told.exit_code, told.stdout) == (0, f"forewarn {version}\n")
