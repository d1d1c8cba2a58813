"""`forewarn tune`: searches training values on a site's own record before `split.train_until`.

How the search works is in `models.training.tuning`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from features.errors import SettingsError
from features.matrix import matrix_features
from features.registry import feature_names
from features.tables import CORE_TOPOLOGY, GPU_MATRIX, LABELS
from models.specs import Task
from models.training.boosters import training_rows
from models.training.monotone import with_rising
from models.training.tuning import Search, Tuned, spec_values, tune
from pipelines.flow.feature_set import check_feature_set, matrix_spec
from pipelines.flow.split_cuts import split_of
from pipelines.settings import Settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.store import Span, TableStore

SHOWN = 5


def tune_site(
    settings: Settings,
    *,
    out: Path,
    trials: int,
    horizon_h: int | None = None,
    say: Callable[[str], None],
) -> str:
    """Searches, and writes a `training` section for the settings file.

    Args:
        settings: The installation; nothing at or after its `split.train_until` is read.
        out: YAML file to write.
        trials: Specs tried.
        horizon_h: Horizon whose labels decide; None: the first.
        say: Told what is going on.

    Returns:
        What was found, and the section.

    Raises:
        SettingsError: The settings name no split or not the horizon, or the file is another one.
        DataError: No features or labels are stored, or too few incidents are among them.
    """
    split = split_of(settings)
    if split is None:
        raise SettingsError(
            f"site {settings.site}: tuning needs split.train_until: it looks at nothing later"
        )
    until = split.train_until
    horizon = settings.horizons_h[0] if horizon_h is None else horizon_h
    if horizon not in settings.horizons_h:
        raise SettingsError(
            f"site {settings.site}: horizon {horizon} h has no labels; choose one of horizons_h: "
            f"{', '.join(map(str, settings.horizons_h))}."
        )
    _check_out(out)
    store, span = TableStore(settings.store_root), Span(settings.start, until)
    matrix, labels = store.read(GPU_MATRIX, span=span), store.read(LABELS, span=span)
    check_feature_set(matrix, settings)
    catalogue = load_catalogue(settings.fault_catalogue, overrides=settings.fault_overrides)
    topology = store.read(CORE_TOPOLOGY) if store.has(CORE_TOPOLOGY) else CORE_TOPOLOGY.empty()
    names = feature_names(matrix_features(matrix_spec(settings, catalogue), topology))
    rows = training_rows(matrix, labels, horizon_h=horizon)
    say(f"{rows.height:,} rows before {until:%Y-%m-%d %H:%M}, {len(names)} features")
    task = Task(horizon_h=horizon, lead=settings.lead, trained_on=settings.trained_on)
    # With the constraints of training: what is best without them may not be best with them.
    start = with_rising(settings.training.spec(settings.seed), names)
    search = Search(before=until, start=start, trials=trials, seed=settings.seed)
    found = tune(rows, feature_names=names, task=task, search=search)
    section = training_section(found, horizon_h=horizon)
    # Chosen by the site and not searched: a copied section must not undo it.
    section["training"] |= settings.training.model_dump(
        include={"ensemble", "span"}, exclude_defaults=True
    )
    text = yaml.safe_dump(section, sort_keys=False, allow_unicode=True)
    replace_file(out, text.encode())
    return f"{in_words(found)}\n\n{text}\nWritten to {out}: copy it into the settings, then train."


def _check_out(out: Path) -> None:
    """Before the search, which takes an hour: the file can be written, and is nobody else's."""
    folder = next((one for one in out.absolute().parents if one.exists()), Path("/"))
    if out.is_dir() or not os.access(folder, os.W_OK):
        raise SettingsError(f"tune: {out} cannot be written. Name a file in a folder of yours.")
    if out.exists() and not out.read_bytes().startswith(b"training:"):
        raise SettingsError(
            f"tune: {out} is there already and holds something else than a training section. "
            "Name another file."
        )


def training_section(found: Tuned, *, horizon_h: int) -> dict[str, Any]:
    """The `training` section of the settings that trains with what was found."""
    spec = found.spec
    return {
        "training": {
            **spec_values(spec),
            "negative_share": spec.negative_share,
            "n_seeds": len(spec.seeds),
            "tuned": {"horizon_h": horizon_h, **found.to_dict()},
        }
    }


def in_words(found: Tuned) -> str:
    """The best trials as a table, the start and the chosen one marked."""
    table = found.table().sort("steady", "trial", descending=[True, False])
    is_shown = pl.col("is_chosen") | (pl.col("trial") == 0) | (pl.int_range(pl.len()) < SHOWN)
    head = (
        f"average precision on {len(found.origins)} inner origins, all before "
        f"{found.before:%Y-%m-%d %H:%M}; {table.height} trials, "
        f"{table.height - table['is_complete'].sum()} given up early"
    )
    lines = [head, f"{'trial':>6}  {'steady':>6}  {'mean':>6}  {'sd':>6}  {'leaves':>7}  by origin"]
    for row in table.filter("is_complete").filter(is_shown).iter_rows(named=True):
        mark = " (chosen)" if row["is_chosen"] else " (as it is)" if row["trial"] == 0 else ""
        sd = "" if row["sd"] is None else f"{row['sd']:.4f}"
        origins = " ".join(f"{value:.4f}" for value in row["by_origin"])
        lines.append(
            f"{row['trial']:>6}  {row['steady']:.4f}  {row['average_precision']:.4f}  {sd:>6}  "
            f"{row['n_leaves']:>7}  {origins}{mark}"
        )
    return "\n".join(lines)
