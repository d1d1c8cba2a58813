import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from simulation.fleet.events import NodeEvents
from simulation.fleet.hardware import build_node
from simulation.fleet.kernel_lines import XID_TEXTS, KernelLine, boot_lines, chatter_lines, draw_xid
from simulation.fleet.regime import Regime
from simulation.writers.kernel_text import FORMS, message, write_node_log
from simulation.writers.sacct_text import hostlist


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["gpu007"], "gpu007"),
        (["gpu001", "gpu002"], "gpu[001-002]"),
        (["gpu016", "gpu001", "gpu003", "gpu002"], "gpu[001-003,016]"),
    ],
)
def test_node_names_are_shortened_as_slurm_does(names: list[str], short: str) -> None:
    assert hostlist(names) == short


@pytest.mark.parametrize(
    ("line", "names_process", "text"),
    [
        (
            KernelLine(0, 0, 79, "gone"),
            True,
            "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, gone",
        ),
        (
            KernelLine(0, 0, 31, "fault", (17, "python3")),
            True,
            "NVRM: Xid (PCI:0000:1b:00): 31, pid=17, name=python3, fault",
        ),
        (
            KernelLine(0, 0, 31, "fault", (17, "python3")),
            False,
            "NVRM: Xid (PCI:0000:1b:00): 31, fault",
        ),
        (KernelLine(0, None, None, "hello"), True, "hello"),
    ],
)
def test_xids_are_worded_as_the_drivers_release_words_them(
    line: KernelLine, names_process: bool, text: str
) -> None:
    assert message(line, bus="1b", names_process=names_process) == text


def test_every_log_form_tells_the_whole_time() -> None:
    at = datetime(2026, 1, 5, 4, 7, 9, 25, tzinfo=UTC)
    shown = {name: form(at, "gpu001", 12.5, "hello") for name, form in FORMS.items()}
    entry = json.loads(shown.pop("journald"))
    assert shown == {
        "iso_uptime": "2026-01-05T04:07:09.000025+00:00 gpu001 kernel: [    12.500000] hello",
        "dmesg_ctime": "[Mon Jan  5 04:07:09 2026] hello",
        "dmesg_iso": "kern  :info  : 2026-01-05T04:07:09,000025+00:00 hello",
        "iso": "2026-01-05T04:07:09.000025+00:00 gpu001 kernel: hello",
        "rfc3164": "Jan  5 04:07:09 gpu001 kernel: [    12.500000] hello",
    }
    assert entry["__REALTIME_TIMESTAMP"] == str(int(at.timestamp()) * 1_000_000 + 25)
    assert (entry["_HOSTNAME"], entry["MESSAGE"]) == ("gpu001", "hello")


@pytest.mark.parametrize(("days", "start"), [(300.0, "Jan  1 00:00:00"), (400.0, "2026-01-01T")])
def test_a_record_of_over_a_year_is_not_told_without_years(
    demo: Regime, tmp_path: Path, days: float, start: str
) -> None:
    logs = demo.logs.model_copy(update={"forms": ("rfc3164",)})
    regime = demo.model_copy(update={"days": days, "logs": logs})
    events = NodeEvents((KernelLine(0, None, None, "hello"),), (), ())
    node = build_node(regime, seed=1, index=0)
    (path,) = write_node_log(node, events, tmp_path, regime=regime, n_bad=0)
    assert path.read_text(encoding="utf-8").startswith(start)


def test_every_fault_class_has_words_for_its_xids() -> None:
    assert {48, 54, 62, 63, 64, 74, 79, 92, 94, 95, 109, 119, 120, 154} <= set(XID_TEXTS)


def test_a_gsp_timeout_names_its_own_gpu() -> None:
    rng = np.random.default_rng(1)
    for slot in range(8):
        assert f"from GPU{slot} GSP!" in draw_xid(rng, 119, at_s=0.0, slot=slot).text


def test_a_healthy_kernel_loads_no_driver_and_tells_the_time_it_is() -> None:
    rng = np.random.default_rng(1)
    said = [chatter_lines(rng, 10.0 * i, clock_s=1_767_225_600 + 10.0 * i) for i in range(300)]
    for i, lines in enumerate(said):
        texts = [line.text for line in lines]
        assert not any("UVM" in text for text in texts)
        assert (texts[-1] == "nfs: server nas01 OK") == (len(lines) == 2)
        if len(lines) == 2:
            assert texts[0] == "nfs: server nas01 not responding, still trying"
        if texts[0].startswith("audit"):
            assert f"audit({1_767_225_600 + 10 * i}.000:" in texts[0]
    assert any(len(lines) == 2 for lines in said)
    assert any("UVM" in line.text for line in boot_lines(0.0, driver="550"))


def test_each_node_has_been_up_for_a_time_of_its_own(demo: Regime, tmp_path: Path) -> None:
    logs = demo.logs.model_copy(update={"forms": ("journald",)})
    regime = demo.model_copy(update={"logs": logs})
    events = NodeEvents((KernelLine(5, None, None, "hello"),), (), ())
    up_s = []
    for index in range(6):
        node = build_node(regime, seed=1, index=index)
        (path,) = write_node_log(node, events, tmp_path, regime=regime, n_bad=0)
        entry = json.loads(path.read_text(encoding="utf-8"))
        up_s.append(int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6 - 5)
        assert up_s[-1] == node.up_before_s
        newest = max(gpu.batch.installed for gpu in node.gpus)
        assert 3600 <= up_s[-1] <= (regime.start - newest).total_seconds()
    assert len(set(up_s)) == 6
