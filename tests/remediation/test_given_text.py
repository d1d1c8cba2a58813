"""Rules of files that people name: regular ones within bounds, and an error for all else."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from features.errors import ForewarnError
from pipelines.config.check import check_config
from pipelines.sections.secret_source import SecretSource, read_secret
from pipelines.settings import load_settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.sources.history.mapping import load_mapping
from pipelines.sources.jobs.rules import load_job_rules
from pipelines.sources.site.listing import load_inputs
from pipelines.studies.benchmark.settings import load_shared
from remediation import given_text as module
from remediation.given_text import given_bytes, given_text
from remediation.hook_settings import load_hook_settings
from remediation.program.parts import read_racks
from remediation.site import load_site

READERS: dict[str, Callable[[Path], object]] = {
    "settings": load_settings,
    "inputs": load_inputs,
    "mapping": load_mapping,
    "rules": load_job_rules,
    "catalogue": load_catalogue,
    "benchmark": load_shared,
    "site file": load_site,
    "hook": load_hook_settings,
    "racks": read_racks,
    "secret": lambda path: read_secret(SecretSource(file=path), what="a.b"),
}


@pytest.fixture
def pipe(tmp_path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_no_file_of_a_person_is_read_from_a_device_or_waited_for_in_a_pipe(read, pipe) -> None:
    for path in (Path("/dev/zero"), pipe):
        with pytest.raises(ForewarnError, match=rf"{path}.*a pipe or device, not a regular file"):
            read(path)


def test_a_check_of_the_files_says_so_of_each(pipe) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert "a pipe or device" in check_config(pipe, hook=None, environment={}, now=now).words()


def test_a_file_is_read_up_to_the_bound_and_a_larger_one_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 2**20)
    path = tmp_path / "given.yaml"
    path.write_bytes(b"#" * 2**20)
    assert len(given_bytes(path)) == 2**20
    path.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(OSError, match="larger than 1 MB") as said:
        given_text(path)
    assert said.value.filename == str(path)


def test_a_link_is_followed_and_lines_end_alike(tmp_path) -> None:
    (tmp_path / "a").write_bytes("ä: 1\r\nb: 2\rc: 3\n".encode())
    (tmp_path / "link").symlink_to("a")
    assert given_text(tmp_path / "link") == "ä: 1\nb: 2\nc: 3\n"


def test_a_folder_is_named_and_not_left_open(tmp_path) -> None:
    n_open = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(IsADirectoryError) as said:
            given_text(tmp_path)
        assert said.value.filename == str(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == n_open
