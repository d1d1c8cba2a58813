"""Which features an installation has, as its settings say, and whether a stored matrix has them.

What a feature is lives in `features`; nothing is computed or stored here.
"""

from dataclasses import replace
from typing import Final

import polars as pl

from features.catalogue import FaultCatalogue
from features.errors import DataError
from features.matrix import MatrixSpec
from features.telemetry_features import telemetry_features
from features.telemetry_spec import FULL_TELEMETRY, TelemetrySpec
from pipelines.settings import Settings

SAMPLE_AGE: Final = "hours_since_sample"
"""The feature that says how old the newest sample is."""


def telemetry_spec(settings: Settings) -> TelemetrySpec:
    """The telemetry features of an installation; `full` has every one that `standard` has."""
    if settings.feature_set == "standard":
        return TelemetrySpec()
    return full_telemetry(settings.rack_level)


def full_telemetry(rack_level: str) -> TelemetrySpec:
    """The telemetry features of `full`, where the topology calls racks by a name."""
    usual = TelemetrySpec().counters
    more = tuple(counter for counter in usual if counter not in FULL_TELEMETRY.counters)
    return replace(
        FULL_TELEMETRY, counters=FULL_TELEMETRY.counters + more, peer_levels=(rack_level,)
    )


def matrix_spec(settings: Settings, catalogue: FaultCatalogue) -> MatrixSpec:
    """The features of an installation, the same for training and scoring."""
    return MatrixSpec(catalogue=catalogue, telemetry=telemetry_spec(settings))


def check_feature_set(matrix: pl.DataFrame, settings: Settings) -> None:
    """Refuses hours that were built before the settings said `full`.

    Their features that only `full` has are null, and a model would learn from that when a row was
    built, not how its GPU was. The other way round nothing is amiss: `full` has them all.

    Args:
        matrix: features/gpu_matrix.
        settings: Which features it should have.

    Raises:
        DataError: There are such hours.
    """
    usual = {feature.name for feature in telemetry_features(TelemetrySpec())}
    every = [feature.name for feature in telemetry_features(telemetry_spec(settings))]
    added = [name for name in every if name not in usual]
    if not added:
        return
    is_known = [pl.col(name).is_not_null() for name in added if name in matrix.columns]
    hours = matrix.group_by("as_of").agg(
        pl.col(SAMPLE_AGE).is_not_null().any().alias("has_samples"),
        pl.any_horizontal(pl.lit(value=False), *is_known).any().alias("has_added"),
    )
    lacking = hours.filter("has_samples", ~pl.col("has_added"))["as_of"].sort()
    if not lacking.is_empty():
        raise DataError(
            f"features/gpu_matrix: {lacking.len()} of {hours.height} hours, for example "
            f"{lacking[0]}, were built without the features that only feature_set "
            f"{settings.feature_set} has. Materialise features/gpu_matrix again for these hours, "
            f"then train again."
        )
