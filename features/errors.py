"""The project's own errors: every one names what is wrong, where, and what to do.

No handling lives here; the CLI turns these into one line and an exit code.
"""


class ForewarnError(Exception):
    """Base of every error that a user can act on."""


class StructureError(ForewarnError):
    """A table or file does not have the columns or types it must have."""


class SourceError(ForewarnError):
    """An input cannot be read at all: absent, empty, or of another format."""


class SettingsError(ForewarnError):
    """A settings or mapping file says something that cannot be carried out."""


class DataError(ForewarnError):
    """Well-formed data that does not allow the asked-for computation."""
