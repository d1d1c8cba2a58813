"""`forewarn localize`: reads a folder of dumps and says in words whom to evict, and why.

Grouping and verdict are in `models.localization`, file forms in `pipelines.sources.stacks`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from features.errors import SettingsError, SourceError
from models.localization.eviction import Blamed
from models.localization.grouping import TextGroup
from models.localization.layout import MEGATRON_ORDER, Layout, ranges
from models.localization.verdict import Evidence, Verdict, judge_hang, judge_slow
from pipelines.sources.files import decode, read_bytes
from pipelines.sources.stacks.folder import Dumps, read_dumps, rounds_in
from remediation.plan import plain

_SHOWN_GROUPS: Final = 8
_SHOWN_FRAMES: Final = 6
_SHOWN_REFUSED: Final = 10
_WIDEST: Final = 60

KIND_WORDS: Final = {
    "machine": "by itself",
    "tp": "a tensor parallel group",
    "pp": "a pipeline",
    "dp": "a data parallel group",
    "tp-pp": "a replica of the model",
}
BASIS_WORDS: Final = {
    "collectives": "flight recorders: others wait for them, and they wait for nobody",
    "stacks": "their stacks differ from what most ranks do, or their machine gave no dump",
    "helper_threads": "training threads are all alike; their other threads differ",
    "rounds": "they stood out most often over the rounds",
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How the job lies, as far as the caller says.

    Attributes:
        tp: Tensor parallel size.
        pp: Pipeline parallel size.
        dp: Data parallel size; None: from the highest rank found.
        per_machine: Ranks on a machine.
        order: Axes from the fastest to the slowest.
        hosts: File with a host name per machine and line; None: machines are numbers.
    """

    tp: int = 1
    pp: int = 1
    dp: int | None = None
    per_machine: int = 8
    order: str = MEGATRON_ORDER
    hosts: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Localized:
    """What a folder says.

    Attributes:
        verdict: Whom to evict.
        layout: Where the ranks are.
        is_dp_found: Whether the data parallel size was concluded from the files.
        rounds: What each round, or the one folder, gave.
        hosts: Names of the machines; empty: numbers.
    """

    verdict: Verdict
    layout: Layout
    is_dp_found: bool
    rounds: tuple[Dumps, ...]
    hosts: tuple[str, ...] = ()

    def names(self, machines: Sequence[int]) -> str:
        """Machines as people call them."""
        if not self.hosts:
            return ranges(machines)
        return ", ".join(plain(self.hosts[machine]) for machine in machines)


def localize(folder: Path, asked: Asked) -> Localized:
    """Reads a folder and judges.

    Args:
        folder: One file per rank; or, for a slow job, a subfolder of such files per round.
        asked: How the job lies.

    Raises:
        SourceError: The folder cannot be read, or holds no usable dump.
        SettingsError: Sizes do not fit the ranks found.
    """
    rounds = rounds_in(folder)
    known = None if asked.dp is None else _layout(asked, asked.dp).n_ranks
    read = tuple(read_dumps(path, n_ranks=known) for path in rounds or [folder])
    if not any(dumps.n_parsed for dumps in read):
        first = read[0].refused[0]
        raise SourceError(
            f"{folder}: none of {sum(d.n_files for d in read)} files is a usable dump; "
            f"{first.file}: {first.why}"
        )
    _layout(asked, 1)  # refuses wrong sizes before they are divided by
    layout = _layout(asked, asked.dp or _dp_of(read, asked))
    evidence = [evidence_of(dumps) for dumps in read]
    verdict = judge_slow(evidence, layout) if rounds else judge_hang(evidence[0], layout)
    return Localized(
        verdict=verdict,
        layout=layout,
        is_dp_found=asked.dp is None,
        rounds=read,
        hosts=_hosts(asked.hosts, layout),
    )


def evidence_of(dumps: Dumps) -> Evidence:
    """What was read, as the verdict takes it; files that were refused make their rank unknown.

    Args:
        dumps: What was read.
    """
    unreadable = frozenset(r.rank for r in dumps.refused if r.rank is not None)
    return Evidence(stacks=dumps.stacks, records=dumps.records, unreadable=unreadable)


def render(found: Localized) -> str:
    """The verdict for someone woken at night: what to do, why, and what it rests on.

    Args:
        found: What the folder says.
    """
    sections = (_head(found), _groups(found), _votes(found), _files(found))
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines)


def as_json(found: Localized) -> str:
    """The same for programs.

    Args:
        found: What the folder says.
    """
    verdict, layout = found.verdict, found.layout
    eviction, stall, vote = verdict.eviction, verdict.stall, verdict.vote
    document: dict[str, Any] = {
        "evict": list(eviction.machines) if eviction and verdict.is_clear else [],
        "suspect_machines": list(eviction.machines) if eviction else [],
        "hosts": [found.hosts[m] for m in eviction.machines] if eviction and found.hosts else [],
        "is_clear": verdict.is_clear,
        "basis": verdict.basis,
        "agrees": verdict.agrees,
        "blamed": [_blamed_json(one) for one in eviction.blamed] if eviction else [],
        "stall": stall and {"kind": stall.kind, "ranks": stall.ranks, "in": stall.operation},
        "flags": vote and [group and sorted(group.machines) for group in vote.flagged],
        "groups": [
            {"role": g.role, "ranks": list(g.ranks), "text": list(g.text)}
            for g in (verdict.grouping.groups if verdict.grouping else ())
        ],
        "silent_machines": list(verdict.grouping.silent_machines) if verdict.grouping else [],
        "unknown_ranks": list(verdict.grouping.unknown) if verdict.grouping else [],
        "layout": {
            "tp": layout.tp, "pp": layout.pp, "dp": layout.dp,
            "per_machine": layout.per_machine, "order": layout.order,
        },
        "files": [
            {
                "read": dumps.n_files, "parsed": dumps.n_parsed,
                "refused": [{"file": r.file, "why": r.why} for r in dumps.refused],
            }
            for dumps in found.rounds
        ],
    }  # fmt: skip
    return json.dumps(document, indent=2)


def _layout(asked: Asked, dp: int) -> Layout:
    return Layout(tp=asked.tp, pp=asked.pp, dp=dp, per_machine=asked.per_machine, order=asked.order)


def _dp_of(read: Sequence[Dumps], asked: Asked) -> int:
    """From the ranks that gave dumps; from those refused too where only these fit the sizes."""
    parsed = {rank for dumps in read for rank in (*dumps.stacks, *dumps.records)}
    named = parsed | {r.rank for dumps in read for r in dumps.refused if r.rank is not None}
    model = asked.tp * asked.pp
    for ranks in (parsed, named):
        n_ranks = max(ranks) + 1
        if n_ranks % model == 0:
            return n_ranks // model
    raise SettingsError(
        f"the highest rank found is {max(parsed)}, and {max(parsed) + 1} ranks are no multiple of "
        f"tp x pp = {asked.tp} x {asked.pp}. Give --dp, or the sizes of the job"
    )


def _hosts(path: Path | None, layout: Layout) -> tuple[str, ...]:
    if path is None:
        return ()
    names = tuple(line.strip() for line in decode(read_bytes(path)).splitlines() if line.strip())
    if len(names) != layout.n_machines:
        raise SettingsError(
            f"{path}: expected {layout.n_machines} host names, one a line in the order of their "
            f"ranks, got {len(names)}"
        )
    return names


def _head(found: Localized) -> Iterator[str]:
    verdict, layout = found.verdict, found.layout
    eviction = verdict.eviction
    if eviction is None:
        yield "NOBODY STANDS OUT: evict nothing on this evidence."
        yield from _nobody(verdict)
    else:
        do = "EVICT" if verdict.is_clear else "NOT CLEAR, do not evict on this alone:"
        yield f"{do} {_count(len(eviction.machines), 'machine')}: {found.names(eviction.machines)}"
        for one in eviction.blamed:
            machines = sorted(one.group.machines)
            names = found.names(machines)
            ranks = ranges(one.ranks)
            yield f"  {names}, {KIND_WORDS[one.group.kind]}: ranks {_cut(ranks)} stand out"
        yield f"Why: {BASIS_WORDS[verdict.basis]}."
        yield from _doubts(found)
    shown = f"tp {layout.tp}, pp {layout.pp}, dp {layout.dp}"
    guess = " (dp from the highest rank found)" if found.is_dp_found else ""
    yield (
        f"Layout: {shown}{guess}, {layout.per_machine} ranks a machine, order {layout.order}: "
        f"{_count(layout.n_ranks, 'rank')} on {_count(layout.n_machines, 'machine')}."
    )


def _nobody(verdict: Verdict) -> Iterator[str]:
    if verdict.stall is not None and verdict.stall.kind == "circle":
        yield (
            f"Ranks {_cut(ranges(verdict.stall.ranks))} wait for each other in a circle: the "
            "order of collectives in the code, not a machine."
        )
    elif verdict.vote is None:
        yield (
            "If the job hangs, dump NCCL flight recorders (JSON): they say who is waited for. If "
            "it is slow, dump 5 rounds 10 s apart into subfolders."
        )


def _doubts(found: Localized) -> Iterator[str]:
    verdict = found.verdict
    stall, grouping, eviction = verdict.stall, verdict.grouping, verdict.eviction
    if stall is not None and stall.kind in ("absent", "inside"):
        where = f" in {plain(stall.operation)}" if stall.operation else ""
        yield f"  {_count(stall.waiting, 'rank')} wait{where}."
    if stall is not None and stall.kind == "inside":
        yield "  All came and it does not end: look at the links of these machines first."
    if verdict.agrees is False:
        yield "  Stacks point elsewhere: look at both before you act."
    if eviction is not None and eviction.is_too_wide:
        yield "  That is more than a quarter of the machines: no longer an exception."
    if grouping is not None and not grouping.is_clear and verdict.basis != "collectives":
        yield "  No text is shared by more than half of the ranks: dump all ranks at one moment."
    if verdict.vote is not None and not verdict.vote.is_sure:
        yield "  Flagged in half of the rounds or fewer: take five more rounds."


def _groups(found: Localized) -> Iterator[str]:
    grouping = found.verdict.grouping
    if grouping is None:
        return
    yield "What ranks do" + (" (last round)" if len(found.rounds) > 1 else "")
    order = {"dominant": 0, "outlier": 1, "pattern": 2}
    groups = sorted(grouping.groups, key=lambda group: order[group.role])
    for group in groups[:_SHOWN_GROUPS]:
        yield from _group(group)
    if len(groups) > _SHOWN_GROUPS:
        yield f"  and {len(groups) - _SHOWN_GROUPS} more texts (--json shows all)"
    if grouping.silent_machines:
        yield f"  no dump at all from machines {_cut(found.names(grouping.silent_machines))}"
    if grouping.unknown:
        yield f"  unknown, no usable dump: ranks {_cut(ranges(grouping.unknown))}"


def _group(group: TextGroup) -> Iterator[str]:
    words = {"dominant": "most", "outlier": "stand out", "pattern": "usual for their stage"}
    said = words[group.role]
    yield f"  {_count(len(group.ranks), 'rank')}, {said}: {_cut(ranges(group.ranks))}"
    for line in group.text[:_SHOWN_FRAMES]:
        yield f"      {plain(line)}"
    if len(group.text) > _SHOWN_FRAMES:
        yield f"      ... {len(group.text) - _SHOWN_FRAMES} more calls"


def _votes(found: Localized) -> Iterator[str]:
    if found.verdict.vote is None:
        return
    flagged = found.verdict.vote.flagged
    n_flags = found.verdict.vote.n_flags
    yield f"Rounds: flagged most in {n_flags} of {len(flagged)}"
    for number, group in enumerate(flagged, start=1):
        said = "nobody" if group is None else found.names(sorted(group.machines))
        yield f"  {number}: {_cut(said)}"


def _files(found: Localized) -> Iterator[str]:
    n_files = sum(dumps.n_files for dumps in found.rounds)
    stacks = sum(len(dumps.stacks) for dumps in found.rounds)
    records = sum(len(dumps.records) for dumps in found.rounds)
    refused = [one for dumps in found.rounds for one in dumps.refused]
    yield (
        f"Files: {n_files:,} read = {stacks:,} stack dumps + {records:,} flight recorders + "
        f"{len(refused):,} refused"
    )
    for one in refused[:_SHOWN_REFUSED]:
        yield f"  {plain(one.file)}: {plain(one.why)}"
    if len(refused) > _SHOWN_REFUSED:
        yield f"  and {len(refused) - _SHOWN_REFUSED} more (--json shows all)"


def _blamed_json(one: Blamed) -> dict[str, Any]:
    return {
        "kind": one.group.kind,
        "machines": sorted(one.group.machines),
        "ranks": list(one.ranks),
    }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
