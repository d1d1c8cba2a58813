"""Notebooks run from the demo's results, keep no outputs, and import what they use.

With FOREWARN_KEEP_NOTEBOOKS=DIR the executed notebooks are kept there, to look at their plots.
"""

import ast
import itertools
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = ["01_the_flow", "02_bring_your_own_history", "03_reading_a_model", "04_policy_replay"]
MOST_STATEMENTS = 30


def _read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def _code(book: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in book.cells if cell.cell_type == "code"]


def test_every_notebook_is_tested() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_was_run_is_kept(name: str) -> None:
    for cell in _read(name).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
        assert cell.metadata == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_defines_nothing_and_every_cell_is_short(name: str) -> None:
    logic = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.While, ast.Try)
    for source in _code(_read(name)):
        tree = ast.parse(source)
        assert not [node for node in ast.walk(tree) if isinstance(node, logic)]
        assert len(tree.body) <= MOST_STATEMENTS


@pytest.mark.parametrize("name", NAMES)
def test_a_sentence_says_why_before_each_cell(name: str) -> None:
    cells = _read(name).cells
    assert cells[0].cell_type == "markdown"
    for before, cell in itertools.pairwise(cells):
        assert cell.cell_type == "markdown" or before.cell_type == "markdown"


@pytest.mark.parametrize("name", NAMES)
def test_no_path_of_a_machine_is_named(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    assert not re.search(r"[\"'( ](/[a-z]+/|[A-Z]:\\)", text)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str, finished_demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN_DEMO", str(finished_demo))
    book = _read(name)
    client = NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    )
    client.execute()
    said = [out for cell in book.cells for out in cell.get("outputs", [])]
    assert not [out for out in said if out.output_type in ("stream", "error")]
    assert [out for out in said if {"image/png", "image/svg+xml"} & {*out.get("data", {})}]
    if kept := os.environ.get("FOREWARN_KEEP_NOTEBOOKS"):
        nbformat.write(book, Path(kept) / f"{name}.ipynb")
