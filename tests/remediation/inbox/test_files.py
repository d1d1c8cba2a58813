"""Nothing in the inbox stops the hook, and a crash neither loses a request nor doubles it."""

import fcntl
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from features.errors import SettingsError
from remediation.cluster.state import ClusterState, NodeView
from remediation.inbox import files as inbox_files
from remediation.inbox.files import (
    DONE,
    MOST_FILES,
    NEW,
    REFUSED,
    InboxRun,
    read_inbox,
    submit,
)
from remediation.inbox.site import Inbox, load_key, prepare_inbox
from remediation.ledger.entries import MemoryLedger, NewEntry
from remediation.process_settings import InboxSettings
from remediation.signed_requests import Present, Request, RequestKey, encode
from remediation.site import Site as Settings

NOW = datetime(2026, 1, 5, 10, tzinfo=UTC)
KEY = RequestKey(b"k" * 32)
ESCALATION = "escalation:guard:fake:cap_rate"


class Crash(BaseException):
    """The process is gone."""


def request(number: int = 1, what: str = "undrain", **changes: object) -> Request:
    values: dict[str, object] = {"node": "gpu-1", "boot_id": "boot-1"}
    if what == "acknowledge":
        values = {"escalation": ESCALATION}
    values |= {"actor": "alice", "created": NOW, "expires": NOW + timedelta(hours=1)}
    values |= {"nonce": f"{number:032x}", "key_id": "board"}
    return Request(what=what, **(values | changes))  # type: ignore[arg-type]


class Site:
    """An inbox with a ledger that knows one escalation."""

    def __init__(self, root: Path) -> None:
        self.root = root
        prepare_inbox(root)
        self.ledger = MemoryLedger()
        told = {"recorded_at": NOW, "actuator": "fake", "body": {"why": "guard", "text": "x"}}
        self.ledger.append(NewEntry(key=ESCALATION, kind="escalation", **told))

    def read(self, *, now: datetime = NOW, ledger: object = None) -> InboxRun:
        present = Present(
            now=now,
            actors={"alice": ("*",)},
            boots={"gpu-1": "boot-1"},
            open_decision=lambda _: None,
            escalations=frozenset({ESCALATION}),
        )
        return read_inbox(
            self.root,
            keys={"board": KEY},
            present=present,
            ledger=self.ledger if ledger is None else ledger,  # type: ignore[arg-type]
            actuator="fake",
        )

    def names(self, folder: str) -> list[str]:
        return sorted(one.name for one in (self.root / folder).iterdir())

    def rules(self) -> list[str]:
        found = (self.root / REFUSED).glob("*.why.json")
        return sorted(json.loads(one.read_text())["rule"] for one in found)

    def kept(self) -> list[tuple[str, str]]:
        found = self.ledger.entries(kinds=("request",))
        return [(one.key[-1], one.body["status"]) for one in found]


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "inbox")


def test_g26_a_request_is_kept_in_the_ledger_and_filed(site):
    submit(site.root, request(), KEY)
    run = site.read()
    assert (run.accepted, run.refused, run.stopped_by) == ((request(),), (), None)
    assert site.names(NEW) == []
    assert site.names(DONE) == [f"{request().nonce}.json"]
    (kept,) = site.ledger.entries(kinds=("request",))
    assert (kept.actor, kept.node, kept.body["what"]) == ("alice", "gpu-1", "undrain")


def test_g26_an_acknowledgement_answers_its_escalation_in_the_persons_name(site):
    submit(site.root, request(what="acknowledge"), KEY)
    site.read()
    (answer,) = site.ledger.entries(kinds=("acknowledged",))
    assert (answer.refers_to, answer.actor) == (ESCALATION, "alice")


def test_g26_what_does_not_hold_is_refused_and_kept_with_its_rule(site):
    submit(site.root, request(), KEY)
    run = site.read(now=NOW + timedelta(hours=2))
    assert (run.accepted, site.rules(), site.kept()) == ((), ["expired"], [("1", "refused")])
    assert "refused: expired" in run.refused[0]


def test_g26_a_replayed_request_is_refused_and_changes_nothing(site):
    path = submit(site.root, request(), KEY)
    content = path.read_bytes()
    site.read()
    for name in ("again.json", "and again"):
        (site.root / NEW / name).write_bytes(content)
    site.read()
    assert (site.rules(), site.kept()) == (["seen_before"] * 2, [("1", "accepted")])


def test_g26_one_nonce_is_one_request(site):
    submit(site.root, request(), KEY)
    site.read()
    submit(site.root, request(what="false_alarm"), KEY)
    site.read()
    assert (site.rules(), site.kept()) == (["nonce_used"], [("1", "accepted")])


def make_hostile(new: Path, secret: Path) -> list[str]:
    """Everything that does not belong there; gives the rules it is refused by."""
    (new / "empty.json").write_bytes(b"")
    (new / "part.json").write_bytes(encode(request(7), KEY)[:50])
    (new / "binary").write_bytes(bytes(range(256)))
    (new / "deep").write_bytes(b"[" * 8000)
    with (new / "huge").open("wb") as file:
        file.truncate(1 << 40)
    (new / "link").symlink_to(secret)
    (new / "dangling").symlink_to("nowhere")
    (new / "loop").symlink_to("loop")
    (new / "folder").mkdir()
    (new / "folder" / "file").write_bytes(b"x")
    os.mkfifo(new / "pipe")
    (new / ("n" * 255)).write_bytes(b"long name")
    (new / "line\nbreak \x1b[2J.json").write_bytes(b"{}")
    Path(os.fsdecode(os.fsencode(new) + b"/\xff\xfe")).write_bytes(b"no text")
    not_files = ["not_a_file"] * 5
    return sorted([*not_files, *["not_json"] * 6, "too_large", "fields"])


def test_g26_no_file_stops_the_hook_and_the_honest_request_gets_through(site, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    rules = make_hostile(site.root / NEW, secret)
    submit(site.root, request(), KEY)
    run = site.read()
    assert run.accepted == (request(),)
    assert run.stopped_by is None
    assert site.rules() == rules
    assert site.names(NEW) == []
    assert secret.read_text() == "secret"
    assert all(text.isprintable() and "secret" not in text for text in run.refused)
    assert {one.name for one in tmp_path.iterdir()} == {"inbox", "secret"}


def test_g26_a_file_under_way_is_left_alone(site):
    (site.root / NEW / ".part").write_bytes(b"half")
    assert site.read() == InboxRun()
    assert site.names(NEW) == [".part"]


def test_g26_a_flood_is_read_in_parts_and_meanwhile_nothing_is_done(site):
    for number in range(MOST_FILES + 1):
        (site.root / NEW / f"{number:06d}").write_bytes(b"")
    assert "1,001 files wait" in str(site.read().stopped_by)
    assert site.read().stopped_by is None


def test_g26_while_another_hook_reads_nothing_is_done(site):
    submit(site.root, request(), KEY)
    other = os.open(site.root, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert "being read by another hook" in str(site.read().stopped_by)
    os.close(other)
    assert site.read().accepted == (request(),)


def test_g26_a_file_that_another_hook_took_away_is_no_trouble(site, monkeypatch):
    submit(site.root, request(), KEY)
    names = inbox_files._Desk.names
    monkeypatch.setattr(inbox_files._Desk, "names", lambda self: [*names(self), "gone.json"])
    assert site.read() == InboxRun(accepted=(request(),))


@pytest.mark.parametrize("folder", [NEW, DONE, REFUSED, "."])
def test_g13_an_inbox_that_cannot_be_read_may_hold_a_stop(site, folder):
    (site.root / folder).rename(site.root.parent / "moved")
    assert "cannot be read" in str(site.read().stopped_by)


def test_g26_a_folder_that_is_a_link_is_not_followed(site, tmp_path):
    (site.root / DONE).rmdir()
    (site.root / DONE).symlink_to(tmp_path)
    assert "cannot be read" in str(site.read().stopped_by)


class Steps:
    """Each change of the world is a step; the process dies before or after the last one."""

    def __init__(self, left: int, *, is_after: bool) -> None:
        self.left, self.is_after = left, is_after

    def wrap(self, do):
        def step(*args, **more):
            self.left -= 1
            if self.left >= 0:
                return do(*args, **more)
            if self.is_after:
                do(*args, **more)
            raise Crash

        return step


class DyingLedger:
    def __init__(self, inner, steps: Steps) -> None:
        self.entries, self.append = inner.entries, steps.wrap(inner.append)


@pytest.mark.parametrize("is_after", [False, True])
def test_g26_a_crash_at_any_step_loses_no_request_and_doubles_none(tmp_path, monkeypatch, is_after):
    n_steps = 0
    for at in range(100):
        site = Site(tmp_path / f"{at}")
        submit(site.root, request(1), KEY)
        submit(site.root, request(2, "acknowledge"), KEY)
        submit(site.root, request(3, actor="eve"), KEY)
        (site.root / NEW / "junk").write_bytes(b"junk")
        steps = Steps(at, is_after=is_after)
        with monkeypatch.context() as patched:
            patched.setattr(inbox_files.os, "rename", steps.wrap(os.rename))
            patched.setattr(inbox_files, "_write", steps.wrap(inbox_files._write))
            try:
                site.read(ledger=DyingLedger(site.ledger, steps))
            except Crash:
                n_steps = at + 1
        site.read(now=NOW + timedelta(minutes=5))
        assert site.kept() == [("1", "accepted"), ("2", "accepted"), ("3", "refused")]
        assert len(site.ledger.entries(kinds=("acknowledged",))) == 1
        assert site.names(NEW) == []
        assert site.names(DONE) == [f"{n:032x}.json" for n in (1, 2)]
        assert site.rules() == ["actor", "not_json"]
        if n_steps <= at:
            break
    assert n_steps > 10


def test_g26_a_request_accepted_before_a_crash_counts_although_it_expired_since(site, monkeypatch):
    submit(site.root, request(), KEY)
    with monkeypatch.context() as patched:
        patched.setattr(inbox_files.os, "rename", Steps(0, is_after=False).wrap(os.rename))
        with pytest.raises(Crash):
            site.read()
    assert site.read(now=NOW + timedelta(days=9)).accepted == (request(),)


def test_g26_putting_in_is_whole_or_not_at_all(site, monkeypatch):
    def fails(_):
        raise OSError("disk")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="disk"):
        submit(site.root, request(), KEY)
    assert site.names(NEW) == []


def test_g26_nobody_but_the_hook_sees_what_was_filed_or_takes_away_what_waits(site):
    modes = [(site.root / name).stat().st_mode & 0o7777 for name in (NEW, DONE, REFUSED)]
    assert modes == [0o3730, 0o700, 0o700]


def test_g26_what_is_put_in_can_be_read_by_the_hooks_group(site):
    before = os.umask(0o077)
    try:
        path = submit(site.root, request(), KEY)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o7777 == 0o640
    assert path.stat().st_gid == site.root.stat().st_gid


def test_an_inbox_that_the_unit_may_not_make_is_made_whole_by_root_or_not_at_all(
    tmp_path, monkeypatch
) -> None:
    def refuses(_path: Path, _mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", refuses)
        with pytest.raises(SettingsError, match="systemd-tmpfiles --create") as said:
            prepare_inbox(tmp_path / "inbox")
    assert f"d {tmp_path}/inbox/new 3730 {os.geteuid()} {os.getegid()} -" in str(said.value)
    assert not (tmp_path / "inbox" / NEW).exists()  # else the next start would leave it closed
    prepare_inbox(tmp_path / "inbox")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_g23_a_key_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    path.write_bytes(b"k" * 32 + b"\n")
    path.chmod(0o600)
    assert load_key(file=path) == b"k" * 32
    path.chmod(mode)
    with pytest.raises(SettingsError, match=f"mode 0{mode:o}"):
        load_key(file=path)


def test_g23_a_key_has_exactly_one_place(tmp_path, monkeypatch):
    monkeypatch.setenv("FOREWARN_TEST_KEY", "k" * 32)
    assert load_key(variable="FOREWARN_TEST_KEY") == b"k" * 32
    with pytest.raises(SettingsError, match="either"):
        load_key()
    with pytest.raises(SettingsError, match="No such file"):
        load_key(file=tmp_path / "absent")


def test_g26_an_inbox_is_set_up_by_settings_alone(tmp_path):
    (tmp_path / "key").write_bytes(b"k" * 32)
    (tmp_path / "key").chmod(0o600)
    settings = InboxSettings(
        folder=tmp_path / "inbox",
        keys={"board": {"file": tmp_path / "key"}},
        actors={"alice": ("undrain",), "bob": ("*",)},
    )
    inbox = Inbox.of(settings)
    for number, changes in enumerate([{}, {"actor": "bob"}, {"actor": "eve"}]):
        submit(inbox.root, request(number, **changes), KEY)
    gpu = NodeView(name="gpu-1", state="up", boot_id="boot-1")
    state = ClusterState(as_of=NOW, nodes=(gpu,))
    run = inbox.read(state, ledger=MemoryLedger(), actuator="fake", site=Settings(), now=NOW)
    assert [one.actor for one in run.accepted] == ["alice", "bob"]
    assert "eve is not listed" in run.refused[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": {}},
        {"actors": {}},
        {"actors": {"alice": ("reboot",)}},
        {"keys": {"board": {}}},
        {"keys": {"board": {"file": "f", "variable": "V"}}},
    ],
)
def test_g26_an_inbox_without_keys_or_people_is_refused(tmp_path, changes):
    values = {"folder": tmp_path, "keys": {"k": {"variable": "V"}}, "actors": {"alice": ("*",)}}
    InboxSettings(**values)
    with pytest.raises(ValidationError):
        InboxSettings(**(values | changes))
