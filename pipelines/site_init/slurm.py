"""Asks a live Slurm what `forewarn init` needs to know of it; nothing is changed.

What ingest reads later is in `pipelines.sources.slurm`.
"""

import re
from typing import Final

from features.errors import SourceError
from pipelines.site_init.facts import SlurmFacts
from pipelines.sources.slurm.commands import CommandError, CommandRunner

_TIMEOUT_S: Final = 20.0
_SETTING: Final = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_GPUS: Final = re.compile(r"\bgpu(?::[^:(,]+)?:(\d+)")
_FLAT: Final = ("topology/none", "topology/default", "topology/flat", "(null)", "")


def look_at_slurm(runner: CommandRunner, *, prefix: tuple[str, ...] = ()) -> SlurmFacts:
    """Asks a cluster.

    Args:
        runner: Runs its commands.
        prefix: What stands before each of them.

    Raises:
        SourceError: A command is not there, or the cluster does not answer.
    """

    def said(*command: str) -> str:
        return runner.run(command, timeout=_TIMEOUT_S).decode("utf-8", errors="replace")

    settings = dict(_SETTING.findall(said("scontrol", "show", "config")))
    nodes, partitions = _nodes(said("sinfo", "-h", "-N", "-o", "%N|%R|%G"))
    if not nodes:
        raise SourceError("sinfo names no node: is this the cluster that has the GPUs?")
    return SlurmFacts(
        cluster=settings.get("ClusterName", "slurm"),
        version=said("sinfo", "--version").strip(),
        n_nodes=len(nodes),
        n_gpu_nodes=sum(count > 0 for count in nodes.values()),
        n_gpus=sum(nodes.values()),
        partitions=partitions,
        has_accounting=_has_accounting(runner, settings),
        has_topology=settings.get("TopologyPlugin", "") not in _FLAT,
        prefix=prefix,
    )


def gpus_of(gres: str) -> int:
    """GPUs in a node's generic resources.

    >>> gpus_of("gpu:h100:8(S:0-1),shard:16"), gpus_of("gpu:a:2,gpu:b:2"), gpus_of("(null)")
    (8, 4, 0)
    """
    return sum(int(count) for count in _GPUS.findall(gres))


def _nodes(text: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """GPUs by node, and the partitions; a node of two partitions is listed twice."""
    nodes, partitions = {}, set()
    for line in text.splitlines():
        name, partition, gres = (*line.split("|", 2), "", "")[:3]
        nodes[name.strip()] = gpus_of(gres)
        partitions.add(partition.strip())
    return nodes, tuple(sorted(partitions - {""}))


def _has_accounting(runner: CommandRunner, settings: dict[str, str]) -> bool:
    """Whether slurmdbd answers; that it is set up says nothing of tonight."""
    if "slurmdbd" not in settings.get("AccountingStorageType", ""):
        return False
    try:
        runner.run(("sacctmgr", "-n", "-P", "show", "cluster"), timeout=_TIMEOUT_S)
    except CommandError:
        return False
    return True
