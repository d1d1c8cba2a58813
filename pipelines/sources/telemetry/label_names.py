"""Names that exporters and relabelling give the labels of a GPU's series: data only.

What a series means is decided in `telemetry.series` for pages and in `prometheus.series` for
servers.
"""

from typing import Final

UUID_LABELS: Final = ("uuid", "gpu_uuid", "gpuuuid")
NODE_LABELS: Final = ("node", "kubernetes_node", "node_name", "nodename", "hostname")
"""A node that relabelling gives goes before the exporter's own Hostname, which may be its pod."""

INDEX_LABELS: Final = ("gpu", "index")
PCI_LABELS: Final = ("pci_bus_id", "pci_bus")
MODEL_LABELS: Final = ("modelname", "model_name", "gpu_model", "name")
LINK_LABELS: Final = ("nvlink", "gpu_nvlink", "link", "link_id", "lane")
INSTANCE_LABELS: Final = ("gpu_i_id", "gpu_i_profile", "gpu_instance_id", "mig_uuid")

LABELS: Final = (
    UUID_LABELS,
    NODE_LABELS,
    INDEX_LABELS,
    PCI_LABELS,
    MODEL_LABELS,
    LINK_LABELS,
    INSTANCE_LABELS,
)
"""All of them in lower case, each list in the order in which they count: the first known does."""
