"""What must be in the ledger, and told to a person, after each run of the hook: by raw entries.

What an order may be is in `machine_oracle`.
"""

from datetime import timedelta

from remediation.hook import HookRun
from remediation.ledger.entries import Entry
from tests.remediation.machine_oracle import Oracle, held_in, is_status
from tests.remediation.machine_world import START, RunNote

CAPS = {"cap_fleet", "cap_partition", "cap_rack", "cap_job", "cap_rate", "never_all"}
N_VERDICTS = 24


class Watcher(Oracle):
    """The oracle, with the books."""

    told: tuple[str, ...] = ()

    def after_run(self, made: HookRun, note: RunNote) -> None:
        if made.is_dry_run:
            return
        self.told = made.messages
        self._check_caps_told(made)
        self._check_releases(note)
        if note.is_disturbed:
            return
        self._check_told_unclear(made)
        self._check_known_holds(made)
        self._check_stuck(made, note)
        self._check_bursts_told(made, note)
        if note.tick.expires_at > made.now and note.state is not None:
            boots = {node.name: node.boot_id for node in note.state.nodes}
            seen = self.first_seen.setdefault(note.tick.as_of, {})
            self.first_seen[note.tick.as_of] = boots | seen

    def at_end(self) -> None:
        """After a walk: the chain holds, and has everything."""
        ledger = self.machine.ledger
        self.check("20 chain", ledger.verify().is_whole)
        intents = {one.decision_id for one in self.machine.book(("intent",))}
        written: dict[str | None, int] = {}
        for one in self.machine.book(("decision",)):
            found = len(one.body["verdicts"])
            written[one.decision_id] = max(found, written.get(one.decision_id, 0))
        self._check_results()
        for one in self.orders:
            if one.kind == "hold":
                whole = one.decision_id in intents and written.get(one.decision_id) == N_VERDICTS
                self.check(
                    "20 audit", whole, f"{one.node}: {written.get(one.decision_id)} verdicts"
                )

    def _check_results(self) -> None:
        """No result denies an effect, and none invents one."""
        answers = self.answers()
        said: dict[str | None, set[str]] = {}
        for one in self._intents():
            result = answers.get(("result", one.key))
            if "step" not in one.body and result is not None:
                said.setdefault(one.decision_id, set()).add(str(result.body["status"]))
        real = {one.decision_id for one in self.orders if one.kind == "hold" and one.had_effect}
        for decision_id, found in said.items():
            is_true = "done" not in found if decision_id not in real else found != {"not_done"}
            self.check(
                "13 results", is_true, f"{decision_id}: {found}, in fact {decision_id in real}"
            )

    def _check_told_unclear(self, made: HookRun) -> None:
        """Each intent is closed, or a person is told of it in this run."""
        told, answers = "\n".join(made.messages), self.answers()
        for one in self._intents():
            result = answers.get(("result", one.key))
            is_open = result is None or is_status(result, "ambiguous")
            if is_open and ("acknowledged", f"escalation:{one.key}") not in answers:
                self.check("13 forgotten", f"{one.node}: " in told, f"{one.key} is open, untold")

    def _check_known_holds(self, made: HookRun) -> None:
        """Each node that carries our reason is in the books, or told."""
        answers, told = self.answers(), "\n".join(made.messages)
        known = {
            one.node
            for one in self._intents()
            if "step" not in one.body
            and (result := answers.get(("result", one.key))) is not None
            and is_status(result, "done")
            and ("released", one.key) not in answers
        }
        for name in held_in(self.machine.cluster.nodes.values()):
            self.check("13 forgotten", name in known or f"{name}: " in told, f"{name} is ours")

    def _check_releases(self, note: RunNote) -> None:
        """What is noted as released is; and what is back in service is noted."""
        nodes, answers = self.machine.cluster.nodes, self.answers()
        intents = {one.key: one for one in self._intents()}
        for one in self.machine.ledger.entries()[note.n_ledger :]:
            if one.kind == "released" and one.actuator == self.machine.actuator.name:
                node = nodes.get(str(one.node))
                taken = intents[str(one.refers_to)]
                still = node is not None and f"id={taken.decision_id}" in (node.reason or "")
                self.check("10 release", not still, f"{one.node} is ours, but noted as released")
        if note.is_disturbed or note.state is None:
            return
        for key, one in intents.items():
            node = nodes.get(str(one.node))
            result = answers.get(("result", key))
            if "step" in one.body or result is None or not is_status(result, "done"):
                continue
            is_seen = node is not None and node == note.state.by_name.get(node.name)
            if is_seen and node.state == "up" and node.name != self.machine.hung:
                is_clear = ("released", key) in answers or f"{node.name}: " in "".join(self.told)
                self.check("10 no residue", is_clear, f"{node.name} is up, but noted as held")

    def _check_stuck(self, made: HookRun, note: RunNote) -> None:
        if self.machine.stopped or note.state is None or self.is_clock_behind:
            return
        answers, told = self.answers(), "\n".join(made.messages)
        bound = timedelta(hours=self.machine.site.drains.longest_hours)
        ours = held_in(self.machine.cluster.nodes.values())
        for one in self._intents():
            node = note.state.by_name.get(str(one.node))
            result = answers.get(("result", one.key))
            if "step" in one.body or result is None or not is_status(result, "done"):
                continue
            if ("released", one.key) in answers or node is None or node.state != "drain":
                continue
            is_late = made.now - one.recorded_at > bound and self.machine.cluster.jobs_on(node.name)
            if is_late and node.name in ours:
                ends_notice = one.body["action"] == "checkpoint_then_drain"
                said = f"{node.name}: " in told or ends_notice
                self.check("15 stuck", said, f"{node.name} since {one.recorded_at}, untold")

    @property
    def is_clock_behind(self) -> bool:
        """Whether the clock went back so far that the hook stops for it."""
        last = max((one.recorded_at for one in self.machine.ledger.entries()), default=START)
        return last >= self.machine.clock() + timedelta(minutes=5)

    def _check_caps_told(self, made: HookRun) -> None:
        told = "\n".join(made.messages)
        for one in made.judged:
            no = {v.guard for v in one.verdicts if v.ceiling in ("none", "watch")}
            if no and no <= CAPS:
                self.check(
                    "4 trip told", all(f"{guard} held back" in told for guard in no), str(no)
                )

    def _check_bursts_told(self, made: HookRun, note: RunNote) -> None:
        if note.state is None or made.now >= note.tick.expires_at:
            return
        written = {
            one.body["scope"]
            for one in self.machine.ledger.entries()[note.n_ledger :]
            if one.kind == "escalation" and one.body["why"] == "burst"
        }
        for scope, nodes in self.new_bursts(note, note.state).items():
            self.check("8 burst", scope in written, f"{scope} by {sorted(nodes)} is not told")

    def _intents(self) -> tuple[Entry, ...]:
        return self.machine.book(("intent",))
