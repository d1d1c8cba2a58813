"""Each kind of cluster and actuator is opened from settings alone, and says what it would send."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from features.errors import SettingsError
from remediation.actuators import kubernetes_api, webhook
from remediation.actuators.exchange import Answer
from remediation.program.parts import (
    open_leadership,
    open_ledger,
    open_ports,
    read_racks,
    signing_key,
)
from remediation.program.plan import plan_of
from remediation.program.rehearsal import rehearse
from remediation.program.round import opened, run_round
from tests.remediation.kubernetes_fake import Bench
from tests.remediation.program_world import SETTINGS, ProgramWorld, make_world

SITE = {**SETTINGS["site"], "costs": {"notice_minutes": 0}}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramWorld:
    return make_world(tmp_path, monkeypatch)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench()
    for name in ("n1", "n2", "n3"):
        found.add_node(name)
    monkeypatch.setattr(kubernetes_api, "OfficialApi", lambda **_: found.api)
    return found


def on_kubernetes(world: ProgramWorld, **actuator: Any) -> Any:
    return world.write(cluster={"kind": "kubernetes"}, actuator=actuator, site=SITE)


def test_a_dry_run_on_kubernetes_says_what_it_would_send_and_sends_nothing(
    world: ProgramWorld, bench: Bench
) -> None:
    world.publish({"n1": 0.95})
    with opened(on_kubernetes(world, kind="dry_run")) as hook:
        plan = plan_of(rehearse(hook), actuator=hook.name)
        run_round(hook)
    assert plan.nodes[0].commands[0][:2] == ("PATCH", "/api/v1/nodes/n1")
    assert bench.api.carried_out == []


def test_on_kubernetes_a_node_is_held_and_emptied_only_after_the_notice(
    world: ProgramWorld, bench: Bench
) -> None:
    bench.add_pod("w0", metadata={"annotations": {"forewarn/eviction": "allowed"}})
    world.publish({"n1": 0.99})
    with opened(on_kubernetes(world, kind="kubernetes", settle_s=0)) as hook:
        run_round(hook)
        assert bench.node("n1")["spec"]["unschedulable"] is True
        evicted = ("POST", "/api/v1/namespaces/default/pods/w0/eviction")
        assert evicted not in bench.api.carried_out
        run_round(hook)
    assert evicted in bench.api.carried_out


def test_by_webhook_the_site_is_told_and_a_rehearsal_tells_nobody(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []

    def post(headers: object, body: bytes) -> Answer:
        sent.append(json.loads(body))
        return Answer(200, json.dumps({"id": sent[-1]["id"], "status": "done"}).encode())

    monkeypatch.setattr(webhook, "poster", lambda *_, **__: post)
    acts = {"kind": "webhook", "url": "https://ops.example/drain", "key_file": "key"}
    world.publish({"n1": 0.9})
    with opened(world.write(actuator=acts)) as hook:
        plan = plan_of(rehearse(hook), actuator=hook.name)
        assert (plan.actuator, sent) == ("webhook", [])
        run_round(hook)
    assert [(one["order"], one["node"]) for one in sent] == [("drain", "n1")]


@pytest.mark.parametrize("content", ["[1]", "{", None])
def test_a_template_that_is_no_json_object_is_one_error(
    world: ProgramWorld, content: str | None
) -> None:
    if content is not None:
        (world.root / "t.json").write_text(content)
    acts = {"kind": "webhook", "url": "https://a/b", "key_file": "key", "template": "t.json"}
    with pytest.raises(SettingsError, match=r"webhook template .*t\.json"):
        open_ports(world.write(actuator=acts))


def test_racks_come_from_a_list(world: ProgramWorld) -> None:
    (world.root / "racks.csv").write_text("node,rack\nn1,r1\nn2,r2\n")
    settings = world.write(cluster={"kind": "slurm", "racks": "racks.csv"})
    state = open_ports(settings).cluster.read()
    assert [node.rack for node in state.nodes] == ["r1", "r2", None]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("node\nn1\n", "line 2: expected node,rack"),
        ("node,rack\nn1,r1\nn1,r2\n", "line 3: 'n1' is in two racks"),
        ("node,rack\nn1,\n", "line 2"),
        (None, "No such file"),
    ],
)
def test_a_wrong_list_of_racks_is_one_error(tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / "racks.csv").write_text(content)
    with pytest.raises(SettingsError, match=told):
        read_racks(tmp_path / "racks.csv")


def test_a_key_signs_only_for_its_actors(world: ProgramWorld) -> None:
    keys = {"desk": {"file": "key", "actors": ["ada"]}}
    settings = world.write(inbox={"folder": "inbox", "keys": keys, "actors": {"ada": ["*"]}})
    assert settings.inbox is not None
    assert signing_key(settings.inbox, "ada")[0] == "desk"
    with pytest.raises(SettingsError, match="none signs for 'eve'"):
        signing_key(settings.inbox, "eve")


def test_a_connection_string_that_is_not_there_is_one_error(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FOREWARN_LEDGER", raising=False)
    settings = world.write(ledger={"postgres_variable": "FOREWARN_LEDGER"})
    with pytest.raises(SettingsError, match="FOREWARN_LEDGER is not set"):
        open_leadership(settings)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another account")
def test_root_leaves_no_files_beside_another_accounts_ledger(world: ProgramWorld) -> None:
    settings = world.write()
    settings.state.mkdir()
    os.chown(settings.state, 65534, -1)
    for part in (open_ledger, open_leadership):
        with pytest.raises(SettingsError, match="sudo -u nobody"), ExitStack() as stack:
            stack.enter_context(part(settings))
    assert list(settings.state.iterdir()) == []


def test_stored_tables_need_who_can_read_them(world: ProgramWorld) -> None:
    settings = world.write(
        cluster={"kind": "core_tables", "installation": "f.yaml"}, actuator={"kind": "dry_run"}
    )
    with pytest.raises(SettingsError, match="forewarn remediate"):
        open_ports(settings)
