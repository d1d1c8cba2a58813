"""The shipped Kubernetes objects are valid, closed, apart from each other, and complete."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml

from pipelines.api.access import OPEN_PATHS
from pipelines.cli import app
from pipelines.settings import load_settings
from pipelines.sources.result import merge
from remediation.hook_settings import load_hook_settings
from tests.deploy.manifests import (
    ABSENT,
    FOLDER,
    KUBECTL,
    OVERLAYS,
    Object,
    containers,
    of_kind,
    pods,
    rendered,
)
from tests.real.kubernetes_server import KubernetesServer

pytestmark = pytest.mark.skipif(not KUBECTL.is_file(), reason=ABSENT)
every = pytest.mark.parametrize("overlay", OVERLAYS)
whole = pytest.mark.parametrize(
    "overlay", ["small", "small with inbox", "large", "large with dask"]
)
# Made by hand before the first start; docs/deployment.md lists their keys.
SECRETS = {"forewarn-api", "forewarn-mlflow", "forewarn-inbox"}
PROGRAMS = {"forewarn", "dagster", "dagster-daemon", "dagster-webserver", "mlflow", "dask"}


def lost(asked: Any, kept: Any, path: str = "") -> Iterator[str]:
    """What a document says that a model of its kind does not know."""
    if isinstance(asked, dict):
        for key, value in asked.items():
            if not isinstance(kept, dict) or key not in kept:
                yield f"{path}/{key}"
            else:
                yield from lost(value, kept[key], f"{path}/{key}")
    elif isinstance(asked, list):
        if not isinstance(kept, list) or len(kept) != len(asked):
            yield path
        else:
            for number, (one, other) in enumerate(zip(asked, kept, strict=True)):
                yield from lost(one, other, f"{path}/{number}")


@every
def test_every_field_is_one_of_the_official_models(overlay: str) -> None:
    kubernetes = pytest.importorskip("kubernetes", reason="the official client is not here")
    client = kubernetes.client.ApiClient()
    for one in rendered(overlay):
        group, _, version = one["apiVersion"].rpartition("/")
        del group
        model = f"{version.capitalize()}{one['kind']}"
        found = client.deserialize(SimpleNamespace(data=json.dumps(one)), model)
        kept = client.sanitize_for_serialization(found)
        assert list(lost(one, kept)) == [], one["metadata"]["name"]


@every
def test_every_container_is_bounded_closed_and_watched(overlay: str) -> None:
    for name, one, is_first in containers(overlay):
        assert set(one["resources"]["requests"]) == {"cpu", "memory"}, name
        assert set(one["resources"]["limits"]) == {"cpu", "memory"}, name
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert is_first or {"startupProbe", "livenessProbe"} <= set(one), name
        assert ":" in one["image"], f"{name}: no tag"
        assert "/tmp" in {mount["mountPath"] for mount in one["volumeMounts"]}, name  # noqa: S108


@every
def test_no_pod_runs_as_root_or_on_the_machines_it_watches(overlay: str) -> None:
    for name, pod in pods(overlay).items():
        context = pod["securityContext"]
        assert context["runAsNonRoot"], name
        assert context["runAsUser"] == context["fsGroup"] == 10001, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            assert key not in pod
        (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term["matchExpressions"] == [
            {"key": "nvidia.com/gpu.present", "operator": "NotIn", "values": ["true"]}
        ], name


@every
def test_the_namespace_refuses_what_is_not_restricted(overlay: str) -> None:
    (namespace,) = of_kind(overlay, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    outside = ("Namespace", "ClusterRole", "ClusterRoleBinding")
    for one in rendered(overlay):
        if one["kind"] not in outside:
            assert one["metadata"]["namespace"] == "forewarn", one["metadata"]["name"]


def rights(overlay: str) -> dict[str, set[tuple[str, str]]]:
    """Verb and resource of each account, by the roles that are bound to it."""
    roles = of_kind(overlay, "ClusterRole")
    found: dict[str, set[tuple[str, str]]] = {
        name: set() for name in of_kind(overlay, "ServiceAccount")
    }
    for binding in of_kind(overlay, "ClusterRoleBinding").values():
        for subject in binding["subjects"]:
            for rule in roles[binding["roleRef"]["name"]]["rules"]:
                found[subject["name"]] |= {
                    (verb, resource) for verb in rule["verbs"] for resource in rule["resources"]
                }
    return found


@whole
def test_g23_only_ingest_reads_the_cluster_and_only_the_hook_could_ever_change_it(
    overlay: str,
) -> None:
    assert rights(overlay) == {
        "forewarn-server": set(),
        "forewarn-reader": {
            ("list", resource)
            for resource in ("nodes", "pods", "events", "jobs", "resourceclaims", "resourceslices")
        },
        "forewarn-hook": {("get", "nodes"), ("list", "nodes"), ("list", "pods")},
    }
    used = {name: pod["serviceAccountName"] for name, pod in pods(overlay).items()}
    assert {name for name, account in used.items() if account == "forewarn-hook"} == {
        "forewarn-hook"
    }
    assert {name for name, account in used.items() if account == "forewarn-reader"} == {
        "forewarn-dagster"
    }


@whole
def test_pods_without_rights_hold_no_token(overlay: str) -> None:
    for name, pod in pods(overlay).items():
        if pod["serviceAccountName"] == "forewarn-server":
            assert pod["automountServiceAccountToken"] is False, name


@every
def test_g23_nobody_may_read_a_secret_or_use_a_wildcard(overlay: str) -> None:
    for role in of_kind(overlay, "ClusterRole").values():
        for rule in role["rules"]:
            named = {*rule["resources"], *rule["verbs"], *rule["apiGroups"]}
            assert not named & {"secrets", "*"}


@pytest.mark.real
def test_ingest_asks_the_cluster_for_nothing_that_its_role_does_not_give(tmp_path: Path) -> None:
    pytest.importorskip("kubernetes", reason="the official client is not here")
    from pipelines.sources.kubernetes.client import OfficialApi
    from pipelines.sources.kubernetes.pull import KubernetesQuery, pull_kubernetes

    with KubernetesServer() as server:
        server.add_node("gpu000")
        server.add_pod("train", "gpu000")
        (tmp_path / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
        api = OfficialApi(kubeconfig=tmp_path / "kubeconfig", connect_s=2.0, read_s=10.0)
        now = datetime(2026, 1, 5, tzinfo=UTC)
        merge(pull_kubernetes(api, now, now, query=KubernetesQuery(), ingested_at=now))
        api.close()
        asked = {(call.method, call.path.rsplit("/", 1)[1]) for call in server.calls}
    # Asking which groups there are needs no right: every account may.
    lists = {path for _, path in asked if path != "resource.k8s.io"}
    assert {method for method, _ in asked} == {"GET"}
    assert {"nodes", "pods"} <= lists <= {one for _, one in rights("small")["forewarn-reader"]}


def test_the_component_binds_the_acting_role_and_nothing_else() -> None:
    (bound,) = yaml.safe_load_all((FOLDER / "hook-act" / "hook-rbac-act.yaml").read_text())
    assert (bound["kind"], bound["roleRef"]["name"]) == (
        "ClusterRoleBinding",
        "forewarn-hook-actor",
    )
    kustomization = yaml.safe_load((FOLDER / "hook-act" / "kustomization.yaml").read_text())
    assert kustomization["kind"] == "Component"
    for overlay in OVERLAYS:
        assert "forewarn-hook-actor" not in of_kind(overlay, "ClusterRoleBinding")


@whole
def test_traffic_is_refused_unless_a_policy_names_it(overlay: str) -> None:
    policies = of_kind(overlay, "NetworkPolicy")
    assert policies["default-deny"]["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }
    for name, pod in pods(overlay).items():
        policy = policies[name]["spec"]
        assert policy["podSelector"] == {"matchLabels": {"app": name}}
        served = {
            port["containerPort"] for one in pod["containers"] for port in one.get("ports", ())
        }
        let_in = {port["port"] for rule in policy.get("ingress", ()) for port in rule["ports"]}
        assert let_in == served, name
        assert all(rule["from"] for rule in policy.get("ingress", ())), name


def test_dask_is_reached_by_dagster_and_itself_alone_and_reaches_nothing_of_the_platform() -> None:
    policies = of_kind("large with dask", "NetworkPolicy")

    def apps(name: str, way: str, key: str) -> list[set[str]]:
        return [
            {one["podSelector"]["matchLabels"]["app"] for one in rule.get(key, ())}
            for rule in policies[name]["spec"][way]
        ]

    worker, scheduler, dagster = "forewarn-dask-worker", "forewarn-dask", "forewarn-dagster"
    assert apps(scheduler, "ingress", "from") == [{dagster, worker}]
    assert apps(worker, "ingress", "from") == [{scheduler, worker}]
    assert apps(scheduler, "egress", "to") == [{worker}]
    assert apps(worker, "egress", "to") == [{scheduler}, {worker}, set()]
    bucket = policies[worker]["spec"]["egress"][-1]
    assert [port["port"] for port in bucket["ports"]] == [443]
    assert apps("forewarn-dagster-to-dask", "egress", "to") == [{scheduler}]


def test_workers_of_dask_see_no_secret_but_the_keys_of_the_bucket() -> None:
    for name in ("forewarn-dask", "forewarn-dask-worker"):
        (container,) = pods("large with dask")[name]["containers"]
        assert "envFrom" not in container
        secret = {one["name"] for one in container["env"] if "valueFrom" in one}
        assert secret <= {"FOREWARN_BUCKET_KEY", "FOREWARN_BUCKET_SECRET"}
        assert all(one.get("value") == "1" for one in container["env"] if "THREADS" in one["name"])


def test_requests_of_people_go_through_a_volume_and_a_key_of_their_own(tmp_path: Path) -> None:
    lines = (FOLDER / "inbox" / "kustomization.yaml").read_text().splitlines()
    told = {
        name: yaml.safe_load(line.partition(name)[2].replace("...", "{ada: ['*']}"))
        for line in lines
        for name in ("site.yaml:", "hook.yaml:")
        if name in line
    }
    site = yaml.safe_load(settings_map("small")["site.yaml"])
    site["api"] |= told["site.yaml:"]["api"]
    hook = yaml.safe_load(of_kind("small", "ConfigMap")["forewarn-hook"]["data"]["hook.yaml"])
    for name, content in {"site.yaml": site, "hook.yaml": hook | told["hook.yaml:"]}.items():
        (tmp_path / name).write_text(yaml.safe_dump(content))
    (tmp_path / "inputs.yaml").write_text(settings_map("small")["inputs.yaml"])
    asks = load_settings(tmp_path / "site.yaml").api.inbox
    takes = load_hook_settings(tmp_path / "hook.yaml").inbox
    assert (asks.folder, asks.key.variable) == (takes.folder, takes.keys[asks.key_id].variable)
    for name, pod in pods("small with inbox").items():
        reaches = "inbox" in {one["name"] for one in pod["volumes"]}
        assert reaches == (name in {"forewarn-api", "forewarn-board", "forewarn-hook"})
        mounts = [one["mountPath"] for one in pod["containers"][0]["volumeMounts"]]
        assert (str(asks.folder) in mounts) == reaches
        keys = [one["secretRef"]["name"] for one in pod["containers"][0].get("envFrom", ())]
        assert ("forewarn-inbox" in keys) == reaches


@whole
def test_pages_without_a_password_listen_within_their_pod_alone(overlay: str) -> None:
    listening = {
        name: one["command"]
        for name, one, _ in containers(overlay)
        if "0.0.0.0" in " ".join(one["command"])  # noqa: S104
    }
    # api and board do not start there without a token; metrics are let in by a policy.
    assert {name.split("/")[1] for name in listening} == {"api", "board", "metrics"}


@whole
def test_everything_that_is_named_is_there(overlay: str) -> None:
    there = {
        kind: set(of_kind(overlay, kind))
        for kind in ("ConfigMap", "PersistentVolumeClaim", "ServiceAccount")
    }
    wanting: set[str] = set()
    for name, pod in pods(overlay).items():
        assert pod["serviceAccountName"] in there["ServiceAccount"], name
        volumes = {one["name"]: one for one in pod["volumes"]}
        for one in volumes.values():
            if "configMap" in one:
                assert one["configMap"]["name"] in there["ConfigMap"], name
            if "persistentVolumeClaim" in one:
                claim = one["persistentVolumeClaim"]["claimName"]
                assert claim in there["PersistentVolumeClaim"], name
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
            for source in container.get("envFrom", ()):
                if not source["secretRef"].get("optional"):
                    wanting.add(source["secretRef"]["name"])
            for value in container["env"]:
                key = value.get("valueFrom", {}).get("secretKeyRef", {"optional": True})
                if not key.get("optional"):
                    wanting.add(key["name"])
    assert wanting <= SECRETS
    told = (FOLDER.parents[1] / "docs" / "deployment.md").read_text()
    assert all(f"`{name}`" in told for name in wanting)


def commands_of(found: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command of the console script, as words."""
    yield words
    for name, one in getattr(found, "commands", {}).items():
        yield from commands_of(one, (*words, name))


@whole
def test_every_command_is_one_that_the_image_has(overlay: str) -> None:
    known = set(commands_of(typer.main.get_command(app)))
    for name, one, _ in containers(overlay):
        program, *words = one["command"]
        assert program in PROGRAMS, name
        if program == "forewarn":
            spoken = tuple(word for word in words if word[0].isalpha())
            assert spoken in known, name


@pytest.mark.parametrize("page", ["deployment.md", "runbook.md", "guides/kubernetes.md"])
def test_the_guides_ask_within_a_pod_that_can_answer(page: str) -> None:
    text = (FOLDER.parents[1] / "docs" / page).read_text()
    asked = re.findall(r"exec deploy/(\S+) (?:-c (\S+) )?-- forewarn (\w+)", text)
    assert asked
    for name, container, command in asked:
        pod = pods("small")[name]
        assert container in ("", *(one["name"] for one in pod["containers"]))
        if command == "doctor":  # looks at all sources, the cluster among them
            assert pod["serviceAccountName"] == "forewarn-reader"


@whole
def test_probes_ask_for_what_needs_no_token(overlay: str) -> None:
    asked = {
        one[kind]["httpGet"]["path"]
        for _, one, _ in containers(overlay)
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")
        if "httpGet" in one.get(kind, {})
    }
    assert asked == {*OPEN_PATHS, "/metrics"}


@whole
def test_a_budget_is_only_there_where_a_copy_can_be_spared(overlay: str) -> None:
    copies = {name: one["spec"]["replicas"] for name, one in of_kind(overlay, "Deployment").items()}
    for budget in of_kind(overlay, "PodDisruptionBudget").values():
        name = budget["spec"]["selector"]["matchLabels"]["app"]
        assert budget["spec"]["minAvailable"] < copies[name]


@whole
def test_one_scorer_and_one_hook_end_before_their_followers_start(overlay: str) -> None:
    for name in ("forewarn-scorer", "forewarn-hook", "forewarn-dagster", "forewarn-mlflow"):
        spec = of_kind(overlay, "Deployment")[name]["spec"]
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"}), name


def test_small_sites_share_one_node_for_volumes_that_are_mounted_once() -> None:
    for name, pod in pods("small").items():
        assert "podAffinity" in pod["affinity"], name
    for claim in of_kind("small", "PersistentVolumeClaim").values():
        assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    for claim in of_kind("large", "PersistentVolumeClaim").values():
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def settings_map(overlay: str) -> Object:
    (found,) = [
        one["data"]
        for name, one in of_kind(overlay, "ConfigMap").items()
        if name.startswith("forewarn-settings")
    ]
    return found


@whole
def test_the_shipped_settings_are_valid_and_act_on_nothing(overlay: str, tmp_path: Path) -> None:
    files = settings_map(overlay) | of_kind(overlay, "ConfigMap")["forewarn-hook"]["data"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    settings = load_settings(tmp_path / "site.yaml")
    assert not settings.schedule.scores
    data = Path("/var/lib/forewarn-data")
    assert settings.data_root == data
    hook = load_hook_settings(tmp_path / "hook.yaml")
    assert hook.actuator.kind == "dry_run"
    assert hook.site.levels == ()
    mounted = {
        mount["mountPath"]: mount["name"]
        for mount in pods(overlay)["forewarn-scorer"]["containers"][0]["volumeMounts"]
    }
    assert mounted[str(settings.scores_dir)] == "scores"
    reads = {
        mount["mountPath"]: mount.get("readOnly", False)
        for mount in pods(overlay)["forewarn-hook"]["containers"][0]["volumeMounts"]
    }
    assert reads[str(hook.scores.folder)] is True
