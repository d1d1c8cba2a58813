"""Stack dumps of a hung job with known faults, as py-spy would write them, noise included.

Bytes by file name; who writes them to disk is the caller.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from models.localization.layout import Layout

FaultShape = Literal["machine", "some_ranks", "pipeline", "hidden"]

SHAPES: Final[tuple[FaultShape, ...]] = ("machine", "some_ranks", "pipeline", "hidden")
"""Who stands out: all ranks of the machine; some of them; these and the other machines of their
pipeline, which wait in other places than the rest; only these others."""

Stack = tuple[tuple[str, str, int], ...]
"""Calls, the outermost first: function, file, line."""

_OUTER: Final = (
    ("_run_code", "<frozen runpy>", 88),
    ("main", "pretrain_gpt.py", 286),
    ("pretrain", "megatron/training/training.py", 512),
    ("train", "megatron/training/training.py", 1660),
    ("train_step", "megatron/training/training.py", 1133),
)
_USUAL: Final = (
    ("finish_grad_sync", "megatron/core/distributed/param_and_grad_buffer.py", 241),
    ("all_reduce", "torch/distributed/distributed_c10d.py", 2501),
    ("wait", "torch/distributed/c10d_logger.py", 79),
)
_BY_STAGE: Final = {
    "first": (("embedding_grad_sync", "megatron/core/distributed/finalize_grads.py", 66),),
    "last": (("loss_reduce", "megatron/core/tensor_parallel/cross_entropy.py", 121),),
}
_FAULTY: Final = (
    ("forward", "megatron/core/transformer/attention.py", 318),
    ("launch_kernel", "torch/cuda/graphs.py", 87),
)
_NEIGHBOUR: Final = (
    ("backward_step", "megatron/core/pipeline_parallel/schedules.py", 377),
    ("recv_backward", "megatron/core/pipeline_parallel/p2p_communication.py", 401),
    ("wait", "torch/distributed/c10d_logger.py", 79),
)
_HELPERS: Final = ("QueueFeederThread", "pin_memory", "Thread-{n} (_run)", "tensorboard-{n}")


@dataclass(frozen=True)
class Hang:
    """A hang with what caused it.

    Attributes:
        files: File name -> content, one file per rank.
        faulty: Faulty machines, rising.
    """

    files: Mapping[str, bytes]
    faulty: tuple[int, ...]


def hang_dumps(
    layout: Layout, *, n_faults: int, seed: int, shape: FaultShape | None = None, cut: float = 0.0
) -> Hang:
    """Dumps of a job in which machines became faulty.

    Args:
        layout: Where the ranks are.
        n_faults: Faulty machines.
        seed: Decides everything.
        shape: How each fault shows; None: drawn for each.
        cut: Share of files that are cut off somewhere.

    Returns:
        Half of the files are JSON, half text. Addresses, line numbers within a function, process
        and thread numbers, install folders and helper threads differ between healthy ranks.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(n_faults,)))
    drawn = rng.choice(layout.n_machines, size=n_faults, replace=False)
    faulty = tuple(sorted(drawn.tolist()))
    shown: dict[int, Stack] = {}
    for machine in faulty:
        shown |= _effects(layout, machine, shape or SHAPES[int(rng.integers(len(SHAPES)))], rng)
    has_stages = bool(rng.integers(2))
    files: dict[str, bytes] = {}
    for rank in range(layout.n_ranks):
        inner = shown.get(rank, _usual(layout, rank, has_stages=has_stages))
        if rng.integers(2):
            files[f"rank{rank}.json"] = _as_json((*_OUTER, *inner), rng)
        else:
            files[f"stack_rank_{rank}.txt"] = _as_text((*_OUTER, *inner), rng)
    for name in [name for name in files if rng.uniform() < cut]:
        files[name] = files[name][: int(rng.integers(len(files[name])))]
    return Hang(files, faulty)


def _effects(
    layout: Layout, machine: int, shape: FaultShape, rng: np.random.Generator
) -> dict[int, Stack]:
    own = list(layout.ranks_of(machine))
    if shape == "some_ranks":
        return dict.fromkeys(own[: int(rng.integers(1, len(own)))], _FAULTY)
    shown: dict[int, Stack] = {} if shape == "hidden" else dict.fromkeys(own, _FAULTY)
    if shape in ("pipeline", "hidden"):
        replica = layout.place(own[0])[2]
        for rank in range(layout.n_ranks):
            if layout.place(rank)[2] == replica and layout.machine(rank) != machine:
                shown[rank] = _NEIGHBOUR
    return shown


def _usual(layout: Layout, rank: int, *, has_stages: bool) -> Stack:
    """Healthy ranks wait for gradients; first and last stages may have a place of their own."""
    stage = layout.place(rank)[1]
    if has_stages and layout.pp > 1 and stage in (0, layout.pp - 1):
        return (*_BY_STAGE["last" if stage else "first"], *_USUAL[1:])
    return _USUAL


def _frames(stack: Stack, rng: np.random.Generator) -> list[dict[str, Any]]:
    """The innermost call first, as py-spy has it."""
    install = f"/opt/env{int(rng.integers(1, 9))}/lib/python3.1{int(rng.integers(0, 3))}/"
    frames = []
    for name, file, line in reversed(stack):
        address = f"0x{int(rng.integers(1 << 40)):x}"
        # What a decorator or a compiled graph adds to names differs from process to process.
        shown = f"{name} at {address}" if name == "launch_kernel" else name
        frames.append(
            {
                "name": shown,
                "filename": install + file,
                "module": None,
                "short_filename": file,
                "line": line + int(rng.integers(5)),
                "locals": None,
            }
        )
    return frames


def _threads(stack: Stack, rng: np.random.Generator) -> list[dict[str, Any]]:
    pid = int(rng.integers(1000, 4_000_000))
    shared = {"pid": pid, "active": False, "owns_gil": False, "process_info": None}
    threads = [{**shared, "thread_name": "MainThread", "frames": _frames(stack, rng)}]
    for helper in rng.permutation(_HELPERS)[: int(rng.integers(len(_HELPERS)))].tolist():
        call = (("wait", "threading.py", 320), ("run", "threading.py", 982))
        name = helper.format(n=int(rng.integers(1, 99)))
        threads.append({**shared, "thread_name": name, "frames": _frames(call, rng)})
    for thread in threads:
        thread["thread_id"] = int(rng.integers(1 << 46))
        thread["os_thread_id"] = int(rng.integers(1000, 4_000_000))
    return threads


def _as_json(stack: Stack, rng: np.random.Generator) -> bytes:
    return json.dumps(_threads(stack, rng), indent=2).encode()


def _as_text(stack: Stack, rng: np.random.Generator) -> bytes:
    threads = _threads(stack, rng)
    lines = [
        f"Process {threads[0]['pid']}: /usr/bin/python3 -u pretrain_gpt.py --rank",
        f"Python v3.1{int(rng.integers(0, 3))}.4 (/usr/bin/python3)",
        "",
    ]
    for thread in threads:
        lines.append(f'Thread {thread["os_thread_id"]} (idle): "{thread["thread_name"]}"')
        lines += [f"    {f['name']} ({f['short_filename']}:{f['line']})" for f in thread["frames"]]
    return "\n".join(lines).encode() + b"\n"
