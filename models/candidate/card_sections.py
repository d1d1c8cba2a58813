"""The model card as sections of sentences and tables, one form for terminal, markdown and HTML.

What is on a card is decided in `models.candidate.card`, how a section looks in
`models.candidate.card_words`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from features.registry import FAMILY_WORDS
from models.evaluation.row_metrics import Estimate
from models.faults.classes import LEAST_TEST_INCIDENTS
from models.registry.version_page import Standing

UNKNOWN: Final = "-"
_SPEC_SHOWN: Final = (
    "num_leaves",
    "rounds",
    "learning_rate",
    "min_data_in_leaf",
    "lambda_l2",
    "feature_fraction",
    "negative_share",
    "seeds",
)


_ENSEMBLES: Final = {
    "none": "LightGBM alone, no ensemble.",
    "parallel": (
        "Parallel ensemble: a score is as high as the least convinced of LightGBM, logistic "
        "regression and a perceptron says. Reasons are LightGBM's."
    ),
    "cascade": (
        "Cascade: logistic regression lets through what may fail, LightGBM ranks it. Reasons are "
        "those of a LightGBM that learned from all rows."
    ),
}


@dataclass(frozen=True)
class Table:
    """Rows of text under a heading each; the first column is left-aligned."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A heading with sentences and, where there are many numbers, a table."""

    title: str
    lines: tuple[str, ...]
    table: Table | None = None


def card_sections(card: Mapping[str, Any], standing: Standing | None = None) -> tuple[Section, ...]:
    """Everything a card says, most important first.

    Args:
        card: What `models.candidate.card.build_card` made; parts that an older release did not
            write are left out.
        standing: Where the version stands; None before it is registered.

    Returns:
        The sections.
    """
    if "test" not in card:
        return (Section("Card", ("This version has no model card.",)),)
    sections = [_task(card)]
    if standing is not None:
        sections.append(_standing(standing))
    sections += [
        Section("Limits", tuple(card["limits"])),
        _against_baselines(card),
        _alerts(card),
        _fault_types(card),
        _calibration(card),
        _features(card),
        _training(card),
    ]
    return tuple(one for one in sections if one.lines or one.table)


def _task(card: Mapping[str, Any]) -> Section:
    task, data = card["task"], card["data"]
    first, last = (
        f"{datetime.fromisoformat(data[key]):%Y-%m-%d}" for key in ("first_as_of", "last_as_of")
    )
    return Section(
        "What it is",
        (
            (
                f"Probability that a {task['entity_kind'].replace('gpu', 'GPU')} fails within "
                f"{task['horizon_h']} h, told at least {60 * task['lead_h']:.0f} min ahead."
            ),
            (
                f"Trained on {card['trained_on']} data, {first} to {last}: {data['n_rows']:,} "
                f"rows, {data['n_positive']:,} of them before one of {data['n_incidents']:,} "
                f"incidents."
            ),
            (
                f"Data {data['data_hash'][:12]}, features {card['versions']['contract']}, "
                f"fault catalogue {card['versions']['catalogue']}."
            ),
        ),
    )


def _standing(standing: Standing) -> Section:
    aliases = ", ".join(standing.aliases) or "none"
    lines = [
        (
            f"{standing.label}, registered {standing.registered_at:%Y-%m-%d %H:%M} UTC. "
            f"Aliases: {aliases}."
        )
    ]
    if standing.gate is None:
        lines.append("The gate was never asked.")
    else:
        lines.append(f"Gate: {'passed' if standing.is_gate_passed else 'refused'}. {standing.gate}")
    if standing.promoted_by:
        at = f"{datetime.fromisoformat(standing.promoted_at or ''):%Y-%m-%d %H:%M} UTC"
        said = f"Made champion by {standing.promoted_by}, {at}"
        lines.append(f"{said}: {standing.promoted_reason}")
    return Section("Where it stands", tuple(lines))


def _against_baselines(card: Mapping[str, Any]) -> Section:
    """The model and what it must beat, on the same rows."""
    test = card["test"]["all_rows"]
    ways = {"this model": test, **card["baselines"]}
    gains = card.get("gains", {})
    rows = tuple(
        (
            name,
            shown(values["average_precision"]),
            shown(values["auc"]),
            shown(values["precision_top_1pct"]),
            _number(values.get("log_loss"), 4),
            shown(gains.get(name), sign="+"),
        )
        for name, values in ways.items()
    )
    header = ("method", "average precision", "AUC", "precision top 1 %", "log-loss", "model gains")
    lines = [
        (
            f"{test['n_rows']:,} test rows of {test['n_entities']:,} GPUs, {test['n_positive']:,} "
            f"positive ({_percent(test['prevalence'])}: the average precision of no skill). In "
            f"brackets: 95 % interval over entities."
        )
    ]
    unit, rest = card["test"]["top_unit"], card["test"]["without_top_unit"]
    if unit:
        lines.append(
            f"Without {unit}, which has most positives: average precision "
            f"{shown(rest['average_precision'])}."
        )
    return Section("Against baselines", tuple(lines), Table(header, rows))


def _alerts(card: Mapping[str, Any]) -> Section:
    header = (
        "alerts on",
        "precision",
        "recall",
        "caught",
        "median lead",
        "per 1,000 nodes and day",
    )
    rows = []
    for kind, events in sorted(card["events"].items()):
        leads = events["lead_quantiles_h"]
        rows.append(
            (
                kind.replace("gpu", "GPU").replace("_", " "),
                shown(events["precision"]),
                shown(events["recall"]),
                f"{events['n_caught']} of {events['n_incidents']}",
                f"{leads[2]:.1f} h" if leads else UNKNOWN,
                _number(events["alerts_per_1000_nodes_per_day"], 1),
            )
        )
    lines = [
        f"{kind.replace('gpu', 'GPU').replace('_', ' ')}: {choice['explanation']}"
        for kind, choice in sorted(card["thresholds"].items())
    ]
    return Section("Alerts", tuple(lines), Table(header, tuple(rows)) if rows else None)


def _fault_types(card: Mapping[str, Any]) -> Section:
    classes = card.get("fault_classes") or []
    ceilings = card.get("ceilings") or {}
    header = ("fault type", "test incidents", "AUC", "foreseen", "beats history", "recall ceiling")
    rows = tuple(
        (
            one["fault_type"].replace("_", " "),
            str(one["n_test"]),
            shown(one["auc"]),
            _verdict(one["is_foreseen"], one["auc"], one["n_test"]),
            _verdict(one["beats_history"], one["gain_on_history"], one["n_test"]),
            _percent(ceilings.get(one["fault_type"])),
        )
        for one in classes
    )
    lines = []
    if "all" in ceilings:
        lines.append(
            f"{_percent(ceilings['all'])} of the failures of GPUs announce themselves in time. The "
            f"others can only be guessed: by who failed before, or by alerting often."
        )
    forecast = card.get("fault_types")
    if forecast and forecast["n_incidents"]:
        lines.append(
            f"Type named right for {_percent(forecast['top1'])} of {forecast['n_incidents']} "
            f"incidents, among two for {_percent(forecast['top2'])}; always naming the most "
            f"frequent: {_percent(forecast['prior_top1'])} and {_percent(forecast['prior_top2'])}."
        )
    return Section("By fault type", tuple(lines), Table(header, rows) if rows else None)


def _calibration(card: Mapping[str, Any]) -> Section:
    found = card["calibration"]
    lines = [
        (
            f"{found['method'].capitalize()}, fitted on {found['n_rows']:,} validation rows, "
            f"{found['n_positive']:,} positive."
        )
    ]
    check = found.get("check")
    if check is None:
        base = card["baselines"].get("base rate", {}).get("log_loss")
        own = card["test"]["all_rows"].get("log_loss")
        if base is not None and own is not None:
            verdict = "better than" if own < base else "not better than"
            lines.append(f"Log-loss {own:.4f} in the test, {verdict} the base rate's {base:.4f}.")
        return Section("Calibration", tuple(lines))
    lines.append(
        f"Observed over expected {shown(check['observed_by_expected'])}, slope "
        f"{shown(check['slope'])}, log-loss {_number(check['log_loss'], 4)} (base rate "
        f"{_number(check['base_rate_log_loss'], 4)})."
    )
    header = ("score", "rows", "expected", "observed", "observed / expected")
    rows = tuple(
        (
            f"{band['low']:.3g} to {band['high']:.3g}",
            f"{band['n_rows']:,}",
            f"{band['expected']:.1f}",
            str(band["observed"]),
            shown(band["ratio"]),
        )
        for band in check["bands"]
    )
    return Section("Calibration", tuple(lines), Table(header, rows))


def _features(card: Mapping[str, Any]) -> Section:
    header = ("family", "features", "never known in training", "mean share of nulls")
    words: dict[str, str] = {str(family): said for family, said in FAMILY_WORDS.items()}
    rows = tuple(
        (
            words.get(family, family),
            str(one["n_features"]),
            UNKNOWN if one["n_never_known"] is None else str(one["n_never_known"]),
            _percent(one["null_share"]),
        )
        for family, one in (card.get("features") or {}).items()
    )
    said = (f"{card['n_features']} features.",)
    return Section("Features", said, Table(header, rows) if rows else None)


def _training(card: Mapping[str, Any]) -> Section:
    spec, lines = card.get("spec") or {}, []
    if spec:
        lines.append(", ".join(f"{name} {_plain(spec[name])}" for name in _SPEC_SHOWN) + ".")
    seen = card["data"].get("seen_until")
    if seen:
        lines.append(
            f"Trained, calibrated and tuned on rows before "
            f"{datetime.fromisoformat(seen):%Y-%m-%d %H:%M} UTC."
        )
    lines += list(_choice(card.get("training")))
    lines += list(_tuning(card.get("tuning")))
    return Section("Training", tuple(lines))


def _choice(training: Mapping[str, Any] | None) -> Iterator[str]:
    """The stretch learned from, and the ensemble; nothing on cards of older releases."""
    if training is None:
        return
    yield _ENSEMBLES[training["ensemble"]]
    days, is_auto = training["days"], training["span"] == "auto"
    if days is not None:
        why = ", which ranked better on earlier origins than all of it" if is_auto else ""
        yield f"Learned from the last {days:g} d before the cut{why}."
    elif is_auto:
        tried = [one["by_origin"] for one in training["average_precision"] if one["days"]]
        is_judged = any(found and None not in found for found in tried)
        why = (
            "no shorter stretch was better beyond chance"
            if is_judged
            else "earlier origins had too few incidents to judge a shorter stretch"
        )
        yield f"Learned from everything before the cut: {why}."


def _tuning(record: Mapping[str, Any] | None) -> Iterator[str]:
    if record is None:
        yield "Settings were not searched for on this data: they are the shipped ones."
        return
    yield "Search: " + ", ".join(
        f"{name.replace('_', ' ')} {_plain(value)}"
        for name, value in record.items()
        if not isinstance(value, Mapping | list | tuple) or name == "seeds"
    )


def shown(found: Mapping[str, float | None] | None, *, sign: str = "") -> str:
    """An estimate with its interval.

    >>> shown({"value": 0.12345, "low": 0.1, "high": 0.2}), shown(None)
    ('0.123 [0.100, 0.200]', '-')
    """
    if not found or found["value"] is None:
        return UNKNOWN
    if not sign:
        return str(Estimate(found["value"], found["low"], found["high"]))
    if found["low"] is None or found["high"] is None:
        return f"{found['value']:+.3f}"
    return f"{found['value']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]"


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.3g} %"


def _plain(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _verdict(is_so: bool, found: Mapping[str, float | None], n_incidents: int) -> str:  # noqa: FBT001  a word for a value, not a switch
    if found["value"] is None:
        return "cannot be told"
    if n_incidents < LEAST_TEST_INCIDENTS:
        return "too few to tell"
    return "yes" if is_so else "no"
