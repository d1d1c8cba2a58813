"""Where the official client's settings come from; requests themselves are in `tests/real`."""

import sys
from pathlib import Path

import pytest

from features.errors import SettingsError
from pipelines.sources.kubernetes.client import OfficialApi


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(SettingsError, match=r"pip install 'forewarn\[kubernetes\]'"):
        OfficialApi()


class TestInACluster:
    """Within a pod the service account is used."""

    @pytest.fixture
    def account(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        places = pytest.importorskip("kubernetes.config.incluster_config", reason="no client")
        token, authority = tmp_path / "token", tmp_path / "ca.crt"
        token.write_text("service-account-token")
        authority.write_text("-")
        monkeypatch.setattr(places, "SERVICE_TOKEN_FILENAME", str(token))
        monkeypatch.setattr(places, "SERVICE_CERT_FILENAME", str(authority))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        return token

    def test_the_service_account_is_used(
        self, account: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        import kubernetes

        # The pool would load the authority's certificate, which is none.
        monkeypatch.setattr(kubernetes.client.rest, "RESTClientObject", lambda _: None)
        api = OfficialApi()
        assert api.address == "https://[fd00::1]:443"
        headers: dict[str, str] = {}
        api._sign(headers, [])
        assert headers["authorization"].lower() == "bearer service-account-token"

    def test_an_empty_account_is_an_error_that_says_so(self, account: Path):
        account.write_text("")
        with pytest.raises(SettingsError, match="service account"):
            OfficialApi()
