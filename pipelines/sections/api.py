"""Settings of the HTTP API and the board: where they listen, who may ask, how often, for what.

Settings of an installation as a whole are in `pipelines.settings`.
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipelines.sections.secret_source import SecretSource
from pipelines.sections.section import GivenPath, Section

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
"""Of a token: it is the actor that the hook's settings list."""


class TokenSource(SecretSource):
    """A token, or `sha256:` and its hash, and what it may do.

    Attributes:
        role: read, or operator: may also ask the hook for something.
    """

    role: Literal["read", "operator"] = "read"


class ApiInboxSettings(Section):
    """The hook's inbox as the API may use it: put requests in, and nothing else.

    Attributes:
        folder: Its folder, as in the hook's settings.
        key_id: Name of the key in the hook's settings.
        key: Where the key is found; a file must have mode 0600.
    """

    folder: GivenPath
    key_id: str = Field(pattern=r"^[A-Za-z0-9._-]{1,32}$")
    key: SecretSource


class ApiLedgerSettings(Section):
    """The hook's ledger, which is only read.

    Attributes:
        sqlite: Its file; None: `ledger.sqlite` under `data_root`.
        postgres_variable: Environment variable with libpq's connection string instead.
    """

    sqlite: GivenPath | None = None
    postgres_variable: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.sqlite is not None and self.postgres_variable is not None:
            raise ValueError("name either sqlite or postgres_variable")
        return self


class ApiSettings(Section):
    """The HTTP API and the board; docs/api.md says what each is for.

    Attributes:
        listen: Address and port; others than loopback need a token.
        tokens: Tokens by name.
        hosts: Names by which clients reach it, beside loopback's own.
        rate_per_s: Requests a second for each token or address, on average.
        burst: Requests at once.
        ledger: The hook's ledger.
        inbox: The hook's inbox; None: nothing can be asked for.
    """

    listen: str = "127.0.0.1:8080"
    tokens: dict[Name, TokenSource] = Field(default={}, max_length=1000)
    hosts: tuple[str, ...] = ()
    rate_per_s: float = Field(default=50.0, gt=0, le=100_000, allow_inf_nan=False)
    burst: int = Field(default=200, ge=1, le=1_000_000)
    ledger: ApiLedgerSettings = ApiLedgerSettings()
    inbox: ApiInboxSettings | None = None

    @field_validator("hosts")
    @classmethod
    def _names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host!r} is no host name; leave the port out")
        return hosts
