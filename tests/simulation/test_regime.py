from pathlib import Path

import pytest
import yaml

from features.errors import SettingsError
from simulation.fleet.regime import Regime, build_regime, read_regime_document
from simulation.regimes.load import load_regime, regime_names

PUBLISHED = {  # fault type -> per GPU-year, share without precursor
    "hbm_uncorrectable": (0.03, 0.50),
    "row_remap_failure": (0.01, 0.45),
    "off_bus": (0.02, 0.70),
    "gsp": (0.01, 0.95),
    "nvlink": (0.01, 0.35),
    "thermal": (0.008, 0.20),
    "power": (0.003, 0.70),
    "other_gpu": (0.05, 0.80),
    "nic_fabric": (0.02, 0.60),
    "sdc": (0.002, 1.0),
}


MEMORY = ("hbm_uncorrectable", "row_remap_failure")


def _table(regime: Regime) -> dict[str, tuple[float, float]]:
    return {
        fault.fault_type: (
            fault.per_gpu_year,
            fault.precursor.share_without if fault.precursor else 1.0,
        )
        for fault in regime.faults
    }


def test_demo_regime_holds_the_published_fault_table(demo: Regime) -> None:
    table = _table(demo)
    assert table == PUBLISHED
    assert sum(rate for rate, _ in table.values()) == pytest.approx(0.163)


def _parsed(text: str) -> Regime:
    return build_regime(read_regime_document(text, origin="mine.yaml"), origin="mine.yaml")


def _document(demo: Regime) -> dict[str, object]:
    return demo.model_dump(mode="json")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"hazard_multiplyer": 3}, "hazard_multiplyer"),
        ({"start": "2026-01-01T00:00:00"}, "offset"),
        ({"gpus_per_node": 4}, "slot_factors"),
        ({"nodes": 0}, "nodes"),
        ({"days": float("inf")}, "days"),
        ({"hazard_multiplier": float("inf")}, "hazard_multiplier"),
        ({"hazard_multiplier": 1e12}, "hazard_multiplier"),
        ({"start": "9999-12-31T00:00:00Z"}, "2200"),
        ({"start": "0001-01-01T00:00:00+05:00"}, "1971"),
        ({"name": "evil\x1b[31m"}, "name"),
        ({"name": "two\nlines"}, "name"),
    ],
)
def test_a_mistake_in_a_regime_is_one_error_that_names_it(
    demo: Regime, change: dict[str, object], word: str
) -> None:
    text = yaml.safe_dump(_document(demo) | change)
    with pytest.raises(SettingsError, match=word):
        _parsed(text)


def test_an_unknown_fault_type_is_refused(demo: Regime) -> None:
    document = _document(demo)
    document["faults"][0]["fault_type"] = "gremlins"  # type: ignore[index]
    with pytest.raises(SettingsError, match="gremlins"):
        _parsed(yaml.safe_dump(document))


def test_batch_shares_must_add_up(demo: Regime) -> None:
    document = _document(demo)
    document["batches"] = document["batches"][:1]  # type: ignore[index]
    with pytest.raises(SettingsError, match="add up to 1"):
        _parsed(yaml.safe_dump(document))


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("climate", "wander_c", -1.0),
        ("disturbances", "chatter_per_day", -1.0),
        ("disturbances", "driver_after", "1\nNVRM: Xid"),
        ("disturbances", "driver_work_min", float("nan")),
        ("disturbances", "reboot_min", -3.0),
        ("frailty", "node_shape", 1e-9),
        ("frailty", "slot_factors", [0.0] * 8),
        ("hardware", "frame_buffer_mib", -5),
        ("hardware", "idle_w", -5.0),
        ("hardware", "max_w", 10.0),
        ("hardware", "model", "A,B|C"),
        ("hardware", "pci_buses", ["../.."] * 8),
        ("workload", "cap_h", 1e9),
        ("workload", "size_exponent", 1000.0),
    ],
)
def test_a_value_that_cannot_be_simulated_is_refused(
    demo: Regime, section: str, key: str, value: object
) -> None:
    document = _document(demo)
    document[section][key] = value  # type: ignore[index]
    with pytest.raises(SettingsError, match=rf"{section}\..*{key}"):
        _parsed(yaml.safe_dump(document))


def test_a_file_that_is_no_text_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="mine.yaml is no text in UTF-8"):
        load_regime(str(path))


def test_text_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(SettingsError, match="no YAML"):
        _parsed("a: [")


def test_a_regime_file_of_ones_own_is_loaded_by_path(demo: Regime, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(_document(demo)), encoding="utf-8")
    assert load_regime(str(path)) == demo


def test_an_unknown_regime_names_the_known_ones() -> None:
    assert "demo" in regime_names()
    with pytest.raises(SettingsError, match="demo"):
        load_regime("no-such-regime")


def test_a_fleet_without_nodes_is_an_error(demo: Regime) -> None:
    assert demo.with_size(nodes=None, days=None) == demo
    with pytest.raises(SettingsError, match="nodes"):
        demo.with_size(nodes=0, days=None)


@pytest.mark.parametrize(
    ("fault_type", "least_lead_h", "share"),
    [
        ("hbm_uncorrectable", 0.5, 0.5),  # leads of 6 to 72 h: all signs come in time
        ("hbm_uncorrectable", 72.0, 0.0),
        ("off_bus", 0.5, 0.0),  # signs come 3 to 30 min ahead
        ("sdc", 0.5, 0.0),  # no sign at all
    ],
)
def test_the_announced_share_is_that_of_signs_that_come_in_time(
    fault_type: str, least_lead_h: float, share: float
) -> None:
    faults = {fault.fault_type: fault for fault in load_regime("demo").faults}
    announced = faults[fault_type].announced_share(least_lead_h=least_lead_h)
    assert announced == pytest.approx(share)


REALISTIC = [name for name in regime_names() if name != "demo"]


def test_the_issues_regimes_are_all_there() -> None:
    wanted = "a100 demo h100 hot-summer lemon-heavy no-precursor old-driver quiet"
    assert list(regime_names()) == wanted.split()


@pytest.mark.parametrize("name", REALISTIC)
def test_a_shipped_regime_names_itself_and_says_it_is_synthetic(name: str) -> None:
    regime = load_regime(name)
    assert regime.name == name
    assert regime.note.startswith("Synthetic")
    assert max(regime.workload.size_weights) >= 4096


@pytest.mark.parametrize("name", [name for name in REALISTIC if name != "quiet"])
def test_rates_and_unevenness_of_a_realistic_regime_are_those_published(name: str) -> None:
    regime = load_regime(name)
    assert regime.hazard_multiplier == 1
    assert 0.3 <= regime.frailty.node_shape <= 0.5
    assert max(batch.factor for batch in regime.batches) <= 15


@pytest.mark.parametrize("name", ["a100", "h100"])
def test_failures_per_node_day_lie_between_two_published_clusters(name: str) -> None:
    regime = load_regime(name)
    per_day = sum(fault.per_gpu_year for fault in regime.faults) * 8 / 365.25
    assert 2.34e-3 < per_day < 6.50e-3


def test_h100_holds_the_published_fault_table() -> None:
    assert _table(load_regime("h100")) == PUBLISHED


def test_h100_memory_fails_three_times_as_often_as_that_of_a100() -> None:
    rates = [
        sum(rate for name, (rate, _) in _table(load_regime(model)).items() if name in MEMORY)
        for model in ("h100", "a100")
    ]
    assert rates[0] / rates[1] == pytest.approx(3.2, rel=0.01)


def test_no_precursor_differs_from_h100_by_silence_and_even_places_alone() -> None:
    silent = load_regime("no-precursor")
    assert {share for _, share in _table(silent).values()} == {1.0}
    assert all(decoy.per_gpu_year > 0 for decoy in silent.decoys)
    assert len(set(silent.frailty.slot_factors)) == 1
    rates = {name: rate for name, (rate, _) in _table(silent).items()}
    assert rates == {name: rate for name, (rate, _) in PUBLISHED.items()}


def _write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_an_extended_regime_changes_only_what_it_names(tmp_path: Path) -> None:
    text = "extends: h100\nname: mine\nfaults: {gsp: {downtime: {tail_h: 40}}}\n"
    regime, base = load_regime(_write(tmp_path, text)), load_regime("h100")
    changed = [f for f, g in zip(regime.faults, base.faults, strict=True) if f != g]
    assert [fault.fault_type for fault in changed] == ["gsp"]
    assert changed[0].downtime.tail_h == 40
    assert changed[0].downtime.range_h == (1.5, 2.5)
    assert regime.model_copy(update={"name": "h100", "faults": base.faults}) == base


def test_a_list_in_an_extended_regime_replaces_the_whole_list(tmp_path: Path) -> None:
    text = "extends: h100\nlogs: {forms: [iso]}\n"
    assert load_regime(_write(tmp_path, text)).logs.forms == ("iso",)


def test_extending_goes_on_over_several_files(tmp_path: Path) -> None:
    regime = load_regime(_write(tmp_path, "extends: hot-summer\nname: mine\n"))
    assert regime.climate == load_regime("hot-summer").climate
    assert regime.hardware == load_regime("h100").hardware


def test_extending_a_regime_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="'h200'.*a100, demo, h100"):
        load_regime(_write(tmp_path, "extends: h200\n"))


def test_regimes_that_extend_each_other_are_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.yaml").write_text(f"extends: {other}\n", encoding="utf-8")
    monkeypatch.setattr("simulation.regimes.load._FOLDER", tmp_path)
    with pytest.raises(SettingsError, match="extends itself: a -> b -> a"):
        load_regime("a")


def test_a_file_may_have_the_name_of_the_regime_it_extends(tmp_path: Path) -> None:
    path = tmp_path / "h100.yaml"
    path.write_text("extends: h100\nnodes: 3\n", encoding="utf-8")
    assert load_regime(str(path)) == load_regime("h100").with_size(nodes=3, days=None)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[]", "expected a mapping"),
        ("extends: h100\nfaults: {gremlins: {per_gpu_year: 1}}", "gremlins"),
        ("extends: h100\nfaults: {gsp: {fault_type: nvlink}}", "gsp: its fault_type is the key"),
        ("extends: h100\nfaults: {gsp: 3}", "faults"),
        ("extends: h100\nfaults: 3", "faults"),
        ("extends: h100\ndecoys: {hot: {per_precursor: -1}}", "per_precursor"),
        (
            "extends: h100\nfaults: {nic_fabric: {health_check: {day: 1, missed_before: 1}}}",
            "cannot go unnoticed",
        ),
        ("extends: h100\nfaults: {nic_fabric: {silent_share: 0.5}}", "cannot be silent"),
        ("extends: h100\nfaults: {off_bus: {silent_share: 0.5}}", "cannot be silent"),
    ],
)
def test_a_mistake_in_an_extension_is_one_error_that_names_it(
    tmp_path: Path, text: str, word: str
) -> None:
    with pytest.raises(SettingsError, match=word):
        load_regime(_write(tmp_path, text))
