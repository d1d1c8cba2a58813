"""Live quality in words, for the terminal.

How it is judged is in `models.evaluation.outcomes`.
"""

from typing import Any

from pipelines.serving.live_outcomes import Judged


def words_of(judged: Judged | None) -> str:
    """One line per week, horizon and model.

    Args:
        judged: What was judged; None: nothing was published.
    """
    if judged is None:
        return "nothing to judge: no scores were published in the last weeks"
    if judged.quality.is_empty():
        return "nothing to judge yet: no horizon has passed"
    return "\n".join(_line(row) for row in judged.quality.iter_rows(named=True))


def _line(row: dict[str, Any]) -> str:
    lead = "" if row["median_lead_h"] is None else f", median lead {row['median_lead_h']:.1f} h"
    return (
        f"week of {row['week']:%Y-%m-%d}, {row['horizon_h']} h, {row['model_version']}: "
        f"{row['n_hits']} of {row['n_alerts']} alerts came true ({_percent(row['precision'])}), "
        f"{row['n_misses']} incidents missed (recall {_percent(row['recall'])}), "
        f"{row['n_censored']} not to be told; mean score {_percent(row['mean_score'])}, "
        f"observed {_percent(row['observed_rate'])}{lead}"
    )


def _percent(share: float | None) -> str:
    return "not known" if share is None else f"{share:.2%}"
