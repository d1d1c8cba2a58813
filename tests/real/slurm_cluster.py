"""A private Slurm of several nodes for tests: real daemons on free loopback ports in one folder.

Nothing outside the folder is touched. What the tests hold the cluster to is in the test files.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue")
ACCOUNTING = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb-install-db")
CLUSTER = "forewarn"
PATIENCE_S = 120.0  # a loaded machine is slow; waiting costs nothing where it is not
LOG_LINES = 15


def why_not(programs: Iterable[str] = PROGRAMS) -> str | None:
    """Why such a cluster cannot be booted here; None: it can."""
    if os.geteuid() != 0:
        return "a private Slurm needs root (its daemons change users)"
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (deploy/packages/install_real_parts.sh)"
    return None


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, and that no client is given as its own.

    A daemon that is started again must find its port free: the kernel hands out the ports from
    32768 on to whoever connects, and Slurm's daemons connect to each other all the time.
    """
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = 10_000 + secrets.randbelow(22_000)
            one = stack.enter_context(socket.socket())
            with suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(port)
    return found


def wait_until(is_so: Callable[[], bool], what: str, *, seconds: float = PATIENCE_S) -> None:
    """Asks again and again; fails with `what` when the time is over."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"within {seconds:g} s it did not happen: {what}")
        time.sleep(0.1)


@dataclass
class SlurmCluster:
    """A cluster that lives as long as its `with` block.

    Attributes:
        folder: Everything of it.
        nodes: Names of its nodes, each with 8 GPUs that are links to /dev/null.
        has_accounting: Whether slurmdbd and MariaDB run too.
        switches: Lines of topology.conf; empty: flat.
    """

    folder: Path
    nodes: tuple[str, ...] = ("gpu000", "gpu001", "gpu002", "gpu003")
    has_accounting: bool = False
    switches: tuple[str, ...] = ()
    _daemons: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)
    # Sockets of job steps lie here, and a socket's path has 107 characters at most: in a folder
    # with a long name every launch fails.
    _spool: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="slurmd-")))

    @property
    def environment(self) -> dict[str, str]:
        """What every client needs."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**kept, "SLURM_CONF": str(self.folder / "slurm.conf"), "TZ": "Europe/Berlin"}

    def __enter__(self) -> Self:
        try:
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # The jobs' own processes outlive slurmd: they are ended first.
        if self._daemons and (self.folder / "slurm.conf").exists():
            subprocess.run(
                ["scancel", "--user=root"], env=self.environment, capture_output=True, check=False,
                timeout=20,
            )  # fmt: skip
            end = time.monotonic() + 8
            while self.tell("squeue", "--noheader") and time.monotonic() < end:
                time.sleep(0.1)
        for _, daemon in reversed(self._daemons):
            daemon.terminate()
        for _, daemon in reversed(self._daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
        shutil.rmtree(self._spool, ignore_errors=True)

    def do(self, *argv: str) -> str:
        """Runs a client; what it prints."""
        done = subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, check=False, timeout=60,
            cwd=self.folder,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {done.returncode} {done.stderr}")
        return done.stdout.strip()

    def tell(self, *argv: str) -> str:
        """Runs a client that may fail; what it prints, or nothing."""
        try:
            return self.do(*argv)
        except (RuntimeError, subprocess.TimeoutExpired):
            return ""

    def submit(self, script: str, *options: str) -> str:
        """Submits a job; its id."""
        return self.do(
            "sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}"
        ).split(";")[0]

    def job_state(self, job: str) -> str:
        """The state slurmctld has for a job."""
        return self.tell("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")

    def node_state(self, node: str) -> str:
        """The state sinfo shows for a node."""
        return self.tell("sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%T")

    def set_node(self, node: str, state: str, reason: str = "") -> None:
        """Drains, downs or resumes a node."""
        told = [f"reason={reason}"] if reason else []
        self.do("scontrol", "update", f"nodename={node}", f"state={state}", *told)

    def wait_for(self, job: str, *states: str) -> None:
        """Waits until a job has one of the states."""
        self.wait_until(lambda: self.job_state(job) in states, f"job {job} {states}")

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Asks again and again; fails with `what` and the end of every log."""
        try:
            wait_until(is_so, what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.shown()}") from None

    def shown(self) -> str:
        """Nodes, jobs and the end of every log: what a failed wait is explained by."""
        asked = [("sinfo", "--Node", "--long"), ("squeue", "--states=all")]
        parts = [f"== {' '.join(argv)}\n{self.tell(*argv)}" for argv in asked]
        for log in sorted((self.folder / "log").glob("*")):
            lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            parts.append(f"== {log.name}\n" + "\n".join(lines))
        return "\n".join(parts)

    def _boot(self) -> None:
        for name in ("munge", "state", "log", "run", "dev"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        (self.folder / "munge").chmod(0o700)
        key = self.folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        for gpu in range(8):
            (self.folder / "dev" / f"nvidia{gpu}").symlink_to("/dev/null")
        controller, database, *ports = free_ports(2 + len(self.nodes))
        self._write_files(controller, database, ports)
        munge = self.folder / "munge"
        self._start(
            "munged", "--force", "--foreground", f"--key-file={key}",
            f"--socket={munge}/socket", f"--pid-file={munge}/pid", f"--log-file={munge}/log",
            f"--seed-file={munge}/seed",
        )  # fmt: skip
        self._wait((munge / "socket").exists, "munge is there")
        if self.has_accounting:
            self._start_accounting(database)
        conf = str(self.folder / "slurm.conf")
        self._start("slurmctld", "-D", "-c", "-i", "-f", conf)
        self._wait(lambda: "UP" in self.tell("scontrol", "ping"), "slurmctld answers")
        for node in self.nodes:
            self._start("slurmd", "-D", "-N", node, "-f", conf)
        self._wait(
            lambda: all(self.node_state(node) == "idle" for node in self.nodes), "nodes are idle"
        )

    def _start(self, program: str, *arguments: str, more: Sequence[tuple[str, str]] = ()) -> None:
        with (self.folder / "log" / f"{program}.{len(self._daemons)}.out").open("wb") as log:
            daemon = subprocess.Popen(
                [program, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**self.environment, **dict(more)}, start_new_session=True, cwd=self.folder,
            )  # fmt: skip
        self._daemons.append((program, daemon))

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        def check() -> bool:
            for name, daemon in self._daemons:
                if daemon.poll() is not None:
                    raise RuntimeError(f"{name} ended with {daemon.returncode} before {what}")
            return is_so()

        self.wait_until(check, what)

    def _write_files(self, controller: int, database: int, ports: Sequence[int]) -> None:
        here = self.folder
        lines = [
            f"ClusterName={CLUSTER}", "SlurmctldHost=localhost(127.0.0.1)", "SlurmUser=root",
            "SlurmdUser=root", "AuthType=auth/munge", f"AuthInfo=socket={here}/munge/socket",
            "CredType=cred/munge", f"SlurmctldPort={controller}",
            f"SlurmctldPidFile={here}/run/slurmctld.pid", f"SlurmdPidFile={here}/run/%n.pid",
            f"SlurmctldLogFile={here}/log/slurmctld.log", f"SlurmdLogFile={here}/log/%n.log",
            f"SlurmdSpoolDir={self._spool}/%n", f"StateSaveLocation={here}/state",
            "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny,NoAddrCache",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none",
            "SwitchType=switch/none", "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core", "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0",
            "SlurmdParameters=config_overrides", "GresTypes=gpu", "ReturnToService=1",
            "KillWait=1", "CompleteWait=0", "MinJobAge=300", "JobRequeue=1",
            "JobCompType=jobcomp/filetxt", f"JobCompLoc={here}/log/jobcomp.txt",
        ]  # fmt: skip
        if self.has_accounting:
            lines += [
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=localhost", f"AccountingStoragePort={database}",
                f"AccountingStoragePass={here}/munge/socket", "AccountingStorageTRES=gres/gpu",
            ]  # fmt: skip
        if self.switches:
            lines.append("TopologyPlugin=topology/tree")
            (here / "topology.conf").write_text("\n".join(self.switches) + "\n")
        lines += [
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=16 "
            f"RealMemory=4000 Gres=gpu:h100:8 State=UNKNOWN"
            for node, port in zip(self.nodes, ports, strict=True)
        ]
        names = ",".join(self.nodes)
        lines.append(f"PartitionName=batch Nodes={names} Default=YES MaxTime=INFINITE State=UP")
        (here / "slurm.conf").write_text("\n".join(lines) + "\n")
        (here / "gres.conf").write_text(
            f"NodeName={names} Name=gpu Type=h100 File={here}/dev/nvidia[0-7]\n"
        )

    def _start_accounting(self, port: int) -> None:
        here = self.folder
        data, sock = here / "mariadb", here / "run" / "mariadb.sock"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root",
             "--auth-root-authentication-method=normal", "--skip-test-db"],
            capture_output=True, check=True, timeout=120,
        )  # fmt: skip
        self._start(
            "mariadbd", "--no-defaults", f"--datadir={data}", "--user=root", f"--socket={sock}",
            "--skip-networking", f"--pid-file={here}/run/mariadb.pid",
            "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=900",
        )  # fmt: skip
        client = ("mariadb", "--no-defaults", f"--socket={sock}", "-uroot", "-e")
        self._wait(
            lambda: bool(self.tell(*client, "create database if not exists acct; select 1")),
            "MariaDB answers",
        )
        conf = here / "slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={here}/munge/socket\nDbdHost=localhost\n"
            f"DbdAddr=127.0.0.1\nDbdPort={port}\nCommunicationParameters=NoInAddrAny\n"
            f"SlurmUser=root\nLogFile={here}/log/slurmdbd.log\nPidFile={here}/run/slurmdbd.pid\n"
            f"StorageType=accounting_storage/mysql\nStorageUser=root\nStorageLoc=acct\n"
        )
        conf.chmod(0o600)
        self._start("slurmdbd", "-D", more=[("MYSQL_UNIX_PORT", str(sock))])
        self._wait(
            lambda: "Cluster" in self.tell("sacctmgr", "list", "cluster"), "slurmdbd answers"
        )
        self.do("sacctmgr", "--immediate", "add", "cluster", CLUSTER)
        self.do("sacctmgr", "--immediate", "add", "account", "research")
        self.do("sacctmgr", "--immediate", "add", "user", "root", "account=research")
