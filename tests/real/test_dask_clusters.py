"""Workers as jobs of a real Slurm, and by the commands of the Kubernetes pods: the same bits.

Jobs are cancelled and requeued amid the work. Clusters of processes are in tests/pipelines.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml
from distributed import Client, Security
from distributed.comm import connect

from features.errors import DataError, SettingsError
from pipelines.doctor.servers import probe_slurm_workers
from pipelines.flow import scale_out, scale_slurm, scale_work
from pipelines.sections.scale_out import SlurmWorkers
from pipelines.settings import Settings
from tests.pipelines.flow.test_scale_out import (
    LIMITS,
    NODES,
    SPAN,
    SPEC,
    bundle,
    check_same,
    check_scores,
    core_tables,
    in_one_process,
    installation,
    left_over,
    served_by,
)

sys.path.insert(0, str(Path(__file__).parent))

import slurm_cluster
from slurm_cluster import free_ports, wait_until, why_not

pytestmark = [pytest.mark.real, pytest.mark.slow]
__all__ = ["bundle"]  # a fixture

DEPLOY = Path(__file__).parents[2] / "deploy"
BIN = Path(sys.executable).parent
N_UNITS = 2 * len(NODES)
"""Of two days."""
ONE_CORE = ("--nodes=1", "--cpus-per-task=1", "--mem=900M", "--output=/dev/null")
SPEC_OF_JOBS = {"memory_gb": 1, "host": "127.0.0.1"}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_cluster.SlurmCluster]:
    if reason := why_not():
        pytest.skip(reason)
    with slurm_cluster.SlurmCluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def box(
    slurm: slurm_cluster.SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> slurm_cluster.SlurmCluster:
    """This process is a client of it; a unit is one GPU's day."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    monkeypatch.setattr(scale_work, "SHARD_SIZE", 1)
    return slurm


@contextmanager
def program(*words: str, **more: str) -> Iterator[None]:
    """A program of this environment that runs as long as the block does."""
    running = subprocess.Popen(
        [str(BIN / words[0]), *words[1:]], env={**os.environ, **more}, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def disturbed(
    monkeypatch: pytest.MonkeyPatch, *acts: Callable[[str], object]
) -> list[tuple[str, int]]:
    """After a finished unit one act, on the job of a worker, a busy one if any is.

    Returns:
        Of each act the job, and how many units were yet to come; filled as acts are done.
    """
    computed = scale_out._computed
    done: list[tuple[str, int]] = []

    def is_gone(client: Client, worker: str) -> bool:
        return worker not in client.nthreads()

    def wrapped(client: Client, *args: Any, **more: Any) -> Iterator[Any]:
        for number, unit in enumerate(computed(client, *args, **more), start=1):
            busy = [name for name, keys in client.processing().items() if keys]
            there = [*busy, *client.nthreads()]
            if len(done) < len(acts) and there:
                worker = there[0]
                (job,) = client.run(os.getenv, "SLURM_JOB_ID", workers=[worker]).values()
                acts[len(done)](job)
                wait_until(partial(is_gone, client, worker), f"the worker of job {job} is gone")
                done.append((job, N_UNITS - number))
            yield unit

    monkeypatch.setattr(scale_out, "_computed", wrapped)
    return done


def jobs_of(box: slurm_cluster.SlurmCluster) -> set[str]:
    return set(box.tell("squeue", "--noheader", "--format=%i").split())


def test_the_job_script_of_workers_makes_the_same_bits_while_jobs_are_cancelled_and_requeued(
    box: slurm_cluster.SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: Any
) -> None:
    (port,) = free_ports(1)
    address = f"tls://127.0.0.1:{port}"
    where, tables = installation(tmp_path, scheduler=address, workers=3), core_tables()
    done = disturbed(
        monkeypatch,
        lambda job: box.do("scancel", job),
        lambda job: box.do("scontrol", "requeue", job),
    )
    words = ("dask", "scheduler", "--protocol=tls", f"--port={port}")
    with (
        certificates(tmp_path) as environment,
        program(*words, "--dashboard-address=127.0.0.1:0", **environment),
    ):
        jobs = {submitted(box, address, environment) for _ in range(3)}
        scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
        (cancelled, left_then), (requeued, left_later) = done
        assert {cancelled, requeued} < jobs
        assert left_then > left_later > 0
        check_same(where, in_one_process(where, tmp_path / "oracle", tables))
        assert left_over(where) == []

        # A requeued job waits for two minutes, unless it is told otherwise.
        box.wait_for(requeued, "PENDING")
        box.do("scontrol", "update", f"jobid={requeued}", "starttime=now")
        box.wait_for(requeued, "RUNNING")
        two = where.model_copy(
            update={"scale_out": where.scale_out.model_copy(update={"workers": 2})}
        )
        served = served_by(bundle)
        scale_out.write_scores(two, span=SPAN, served=served, limits=LIMITS)
        check_scores(two, served)
        with Client(address) as client:
            joined = set(client.run(os.getenv, "SLURM_JOB_ID").values())
            threads = set(client.run(os.getenv, "POLARS_MAX_THREADS").values())
            (limit,) = {
                one["memory_limit"]
                for one in client.scheduler_info(n_workers=-1)["workers"].values()
            }
        assert joined == jobs - {cancelled}
        assert threads == {"1"}
        assert limit == 900 * 2**20
    box.do("scancel", *jobs)
    box.wait_until(lambda: not jobs_of(box), "no job is left")


@contextmanager
def certificates(folder: Path) -> Iterator[dict[str, str]]:
    """Has this process talk by TLS; the environment by which others do, as the guide names it."""
    made = Security.temporary()
    texts = {"ca_file": made.tls_ca_file}
    for role in ("scheduler", "worker", "client"):
        for part in ("cert", "key"):
            texts[f"{role}.{part}"] = made.get_tls_config_for_role(role)[part]
    paths = {name: str(folder / f"{name}.pem") for name in texts}
    for name, text in texts.items():
        Path(paths[name]).write_text(text)
    with dask.config.set({f"distributed.comm.tls.{name}": paths[name] for name in texts}):
        yield {
            f"DASK_DISTRIBUTED__COMM__TLS__{name.upper().replace('.', '__')}": path
            for name, path in paths.items()
        }


def submitted(box: slurm_cluster.SlurmCluster, address: str, environment: dict[str, str]) -> str:
    """The shipped job script, as a user submits it; its job."""
    done = subprocess.run(
        ["sbatch", "--parsable", *ONE_CORE, DEPLOY / "slurm" / "dask_workers.sh", address],
        env={**box.environment, **environment, "FOREWARN_BIN": str(BIN)},
        capture_output=True,
        text=True,
        check=True,
        cwd=box.folder,
    )
    return done.stdout.strip().split(";")[0]


def test_jobs_that_the_settings_ask_for_are_replaced_when_they_end_and_make_the_same_bits(
    box: slurm_cluster.SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: Any
) -> None:
    where, tables = installation(tmp_path, workers=2, slurm=SPEC_OF_JOBS), core_tables()
    done = disturbed(
        monkeypatch,
        lambda job: box.do("scancel", job),
        lambda job: box.do("scontrol", "requeue", job),
    )
    scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
    (one, left_then), (other, left_later) = done
    assert one != other
    assert left_then > left_later > 0
    check_same(where, in_one_process(where, tmp_path / "oracle", tables))
    served = served_by(bundle)
    scale_out.write_scores(where, span=SPAN, served=served, limits=LIMITS)
    check_scores(where, served)
    box.wait_until(lambda: not jobs_of(box), "no job is left")
    assert list(where.slurm_jobs_dir.iterdir()) == []


def test_jobs_that_do_not_begin_are_taken_back_and_the_error_says_where_to_look(
    box: slurm_cluster.SlurmCluster, tmp_path: Path
) -> None:
    where = installation(tmp_path, workers=2, slurm=SPEC_OF_JOBS, wait_minutes=0.1)
    full = box.submit("sleep 1000", "--exclusive", f"--nodes={len(box.nodes)}")
    box.wait_for(full, "RUNNING")
    with pytest.raises(SettingsError, match=r"jobs of Slurm: 1 workers .* See `squeue --me`"):
        scale_out.write_matrix(core_tables(), where, span=SPAN, spec=SPEC)
    box.wait_until(lambda: jobs_of(box) == {full}, "our jobs are gone")
    box.do("scancel", full)
    box.wait_until(lambda: not jobs_of(box), "no job is left")


def begins_with(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """Has each job run a line of shell before its worker."""
    monkeypatch.setattr(scale_slurm, "ONE_THREAD", scale_slurm.ONE_THREAD | {"IS_TEST": words})


def test_a_job_that_ends_before_its_worker_connects_is_replaced(
    box: slurm_cluster.SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = installation(tmp_path, workers=2, slurm=SPEC_OF_JOBS, wait_minutes=1.5)
    once = tmp_path / "once"
    begins_with(monkeypatch, f"1; mkdir {once}-a || mkdir {once}-b && exit 3")
    tables = core_tables()
    scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
    check_same(where, in_one_process(where, tmp_path / "oracle", tables))
    box.wait_until(lambda: not jobs_of(box), "no job is left")


def test_a_job_that_is_cancelled_while_it_waits_is_replaced(
    box: slurm_cluster.SlurmCluster, tmp_path: Path
) -> None:
    where = installation(tmp_path, workers=1, slurm=SPEC_OF_JOBS, wait_minutes=1.5)
    full = box.submit("sleep 1000", "--exclusive", f"--nodes={len(box.nodes)}")
    box.wait_for(full, "RUNNING")
    with ThreadPoolExecutor(1) as pool:
        tables = core_tables()
        run = pool.submit(scale_out.write_matrix, tables, where, span=SPAN, spec=SPEC)
        box.wait_until(lambda: len(jobs_of(box)) == 2, "our job waits")
        (ours,) = jobs_of(box) - {full}
        box.do("scancel", ours)
        box.wait_until(lambda: ours not in jobs_of(box), "our job is cancelled")
        box.do("scancel", full)
        run.result()
    check_same(where, in_one_process(where, tmp_path / "oracle", tables))
    box.wait_until(lambda: not jobs_of(box), "no job is left")


def test_jobs_that_all_end_at_once_are_one_error_with_the_state_and_the_output_of_one(
    box: slurm_cluster.SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = installation(tmp_path, workers=1, slurm=SPEC_OF_JOBS, wait_minutes=5)
    begun = tmp_path / "begun"
    begins_with(monkeypatch, f"1; echo x >> {begun}; echo no such module >&2; exit 3")
    with pytest.raises(SettingsError) as caught:
        scale_out.write_matrix(core_tables(), where, span=SPAN, spec=SPEC)
    said = re.search(
        r"4 jobs of Slurm in a row .* job (\d+): FAILED \(NonZeroExitCode\); its output: (\S+)\. ",
        str(caught.value),
    )
    assert said is not None, str(caught.value)
    assert said[1] in said[2]
    assert "no such module" in Path(said[2]).read_text()
    assert len(begun.read_text().splitlines()) == 4  # one and three anew
    box.wait_until(lambda: not jobs_of(box), "no job is left")


def test_a_run_that_loses_its_workers_and_gets_no_others_says_how_their_jobs_ended(
    box: slurm_cluster.SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = installation(tmp_path, workers=1, slurm=SPEC_OF_JOBS, wait_minutes=0.7)
    ill = tmp_path / "ill"
    begins_with(monkeypatch, f"1; test -e {ill} && exit 3")
    monkeypatch.setattr(scale_slurm, "_LOOK_EVERY", "1s")

    def spoil(job: str) -> None:
        ill.touch()
        box.do("scancel", job)

    disturbed(monkeypatch, spoil)
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1s"}),
        pytest.raises(DataError, match=r"no worker is left.* 4 jobs of Slurm in a row .*FAILED"),
    ):
        scale_out.write_matrix(core_tables(), where, span=SPAN, spec=SPEC)
    box.wait_until(lambda: not jobs_of(box), "no job is left")


def test_jobs_that_slurm_would_not_run_are_not_submitted(
    box: slurm_cluster.SlurmCluster, tmp_path: Path
) -> None:
    where = installation(tmp_path, workers=2, slurm={**SPEC_OF_JOBS, "partition": "none"})
    with pytest.raises(SettingsError, match="invalid partition specified: none"):
        scale_out.write_matrix(core_tables(), where, span=SPAN, spec=SPEC)
    assert jobs_of(box) == set()
    assert not where.slurm_jobs_dir.exists()


async def connected(address: str, security: Security) -> None:
    """Speaks to a scheduler once; a client would first wait for a thread of its own."""
    keys = security.get_connection_args("client")
    comm = await connect(address, timeout=5, **keys)
    await comm.close()


def test_who_has_no_certificate_of_the_run_reaches_no_scheduler_of_it(
    box: slurm_cluster.SlurmCluster, tmp_path: Path
) -> None:
    slurm = SlurmWorkers(memory_gb=1, host="127.0.0.1")
    with scale_slurm.slurm_workers(slurm, 1, folder=tmp_path) as (cluster, _):
        address = cluster.scheduler_address
        assert address.startswith("tls://127.0.0.1:")
        for other in (Security(), Security.temporary()):
            with pytest.raises((OSError, TypeError)):
                asyncio.run(connected(address, other))
        asyncio.run(connected(address, cluster.security))
        keys = list(tmp_path.rglob("*.pem"))
        assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    assert list(tmp_path.iterdir()) == []


def test_doctor_has_slurm_judge_the_jobs(box: slurm_cluster.SlurmCluster) -> None:
    assert probe_slurm_workers(SlurmWorkers(memory_gb=1)).state == "ok"
    with pytest.raises(SettingsError, match="Requested node configuration is not available"):
        probe_slurm_workers(SlurmWorkers(memory_gb=1000))
    assert jobs_of(box) == set()


def test_a_scheduler_without_workers_is_one_error(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    where: Settings = installation(
        tmp_path, scheduler=f"tcp://127.0.0.1:{port}", workers=1, wait_minutes=0.02
    )
    with (
        program("dask", "scheduler", f"--port={port}", "--dashboard-address=127.0.0.1:0"),
        pytest.raises(SettingsError, match="workers were waited for in vain.*its workers run"),
    ):
        scale_out.write_matrix(core_tables(), where, span=SPAN, spec=SPEC)


def pod_commands() -> dict[str, list[str]]:
    """What the pods of the component run."""
    objects = yaml.safe_load_all((DEPLOY / "kubernetes" / "dask" / "dask.yaml").read_text())
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["command"]
        for one in objects
        if one["kind"] == "Deployment"
    }


def test_the_commands_of_the_kubernetes_pods_make_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale_work, "SHARD_SIZE", 1)
    scheduler, worker, nanny, board = map(str, free_ports(4))
    here = {
        "8786": scheduler, "8787": board, "8788": worker, "8789": nanny,
        "forewarn-dask": "127.0.0.1",
    }  # fmt: skip
    commands = pod_commands()
    with ExitStack() as stack:
        for name in ("forewarn-dask", "forewarn-dask-worker"):
            words = commands[name]
            for told, ours in here.items():
                words = [word.replace(told, ours) for word in words]
            stack.enter_context(program(*words, HOME=str(tmp_path)))
        where = installation(tmp_path, scheduler=f"tcp://127.0.0.1:{scheduler}", workers=1)
        tables = core_tables()
        scale_out.write_matrix(tables, where, span=SPAN, spec=SPEC)
        with Client(f"tcp://127.0.0.1:{scheduler}") as client:
            (address,) = client.nthreads()
    assert address.endswith(f":{worker}")
    check_same(where, in_one_process(where, tmp_path / "oracle", tables))
