"""The page of a model version in MLflow: card, plots, numbers and facts, put together.

Plots are drawn in `pipelines.report.model_plots`; the page is stored by
`models.registry.model_registry`.
"""

import json
from pathlib import Path

from features.errors import SettingsError
from models.candidate.build import Candidate
from models.candidate.card_words import card_html, card_markdown, card_text
from models.registry.model_registry import ModelRegistry
from models.registry.registered import RegisteredVersion
from models.registry.version_page import VersionPage, page_metrics, page_params
from pipelines.report.model_plots import model_plots, standalone
from pipelines.storage.atomic_files import replace_file


def model_page(made: Candidate) -> VersionPage:
    """What the MLflow UI shows of a candidate; the same for the same candidate."""
    bundle, card = made.bundle, made.bundle.card
    plots = model_plots(made, recall_ceiling=card["ceilings"].get("all"))
    files = {f"plots/{one.name}.svg": standalone(one.plot) for one in plots}
    title = f"{bundle.name}: model card"
    figures = [(standalone(one.plot), one.plot.caption) for one in plots]
    return VersionPage(
        metrics=page_metrics(card),
        params=page_params(bundle),
        tags={
            "entity_kind": bundle.model.entity_kind,
            "horizon_h": str(bundle.model.horizon_h),
            "n_incidents": str(bundle.model.n_incidents),
        },
        description=card_markdown(card),
        artifacts={
            "card.html": card_html(card, title=title, figures=figures),
            "card.txt": card_text(card) + "\n",
            "card.json": json.dumps(card, indent=1, sort_keys=True),
            **files,
        },
    )


def write_card(registry: ModelRegistry, version: RegisteredVersion, out: Path) -> str:
    """Writes the card of a version to a file and says so.

    Args:
        registry: The registry.
        version: The version.
        out: Where to; `.html` or `.md`.

    Raises:
        SettingsError: Another kind of file is asked for.
    """
    card, standing = registry.load(version).card, registry.standing(version)
    if out.suffix == ".html":
        text = card_html(card, standing, title=f"{version.label}: model card")
    elif out.suffix == ".md":
        text = f"# {version.label}: model card\n\n{card_markdown(card, standing)}"
    else:
        raise SettingsError(f"card: write a .html or .md file, got {out.name!r}")
    replace_file(out, text.encode())
    return f"Card of {version.label}: {out}"
