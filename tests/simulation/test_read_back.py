"""What a fleet's files say when the real readers read them."""

import json
from datetime import timedelta
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from pipelines.sources.result import SourceResult
from pipelines.sources.site.listing import load_inputs
from pipelines.sources.site.readers import read_inputs
from simulation.fleet.generate import Fleet, simulate_fleet
from simulation.fleet.observe import observe_fleet
from simulation.fleet.regime import Regime
from simulation.fleet.regime_site import LogForm, Mig
from simulation.writers.forms import Form
from simulation.writers.kernel_text import NAMES_HOST
from simulation.writers.raw import write_fleet


def _read(fleet: Fleet, folder: Path, *, telemetry: Form = "parquet") -> SourceResult:
    write_fleet(fleet, folder / "raw", folder / "truth", telemetry=telemetry)
    end = fleet.moment(fleet.end_s) + timedelta(days=1)
    return read_inputs(load_inputs(folder / "raw" / "inputs.yaml"), ingested_at=end)


def _refused(read: SourceResult, folder: Path) -> dict[str, int]:
    raw = (folder / "raw").resolve()
    return {
        Path(origin).resolve().relative_to(raw).as_posix(): count
        for origin, count in read.reads.filter(pl.col("n_quarantined") > 0)
        .select("origin", "n_quarantined")
        .iter_rows()
    }


def _stated(folder: Path) -> dict[str, int]:
    text = (folder / "raw" / "provenance.json").read_text(encoding="utf-8")
    stated: dict[str, int] = json.loads(text)["bad_lines"]
    return stated


def _xids(fleet: Fleet) -> pl.DataFrame:
    rows = [
        (seen.truth.node.name, fleet.moment(int(line.at_s)), line.code)
        for seen in observe_fleet(fleet)
        for line in seen.events.lines
        if line.code is not None
    ]
    return pl.DataFrame(rows, schema=["node", "second", "code"], orient="row").sort(pl.all())


@pytest.mark.parametrize("form", get_args(LogForm))
@pytest.mark.parametrize("is_collected", [False, True])
def test_every_form_of_log_gives_the_fleets_xids(
    demo: Regime,
    tmp_path: Path,
    form: LogForm,
    is_collected: bool,
) -> None:
    if is_collected and form not in NAMES_HOST:
        pytest.skip("a log host collects only lines that name the host")
    logs = demo.logs.model_copy(
        update={"forms": (form,), "collected_above_nodes": 1 if is_collected else 9}
    )
    fleet = simulate_fleet(demo.model_copy(update={"logs": logs}), seed=7, nodes=3, days=3)
    read = _read(fleet, tmp_path)
    events = read.tables["raw/kernel_log"].filter(pl.col("kind") == "xid")
    found = events.select(
        "node", pl.col("ts").dt.truncate("1s").alias("second"), pl.col("code")
    ).sort(pl.all())
    expected = _xids(fleet).cast(dict(found.schema))
    assert found.height > 0
    assert found.equals(expected)
    assert _refused(read, tmp_path) == _stated(tmp_path)


@pytest.mark.parametrize("telemetry", get_args(Form))
def test_every_sample_is_read_back(demo: Regime, tmp_path: Path, telemetry: Form) -> None:
    hardware = demo.hardware.model_copy(update={"mig": Mig(node_share=0.5, instances=2)})
    fleet = simulate_fleet(
        demo.model_copy(update={"hardware": hardware}), seed=7, nodes=2, days=0.1
    )
    read = _read(fleet, tmp_path, telemetry=telemetry)
    expected = {
        (str(uuid), fleet.moment(int(at_s)), None if temp > 1000 else int(temp))
        for seen in observe_fleet(fleet)
        for uuid, at_s, temp in zip(
            seen.telemetry.gpu_uuid,
            seen.telemetry.at_s,
            seen.telemetry.fields["DCGM_FI_DEV_GPU_TEMP"],
            strict=True,
        )
    }
    rows = read.tables["raw/gpu_telemetry"]
    # nvidia-smi's clock is read GPU by GPU, milliseconds after each other.
    seconds = rows.with_columns(pl.col("ts").dt.truncate("1s"))
    found = set(seconds.select("gpu_uuid", "ts", "gpu_temp_c").iter_rows())
    assert {(u, t, None if v is None else int(v)) for u, t, v in found} == expected
    assert _refused(read, tmp_path) == _stated(tmp_path)
