"""Compares members, parallel and cascade ensembles on the same rows, with and without retraining.

Rows in, counts out; where rows come from and how the table is shown is not known here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from models.calibration import FloatArray
from models.ensembles.cascade import CascadeSpec, fit_cascade
from models.ensembles.parallel import ParallelEnsemble, Rule, fit_parallel
from models.ensembles.sliding import (
    EVERYTHING,
    SlidingSpec,
    choose_training_length,
    recent_rows,
    with_multiplied_positives,
)
from models.ensembles.top_k import (
    alert_metrics,
    intersection,
    precision_of_ranking,
    rank_of_moment,
    share_of_moment,
    top_k,
)
from models.member_protocol import Member, MemberSpec
from models.specs import Task
from models.training.splits import split_by_time

NEVER, ALL, SLIDING = "never retrained", "retrained on all", "retrained, sliding"


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What is compared.

    Attributes:
        task: What is predicted.
        origins: Moments at which models are trained anew; the first model is also kept.
        test: Time after each origin that is tested; the origins' distance.
        valid: Time before each origin kept for the ensembles' places and thresholds.
        shares: K of the top-K rule as shares of the rows of a moment.
        members: How single models are fitted, by name.
        parallels: Names of members joined, and how, by name of the ensemble.
        cascades: Cascades by name; their first member is the member of that name.
        sliding: How the length of training is chosen.
        chooser: The member it is chosen with.
        tested_every: Step at which rows are tested, and negatives trained on; None: every row.
    """

    task: Task
    origins: tuple[datetime, ...]
    test: timedelta
    valid: timedelta
    shares: tuple[float, ...]
    members: Mapping[str, MemberSpec]
    parallels: Mapping[str, tuple[tuple[str, ...], Rule]]
    cascades: Mapping[str, CascadeSpec]
    sliding: SlidingSpec
    chooser: str
    tested_every: timedelta | None = None


@dataclass(frozen=True)
class _Fitted:
    """Everything fitted at one origin."""

    single: Mapping[str, Member]
    joined: Mapping[str, Member]


def run_study(rows: pl.DataFrame, *, feature_names: Sequence[str], plan: StudyPlan) -> pl.DataFrame:
    """Fits at every origin and counts alerts in the time after each.

    Args:
        rows: Rows with `entity_id`, `as_of`, `label`, `incident_id` and the features.
        feature_names: Features.
        plan: What is compared.

    Returns:
        One row per retraining, origin, model, share and `matched_to`: `n_alerts`, `n_true`,
        `n_positive`, `average_precision`, `train_days` (null: all). Where `matched_to` names an
        ensemble, each moment has as many alerts as that ensemble's intersection had there.
    """
    counted: list[dict[str, object]] = []
    kept: _Fitted | None = None
    for origin in plan.origins:
        known = rows.filter(pl.col("as_of") < origin + plan.test)
        whole = _fit(known, origin=origin, length=EVERYTHING, names=feature_names, plan=plan)
        slid, length = whole, _length(known, origin=origin, names=feature_names, plan=plan)
        if length != EVERYTHING:
            slid = _fit(known, origin=origin, length=length, names=feature_names, plan=plan)
        kept = kept or whole
        test, earlier = _tested(known, origin=origin, plan=plan)
        done: dict[int, list[dict[str, object]]] = {}
        for retraining, models in ((NEVER, kept), (ALL, whole), (SLIDING, slid)):
            days = length.days if retraining == SLIDING and length != EVERYTHING else None
            facts = {"retraining": retraining, "origin": origin, "train_days": days}
            # The same models under another name: at the first origin, or where all is best.
            if id(models) not in done:
                done[id(models)] = list(_counts(models, test, earlier=earlier, plan=plan))
            counted += [{**facts, **count} for count in done[id(models)]]
    return pl.DataFrame(counted, infer_schema_length=None)


def _length(
    rows: pl.DataFrame, *, origin: datetime, names: Sequence[str], plan: StudyPlan
) -> timedelta:
    until = origin - plan.valid
    before = _training(rows.filter(pl.col("as_of") < until), plan)
    return choose_training_length(
        before,
        until=until,
        spec=plan.sliding,
        member=plan.members[plan.chooser],
        feature_names=names,
        task=plan.task,
    ).length


def _training(rows: pl.DataFrame, plan: StudyPlan) -> pl.DataFrame:
    if plan.tested_every is None:
        return rows
    return with_multiplied_positives(rows, every=plan.tested_every)


def _fit(
    rows: pl.DataFrame,
    *,
    origin: datetime,
    length: timedelta,
    names: Sequence[str],
    plan: StudyPlan,
) -> _Fitted:
    split = split_by_time(
        rows,
        train_until=origin - plan.valid,
        valid_until=origin,
        test_until=origin + plan.test,
        embargo=plan.task.embargo,
    )
    recent = recent_rows(split.train, until=origin - plan.valid, length=length)
    train, valid = _training(recent, plan), split.valid.filter(_is_step(plan))
    earlier = pl.concat([recent, split.valid.filter(~_is_step(plan))])
    single = {
        name: spec.fit(train, feature_names=names, task=plan.task)
        for name, spec in plan.members.items()
    }
    joined: dict[str, Member] = {}
    for name, (parts, rule) in plan.parallels.items():
        members = [single[part] for part in parts]
        joined[name] = fit_parallel(members, valid, earlier=earlier, rule=rule)
    for name, spec in plan.cascades.items():
        joined[name] = fit_cascade(
            train,
            valid,
            spec=spec,
            feature_names=names,
            task=plan.task,
            first=single[spec.first.name],
            earlier=earlier,
        )
    return _Fitted(single, joined)


def _is_step(plan: StudyPlan) -> pl.Expr:
    if plan.tested_every is None:
        return pl.lit(value=True)
    return pl.col("as_of").dt.epoch("us") % int(plan.tested_every.total_seconds() * 1e6) == 0


def _tested(
    rows: pl.DataFrame, *, origin: datetime, plan: StudyPlan
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows tested, and the rows between and before them, on which members may look back."""
    test = rows.filter(pl.col("as_of") >= origin, _is_step(plan))
    rest = rows.filter(pl.col("as_of") >= origin - plan.valid)
    return test, rest.join(test.select("entity_id", "as_of"), on=["entity_id", "as_of"], how="anti")


def _counts(
    models: _Fitted, test: pl.DataFrame, *, earlier: pl.DataFrame, plan: StudyPlan
) -> Iterator[dict[str, object]]:
    raw = {name: one.raw_scores(test, earlier=earlier) for name, one in models.single.items()}
    for name, model in models.joined.items():
        if isinstance(model, ParallelEnsemble):
            raw[name] = model.join([raw[part] for part in plan.parallels[name][0]])
        else:
            raw[name] = model.raw_scores(test, earlier=earlier)
    scored = test.select("entity_id", "as_of", "label").with_columns(
        pl.Series(name, scores) for name, scores in raw.items()
    )
    precision = {name: _average_precision(scored, scores) for name, scores in raw.items()}
    ranks = {name: rank_of_moment(scored, score=name) for name in raw}
    crossed = [name for name, (_, rule) in plan.parallels.items() if rule == "worst"]
    for share in plan.shares:
        k = share_of_moment(scored, share=share)
        sets = {name: top_k(rank, k) for name, rank in ranks.items()}
        for name in crossed:
            sets[name] = intersection([ranks[part] for part in plan.parallels[name][0]], k)
        for name, chosen in sets.items():
            yield _row(name, chosen, scored, share=share, matched_to=None, ap=precision[name])
        for ensemble in crossed:
            size = scored.select(sets[ensemble].cast(pl.Int64).alias("n"), "as_of").select(
                pl.col("n").sum().over("as_of")
            )
            for name, rank in ranks.items():
                chosen = top_k(rank, size.to_series())
                yield _row(
                    name, chosen, scored, share=share, matched_to=ensemble, ap=precision[name]
                )


def _row(
    name: str,
    chosen: pl.Series,
    scored: pl.DataFrame,
    *,
    share: float,
    matched_to: str | None,
    ap: float,
) -> dict[str, object]:
    found = alert_metrics(chosen, scored["label"])
    return {
        "model": name,
        "share": share,
        "matched_to": matched_to,
        "n_alerts": found.n_alerts,
        "n_true": found.n_true,
        "n_positive": found.n_positive,
        "average_precision": ap,
    }


def _average_precision(scored: pl.DataFrame, raw: FloatArray) -> float:
    label = scored["label"].fill_null(-1).to_numpy()
    return precision_of_ranking(raw[label >= 0], label[label >= 0])
