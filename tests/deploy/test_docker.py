"""The image is closed and pinned, and what is built into it is enough to run every part."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.dockerfile import ROOT, Instruction, instructions

FOLDER = ROOT / "deploy" / "docker"
DEV = ("pytest", "hypothesis", "ruff", "mypy", "uv", "duckdb", "schemathesis", "httpx", "torch")
OPTIONAL = ("boto3", "dask", "dask_jobqueue", "kubernetes", "psycopg", "dagster_postgres")
# In the base image, or put there by the one apt step.
SYSTEM_LIBRARIES = {
    "libc", "libm", "libpthread", "libgcc_s", "libstdc++", "libdl", "libz", "librt", "libresolv",
    "libgomp",
}  # fmt: skip
# Of a thread pool of numba that is only used where Intel's library is installed.
NOT_NEEDED = {"libtbb"}


def of(word: str, stage: int | None = None) -> list[Instruction]:
    return [one for one in instructions() if one.word == word and stage in (None, one.stage)]


def locked(path: Path) -> set[tuple[str, str]]:
    """Packages with their versions; one may have several, for several versions of Python."""
    return set(re.findall(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", path.read_text(), re.MULTILINE))


def test_the_base_is_pinned_and_both_stages_use_it() -> None:
    (base,) = of("ARG", -1)
    assert re.fullmatch(r"BASE=python:3\.11\.\d+-slim-[a-z]+", base.rest)
    assert [one.rest for one in of("FROM")] == ["${BASE} AS build", "${BASE}"]


def test_nothing_is_fetched_but_by_hash_and_nothing_is_built_from_source() -> None:
    assert of("ADD") == []
    for one in of("RUN", 0):
        words = one.words  # in exec form: no shell
        if words[1] == "install" and "--no-index" not in words:
            assert {"--require-hashes", "--no-deps", ":all:"} <= set(words)
    text = " ".join(one.rest for one in instructions())
    assert not re.search(r"curl|wget|https?://", text)


def test_the_image_runs_as_an_account_of_its_own_that_owns_nothing_in_it() -> None:
    last = [one for one in instructions() if one.stage == 1]
    assert [one.rest for one in last if one.word == "USER"] == ["10001:10001"]
    after = [one.word for one in last[[one.word for one in last].index("USER") :]]
    assert not {"RUN", "COPY"} & set(after)
    assert not any("chown" in one.rest for one in last)


def test_signals_reach_the_program_itself() -> None:
    assert [one.words for one in of("ENTRYPOINT")] == [["forewarn"]]
    assert [one.rest for one in of("STOPSIGNAL")] == ["SIGTERM"]
    assert [one.rest.split("CMD ")[1] for one in of("HEALTHCHECK")] == [
        '["python", "/opt/forewarn/healthcheck.py"]'
    ]


def test_no_secret_is_in_it() -> None:
    for one in instructions():
        if one.word in ("ARG", "ENV"):
            assert not re.search(r"(?i)secret|password|token|key", one.rest)


def test_only_what_is_named_enters_the_build() -> None:
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        source
        for one in of("COPY")
        if not one.rest.startswith("--from")
        for source in one.rest.split()[:-1]
    }
    assert copied == let_in
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_versions_are_those_that_are_tested() -> None:
    assert locked(FOLDER / "requirements.lock") <= locked(ROOT / "requirements.lock")


def test_everything_that_the_project_asks_for_is_locked_and_no_tool_of_its_makers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = {name for name, _ in locked(FOLDER / "requirements.lock")}
    wanted = list(project["project"]["dependencies"])
    for extra in ("postgres", "kubernetes", "dask", "s3"):
        wanted += project["project"]["optional-dependencies"][extra]
    names = {re.match(r"[A-Za-z0-9._-]+", one).group() for one in wanted}  # type: ignore[union-attr]
    assert names <= shipped
    assert not shipped & set(DEV)
    asked = (FOLDER / "build.in").read_text().split()
    assert asked == project["build-system"]["requires"]


def run(words: list[str], cwd: Path) -> str:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PIP_NO_INPUT": "1",
    }
    done = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the first stage makes, by its own steps."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11")
    root = tmp_path_factory.mktemp("image")
    source = root / "src"
    source.mkdir()

    def moved(word: str) -> str:
        return word.replace("/opt/", f"{root}/opt/")

    for one in instructions():
        if one.stage != 0:
            continue
        if one.word == "COPY":
            *names, _ = one.rest.split()
            for name in names:
                copy(ROOT / name, source / Path(name).name)
        if one.word == "RUN":
            words = [moved(word) for word in one.words]
            words[0] = sys.executable if words[0] == "python" else words[0]
            run(words, source)
    return root / "opt" / "forewarn"


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


EVERY_MODULE = """
import importlib, pkgutil, sys
names = [
    found.name
    for room in ("features", "models", "remediation", "simulation", "pipelines")
    for found in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}.")
]
failed = []
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(f"{name}: {error}")
print(len(names), failed)
"""


@pytest.mark.slow
@pytest.mark.real
def test_the_image_has_every_room_every_optional_part_and_no_tool_of_its_makers(
    installed: Path, tmp_path: Path
) -> None:
    python = str(installed / ".venv" / "bin" / "python")
    assert "Commands" in run([str(installed / ".venv" / "bin" / "forewarn"), "--help"], tmp_path)
    count, _, failed = run([python, "-c", EVERY_MODULE], tmp_path).partition(" ")
    assert int(count) > 300
    assert failed.strip() == "[]"
    look = "import importlib.util as u; print([n for n in {!r} if u.find_spec(n)])"
    assert run([python, "-c", look.format(DEV)], tmp_path).strip() == "[]"
    assert run([python, "-c", look.format(OPTIONAL)], tmp_path).strip() == repr(list(OPTIONAL))


@pytest.mark.slow
@pytest.mark.real
def test_the_image_asks_the_system_for_no_library_that_it_lacks(installed: Path) -> None:
    if shutil.which("ldd") is None:
        pytest.skip("ldd is not here")
    needed: dict[str, str] = {}
    libraries = [path for path in (installed / ".venv").rglob("*.so*") if path.is_file()]
    for start in range(0, len(libraries), 100):
        told = subprocess.run(
            ["ldd", *libraries[start : start + 100]], capture_output=True, text=True, check=False
        )
        for name, where in re.findall(r"^\s+(\S+) => (.+?)(?: \(0x|$)", told.stdout, re.MULTILINE):
            if str(installed) not in where:
                needed[name.split(".so")[0]] = name
    vendored = {path.name for path in libraries}
    missing = {
        stem
        for stem, name in needed.items()
        if stem not in SYSTEM_LIBRARIES | NOT_NEEDED and name not in vendored
    }
    assert missing == set()


@pytest.mark.slow
@pytest.mark.real
def test_everything_is_compiled_once(installed: Path) -> None:
    site = installed / ".venv" / "lib" / "python3.11" / "site-packages"
    for room in ("pipelines", "models", "remediation"):
        sources = set((site / room).rglob("*.py"))
        compiled = {
            path.parents[1] / f"{path.name.split('.')[0]}.py"
            for path in (site / room).rglob("*.pyc")
        }
        assert sources == compiled


def test_health(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec: dict[str, Any] = {"__name__": "healthcheck"}
    exec((FOLDER / "healthcheck.py").read_text(), spec)  # noqa: S102 - a script, no module of ours
    part_of, address_of, is_fresh = spec["part_of"], spec["address_of"], spec["is_fresh"]
    python = ["/opt/forewarn/.venv/bin/python", "/opt/forewarn/.venv/bin/forewarn"]
    assert part_of([*python, "remediate", "metrics"]) == ("remediate metrics", [])
    assert part_of([*python, "api", "--listen", "0.0.0.0:9"]) == ("api", ["--listen", "0.0.0.0:9"])
    assert part_of([*python, "ingest"]) == (None, [])
    assert part_of(["mlflow", "server"]) == (None, [])
    assert address_of("api", ["--listen", "0.0.0.0:9"]) == "http://127.0.0.1:9/api/v1/health/live"
    assert address_of("metrics", []) == "http://127.0.0.1:9184/metrics"
    assert not is_fresh("score", [tmp_path], 0)
    (tmp_path / "scorer_status.json").touch()
    at = (tmp_path / "scorer_status.json").stat().st_mtime
    assert is_fresh("score", [tmp_path / "absent", tmp_path], at + 2699)
    assert not is_fresh("score", [tmp_path], at + 2701)
