"""Rules of what `forewarn init` says at its end: where the services look for what it wrote."""

from pathlib import Path

import pytest

from pipelines.config.check import ConfigReport
from pipelines.doctor.examination import Examination
from pipelines.site_init.site import Scheduler, Written

DEPLOY = Path(__file__).parents[3] / "deploy"


def said(scheduler: Scheduler) -> str:
    empty = ConfigReport((), ()), Examination(())
    return Written(Path("/srv/site"), scheduler, (), *empty).words()


def test_a_site_of_slurm_is_told_what_to_copy_to_where_the_units_look() -> None:
    words = said("slurm")
    assert "install -D -m 0644 /srv/site/forewarn.yaml /etc/forewarn/site.yaml" in words
    assert (
        "install -m 0644 /srv/site/inputs.yaml /srv/site/remediation.yaml /etc/forewarn/" in words
    )
    for unit in (DEPLOY / "systemd").glob("forewarn-score.service"):
        assert "FOREWARN_SETTINGS=/etc/forewarn/site.yaml" in unit.read_text()
    assert "data_root: /var/lib/forewarn-scores" in words


@pytest.mark.parametrize("name", ["site.yaml", "inputs.yaml"])
def test_a_site_of_kubernetes_is_told_the_files_of_the_overlay(name: str) -> None:
    assert name in said("kubernetes")
    assert (DEPLOY / "kubernetes/overlays/small" / name).is_file()
    assert "/etc/forewarn" not in said("kubernetes")
