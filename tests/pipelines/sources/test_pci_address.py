"""One spelling of PCI addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.pci_address import canonical_pci, first_pci


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000008:06:00.0", "00000008:06:00.0"),
        ("PCI:0008:06:00", "00000008:06:00.0"),
        ("0000:8A:00", "00000000:8a:00.0"),
        ("0000:00:09.0", "00000000:00:09.0"),
        ("8a:00.0", "00000000:8a:00.0"),
        ("...", None),
        ("", None),
        ("0000:8g:00", None),
        ("0000:8a:00.0 trailing", None),
    ],
)
def test_every_spelling_of_a_device_is_the_same(text, address):
    assert canonical_pci(text) == address


@given(st.integers(0, 2**32 - 1), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))
def test_canonical_addresses_stay_as_they_are(domain, bus, device, function):
    address = f"{domain:08x}:{bus:02x}:{device:02x}.{function}"
    assert canonical_pci(address) == address
    assert canonical_pci(address.upper()) == address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("NVRM: GPU at PCI:0000:8A:00: GPU-1", "00000000:8a:00.0"),
        ("pcieport 0000:00:01.0: AER: error", "00000000:00:01.0"),
        ("at 12:30:45 on deadbeef:00", None),
        ("mac 0000:11:22:33:44", None),
    ],
)
def test_an_address_is_found_inside_a_line(text, address):
    assert first_pci(text) == address
