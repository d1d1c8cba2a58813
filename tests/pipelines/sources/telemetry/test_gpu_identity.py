"""One spelling of a GPU's identity."""

import pytest

from pipelines.sources.telemetry.gpu_identity import canonical_gpu_uuid

UUID = "c0b5694b-2b5d-6b20-f903-558341437f6b"


@pytest.mark.parametrize(
    "text",
    [
        UUID,
        UUID.upper(),
        f"GPU-{UUID}",
        f"gpu-{UUID.upper()}",
        f" GPU-{UUID} ",
        f"MIG-GPU-{UUID}/7/0",
        UUID.replace("-", ""),
    ],
)
def test_all_spellings_are_one(text):
    assert canonical_gpu_uuid(text) == f"GPU-{UUID}"


@pytest.mark.parametrize(
    "text",
    [
        "", "N/A", "[N/A]", "Unknown Error", "GPU is lost", "[GPU requires reset]", "[Not Found]",
        "[Insufficient Permissions]", "null", f"MIG-{UUID}",
    ],
)  # fmt: skip
def test_what_names_no_gpu_is_none(text):
    assert canonical_gpu_uuid(text) is None


def test_a_mig_instance_resolves_to_the_gpu_that_is_told():
    assert canonical_gpu_uuid(f"MIG-{UUID}", parents={f"MIG-{UUID}": UUID}) == f"GPU-{UUID}"


@pytest.mark.parametrize("text", ["GPU-a", "1324321002473", "GPU-1234abcd"])
def test_identities_of_other_forms_are_kept(text):
    assert canonical_gpu_uuid(text) == text
    assert canonical_gpu_uuid(canonical_gpu_uuid(text)) == text
