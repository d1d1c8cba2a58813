"""Rules of who may write a bucket's prefix: one installation, and whom it has to be taken from."""

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.doctor.servers import probe_owner
from pipelines.storage import bucket_owner
from pipelines.storage.bucket_owner import BucketOwnerError, OwnedBucket, owned, take_over_tables
from pipelines.storage.object_paths import ObjectPath
from tests.pipelines.memory_bucket import MemoryBucket


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch) -> None:
    monkeypatch.setattr(bucket_owner, "_LOOKED", {})


def seen_by(bucket: MemoryBucket, folder: Path) -> ObjectPath:
    """The tables, as an installation of that folder has them."""
    return owned(bucket.path("lab/tables"), identity=folder / "installation")


def test_the_first_that_writes_owns_the_prefix_and_no_other_changes_anything(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path)
    first, second = (seen_by(bucket, tmp_path / name) for name in ("first", "second"))
    (first / "a").write_bytes(b"1")
    before = dict(bucket.objects)
    changes = [
        lambda: (second / "b").write_bytes(b"2"),
        lambda: (second / "a").unlink(missing_ok=True),
        lambda: (second / "a").replace(second / "b"),
        lambda: second.bucket.put_new("lab/tables/b", b"2"),
    ]
    for change in changes:
        with pytest.raises(BucketOwnerError, match=r"first on .*second on .*take-over --from"):
            change()
    assert bucket.objects == before
    assert (second / "a").read_bytes() == b"1"
    assert [one.name for one in second.glob("*")] == [".owner.json", "a"]
    (first / "a").replace(first / "b")


def test_of_two_that_find_it_free_the_one_whose_object_is_there_writes(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path)
    first, second = (seen_by(bucket, tmp_path / name) for name in ("first", "second"))
    is_absent_once = bucket.get

    def get(key: str) -> tuple[bytes, str]:
        bucket.get = is_absent_once  # type: ignore[method-assign]
        first.bucket.check()  # between another's look and its claim
        raise FileNotFoundError(key)

    bucket.get = get  # type: ignore[method-assign]
    with pytest.raises(BucketOwnerError):
        (second / "b").write_bytes(b"2")


def test_an_installation_keeps_its_prefix_when_it_moves_and_a_copy_does_not_get_it(
    tmp_path,
) -> None:
    bucket = MemoryBucket(tmp_path)
    (seen_by(bucket, tmp_path / "data") / "a").write_bytes(b"1")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    (tmp_path / "data").rename(tmp_path / "moved")
    (seen_by(bucket, tmp_path / "moved") / "a").write_bytes(b"2")
    with pytest.raises(BucketOwnerError, match="is a copy of that one"):
        (seen_by(bucket, tmp_path / "copy") / "a").write_bytes(b"3")


def test_an_installation_is_made_up_once_also_on_a_disk_without_hard_links(
    tmp_path, monkeypatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no hard links here")

    monkeypatch.setattr(os, "link", refused)
    tables = seen_by(MemoryBucket(tmp_path), tmp_path / "data")
    start = threading.Barrier(8)

    def known() -> tuple[str, int]:
        start.wait()
        us = tables.bucket.us()
        return us.installation, us.inode

    with ThreadPoolExecutor(8) as pool:
        found = {one.result() for one in [pool.submit(known) for _ in range(8)]}
    assert len(found) == 1


def test_workers_elsewhere_leave_parts_whoever_owns_the_prefix(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path)
    (seen_by(bucket, tmp_path / "first") / "a").write_bytes(b"1")
    part = seen_by(bucket, tmp_path / "worker") / ".spool" / "part"
    part.write_bytes(b"2")
    part.unlink()


def test_a_former_owner_stops_within_a_minute_and_asks_no_more_often(tmp_path, monkeypatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(bucket_owner, "monotonic", lambda: clock[0])
    bucket = MemoryBucket(tmp_path)
    first, second = (seen_by(bucket, tmp_path / name) for name in ("first", "second"))
    (first / "a").write_bytes(b"1")
    asked = bucket.n_requests
    (first / "a").write_bytes(b"1")
    assert bucket.n_requests == asked + 1
    host = second.bucket.us().host
    assert "is this installation's now" in take_over_tables(second, former=host)
    clock[0] += 60
    with pytest.raises(BucketOwnerError):
        (first / "a").write_bytes(b"1")
    (second / "a").write_bytes(b"2")
    assert "already" in take_over_tables(second, former=host)


def test_only_who_names_the_present_owner_takes_over(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path)
    first, second = (seen_by(bucket, tmp_path / name) for name in ("first", "second"))
    with pytest.raises(BucketOwnerError, match="nobody yet"):
        take_over_tables(second, former="anyone")
    (first / "a").write_bytes(b"1")
    with pytest.raises(BucketOwnerError, match=r"not written by elsewhere: it is .*first on"):
        take_over_tables(second, former="elsewhere")
    with pytest.raises(BucketOwnerError, match="is no bucket"):
        take_over_tables(tmp_path, former="anyone")


def test_an_owner_that_cannot_be_read_lets_nobody_write(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path)
    bucket.objects["lab/tables/.owner.json"] = b'{"host": "a"}'
    with pytest.raises(BucketOwnerError, match=r"\.owner\.json is damaged"):
        (seen_by(bucket, tmp_path / "first") / "a").write_bytes(b"1")


def test_doctor_names_the_owner_and_owns_nothing_itself(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path)
    first, second = (
        OwnedBucket(bucket, "lab/tables", tmp_path / name / "installation")
        for name in ("first", "second")
    )
    assert "first that writes" in probe_owner(second).what
    assert bucket.objects == {}
    first.put("lab/tables/a", b"1")
    assert probe_owner(first).state == "ok"
    found = probe_owner(second)
    assert (found.state, "take-over --from" in found.do) == ("FAIL", True)
    assert not second.identity.exists()
    second.us()
    with pytest.raises(BucketOwnerError, match="take-over --from"):
        probe_owner(second)


def test_taking_over_a_folder_is_refused_by_the_command(tmp_path) -> None:
    file = tmp_path / "forewarn.yaml"
    file.write_text("site: a\ninputs: i\ndata_root: d\nstart: 2026-01-01T00:00:00Z\n")
    done = CliRunner().invoke(app, ["take-over", "--settings", str(file), "--from", "old"])
    assert isinstance(done.exception, BucketOwnerError)
