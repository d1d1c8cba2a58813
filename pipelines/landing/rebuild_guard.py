"""Core hours that must not be built again, for retention has removed what they were built from.

When rows are removed is in `pipelines.retention.landing`.
"""

from features.contracts import TableContract
from features.errors import DataError
from pipelines.landing.landed import Landing
from pipelines.storage.store import Span, TableStore


def check_can_be_built(
    landing: Landing,
    store: TableStore,
    core: TableContract,
    *,
    raw: TableContract,
    span: Span,
) -> None:
    """Refuses to build hours again whose rows as received are gone.

    Hours that were never built may be: what a site brings of old lands and is built as ever.

    Args:
        landing: What has landed.
        store: Where the core table is.
        core: The core table.
        raw: What it is built from.
        span: The hours to be built.

    Raises:
        DataError: A stored hour of the span lies before what is still kept.
    """
    since = landing.whole_since(raw)
    if since is None or span.start >= since:
        return
    end = min(span.end, since)
    lost = [hour for hour in store.generations(core) if span.start <= hour < end]
    if lost:
        raise DataError(
            f"table {core.asset_key}: {len(lost)} hours from {min(lost):%Y-%m-%d %H:%M} on are "
            f"stored, but {raw.asset_key} is kept only since {since:%Y-%m-%d}: building them again "
            f"would empty them. Choose hours from {end:%Y-%m-%d %H:%M} on; retention.landing_days "
            f"says how long rows are kept as received."
        )
