"""What labels say: whose the series is, what it measures, in which unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SettingsError
from pipelines.sources.prometheus.series import (
    Matcher,
    Reader,
    any_of,
    help_scales,
    parse_matcher,
    selector,
    series_text,
)

UUID = "GPU-c0b5694b-2b5d-6b20-f903-558341437f6b"
TEMP = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "UUID": UUID, "gpu": "3"}


def meaning(labels, **settings):
    found = Reader(**settings).read(labels).meaning
    assert found is not None
    return found


@pytest.mark.parametrize("label", ["UUID", "uuid", "Uuid", "gpu_uuid", "GPU_UUID"])
@pytest.mark.parametrize("value", [UUID, UUID.upper(), UUID.removeprefix("GPU-")])
def test_the_uuid_is_the_identity_in_any_spelling(label, value):
    labels = {"__name__": "DCGM_FI_DEV_GPU_TEMP", label: value}
    assert meaning(labels).line.gpu_uuid == UUID


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"Hostname": "a", "hostname": "b", "instance": "c:9400"}, "a"),
        ({"Hostname": "", "hostname": "b"}, "b"),
        ({"Hostname": "dcgm-exporter-6ldbb", "node": "n"}, "n"),  # its Hostname is its pod
        ({"HOSTNAME": "a", "node_name": ""}, "a"),
        ({"node": "n", "kubernetes_node": "k"}, "n"),
        ({"kubernetes_node": "k", "instance": "c:9400"}, "k"),
        ({"instance": "c.example:9400"}, "c.example"),
        ({"instance": "10.0.0.1:9400"}, "10.0.0.1"),
        ({"instance": "[fe80::1]:9400"}, "fe80::1"),
        ({"instance": "bare"}, "bare"),
        ({}, ""),
    ],
)
def test_the_node_is_looked_for_in_order(labels, node):
    assert meaning(TEMP | labels).line.node == node


def test_which_label_is_the_node_can_be_set():
    labels = TEMP | {"Hostname": "dcgm-exporter-6ldbb", "nodename": "gpu001"}
    assert meaning(labels, node_labels=("nodename", "Hostname")).line.node == "gpu001"


def test_pod_labels_make_no_new_line():
    with_pod = TEMP | {"pod": "train-0", "namespace": "a", "container": "c", "err_code": "79"}
    assert meaning(with_pod).line == meaning(TEMP).line


@pytest.mark.parametrize(
    "extra",
    [
        {"GPU_I_ID": "1"},
        {"gpu_i_id": "2", "GPU_I_PROFILE": "3g"},
        {"GPU_I_PROFILE": "1g.10gb"},
        {"mig_uuid": "MIG-1"},
    ],
)
def test_a_mig_instance_gives_values_of_the_whole_gpu_but_none_of_its_own(extra):
    assert meaning(TEMP | extra).line == meaning(TEMP).line
    own = TEMP | extra | {"__name__": "DCGM_FI_DEV_FB_USED"}
    series = Reader().read(own)
    assert (series.meaning, series.refused) == (None, None)


@pytest.mark.parametrize("uuid", [{}, {"UUID": ""}, {"UUID": "N/A"}])
def test_without_a_uuid_the_series_is_refused(uuid):
    series = Reader().read({"__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": "0"} | uuid)
    assert series.refused == "no UUID label: the GPU is unknown"


def test_a_name_of_two_units_is_refused_and_an_unknown_one_passed_over():
    ambiguous = Reader().read(TEMP | {"__name__": "DCGM_FI_DEV_GPU_UTIL_RATIO"})
    assert ambiguous.refused is not None
    unknown = Reader().read(TEMP | {"__name__": "node_load1"})
    assert (unknown.meaning, unknown.refused) == (None, None)


def test_device_labels_are_read_in_one_spelling():
    found = meaning(TEMP | {"pci_bus_id": "0000:4E:00.0", "modelName": "NVIDIA H100"})
    assert (found.pci_bus_id, found.model) == ("00000000:4e:00.0", "NVIDIA H100")
    assert found.line.slot == "3"
    other = {"gpu": "", "index": "5", "pci_bus": "0000:4E:00.0", "model_name": "NVIDIA H100"}
    found = meaning(TEMP | other)
    assert (found.line.slot, found.pci_bus_id, found.model) == (
        "5", "00000000:4e:00.0", "NVIDIA H100",
    )  # fmt: skip


def test_help_texts_tell_units_that_changed_and_contradictions_are_refused():
    scales = help_scales(
        {
            "DCGM_FI_DEV_POWER_USAGE": ["Power draw (in mW).", "Power draw (in mW)."],
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ["(in mJ)", "(in J)"],
            "DCGM_FI_DEV_GPU_TEMP": ["GPU temperature (in C)."],
            "node_load1": ["(in mW)"],
        }
    )
    assert scales == {
        "DCGM_FI_DEV_POWER_USAGE": 1e-3,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": None,
    }
    power = TEMP | {"__name__": "DCGM_FI_DEV_POWER_USAGE"}
    assert meaning(power, scales=scales).scale == 1e-3
    energy = TEMP | {"__name__": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}
    refused = Reader(scales=scales).read(energy).refused
    assert refused is not None
    assert "several units" in refused


def test_replicas_are_told_apart_only_where_asked_for():
    labels = TEMP | {"prometheus_replica": "b"}
    assert meaning(labels).line.replica == ""
    assert meaning(labels, replica_label="prometheus_replica").line.replica == "b"


@pytest.mark.parametrize(
    ("text", "matcher"),
    [
        ('job="dcgm"', Matcher("job", "=", "dcgm")),
        (' cluster !~ "a|b" ', Matcher("cluster", "!~", "a|b")),
        (r'a="q\"\\\n"', Matcher("a", "=", 'q"\\\n')),
        (r'a=~"x\\.y"', Matcher("a", "=~", r"x\.y")),
    ],
)
def test_a_matcher_is_read_as_promql_writes_it(text, matcher):
    assert parse_matcher(text) == matcher
    assert parse_matcher(str(matcher)) == matcher


@pytest.mark.parametrize("text", ["", "job", "job=dcgm", 'job="a",b="c"', 'a-b="c"', '="x"'])
def test_what_is_no_matcher_is_refused(text):
    with pytest.raises(SettingsError, match="matcher"):
        parse_matcher(text)


@given(st.text())
def test_a_matcher_survives_writing_and_reading(value):
    assert parse_matcher(str(Matcher("a", "=", value))).value == value


def test_values_are_taken_literally():
    assert any_of("a", ["x.y", "a|b", "GPU-1"]).value == r"x\.y|a\|b|GPU-1"
    assert selector([any_of("a", ["x.y"])]) == r'{a=~"x\\.y"}'


def test_a_series_is_written_with_sorted_labels():
    assert series_text({"b": '"', "__name__": "m", "a": "1"}) == 'm{a="1",b="\\""}'
    assert series_text({"__name__": "m"}) == "m"
