"""Failures that another start would meet again, by engine, device class and model."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from advisor.failures import RememberedFailure, lever_bound
from advisor.serving import ServingConfig
from advisor.states import TRIAL_OVER, FailureKind
from db import audit, events, studies
from db.audit import Actor
from db.failure_tables import EngineFailureRow
from db.tables import EngineRow, StudyRow, TrialRow


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePlace:
    """Where a failure holds: it says nothing about another engine build, device or model."""

    engine_version: str
    engine_build: str
    device_class: str
    model_digest: str


def place_of(engine: EngineRow, *, device_class: str, model_digest: str) -> FailurePlace:
    """The place of a start with this registered engine."""
    return FailurePlace(
        engine_version=engine.version,
        engine_build=f"{engine.distribution} {engine.build}",
        device_class=device_class,
        model_digest=model_digest,
    )


def remember(session: Session, place: FailurePlace, failure: RememberedFailure) -> None:
    """Keep a failure; of one configuration or setting only the latest is kept."""
    same = select(EngineFailureRow).where(
        *_at(place),
        EngineFailureRow.config_hash.is_not_distinct_from(failure.config_hash),
        EngineFailureRow.setting.is_not_distinct_from(failure.setting),
        EngineFailureRow.setting_value.is_not_distinct_from(failure.setting_value),
    )
    row = session.scalars(same.limit(1)).first()
    if row is None:
        row = EngineFailureRow(
            id=uuid.uuid4(),
            engine_version=place.engine_version,
            engine_build=place.engine_build,
            device_class=place.device_class,
            model_digest=place.model_digest,
            config_hash=failure.config_hash,
            setting=failure.setting,
            setting_value=failure.setting_value,
        )
        session.add(row)
    row.bound = failure.bound
    row.kind = failure.kind.value
    row.detail = failure.detail
    row.failed_at = failure.failed_at
    session.flush()


def remembered(session: Session, place: FailurePlace) -> tuple[RememberedFailure, ...]:
    """What is known to fail there, the latest first."""
    query = select(EngineFailureRow).where(*_at(place))
    found = session.scalars(query.order_by(EngineFailureRow.failed_at.desc(), EngineFailureRow.id))
    return tuple(_read(row) for row in found)


def of_engine(session: Session, engine: EngineRow) -> tuple[RememberedFailure, ...]:
    """All that is remembered of an engine's version and build, the latest first."""
    query = select(EngineFailureRow).where(*_of(engine))
    found = session.scalars(query.order_by(EngineFailureRow.failed_at.desc(), EngineFailureRow.id))
    return tuple(_read(row) for row in found)


def forget(session: Session, engine: EngineRow, *, actor: Actor, now: datetime) -> int:
    """Clear what is remembered of an engine's version and build; how many there were.

    The next study meets every failure again: for whoever repaired something that Rooftune cannot
    see.
    """
    gone = delete(EngineFailureRow).where(*_of(engine)).returning(EngineFailureRow.id)
    count = len(session.scalars(gone).all())
    audit.write(
        session,
        actor=actor,
        action="forget failures",
        noun="engine",
        noun_id=engine.id,
        now=now,
        detail={"forgotten": count},
    )
    return count


def lower(
    session: Session,
    study_id: uuid.UUID,
    failure: RememberedFailure,
    *,
    actor: Actor,
    now: datetime,
) -> None:
    """Keep the study within the bound of `failure`: its baseline and every trial not over.

    All trials are compared with the baseline, so it is lowered with them; a note in the study's
    options, an event and an audit row say so.
    """
    study = studies.lock(session, study_id)
    setting, bound = failure.setting, failure.bound
    if setting is None or bound is None:
        return
    note = f"{setting} is lowered to {bound}: {failure.detail}"
    if _above(study.baseline, failure):
        study.baseline = study.baseline.changed({setting: bound})
        notes = (*study.options.baseline_notes, note)
        study.options = replace(study.options, baseline_notes=notes)
    for trial in _open_trials(session, study):
        if _above(trial.plan.config, failure):
            config = trial.plan.config.changed({setting: bound})
            trial.plan = replace(trial.plan, config=config)
            trial.config_hash = config.hash
    session.flush()
    body = {"setting": setting, "bound": bound, "reason": failure.detail}
    audit.write(
        session,
        actor=actor,
        action="lower",
        noun=studies.NOUN,
        noun_id=study.id,
        now=now,
        project_id=study.project_id,
        detail=body,
    )
    events.append(session, noun=studies.NOUN, noun_id=study.id, kind="lowered", body=body, now=now)


def _above(config: ServingConfig, failure: RememberedFailure) -> bool:
    return lever_bound(config, failure.setting, failure.bound) is not None


def _open_trials(session: Session, study: StudyRow) -> Iterable[TrialRow]:
    over = [state.value for state in TRIAL_OVER]
    query = select(TrialRow).where(TrialRow.study_id == study.id, TrialRow.state.not_in(over))
    return session.scalars(query.with_for_update(key_share=True))


def _at(place: FailurePlace) -> tuple[ColumnElement[bool], ...]:
    return (
        EngineFailureRow.engine_version == place.engine_version,
        EngineFailureRow.engine_build == place.engine_build,
        EngineFailureRow.device_class == place.device_class,
        EngineFailureRow.model_digest == place.model_digest,
    )


def _of(engine: EngineRow) -> tuple[ColumnElement[bool], ...]:
    return (
        EngineFailureRow.engine_version == engine.version,
        EngineFailureRow.engine_build == f"{engine.distribution} {engine.build}",
    )


def _read(row: EngineFailureRow) -> RememberedFailure:
    return RememberedFailure(
        kind=FailureKind(row.kind),
        detail=row.detail,
        failed_at=row.failed_at,
        config_hash=row.config_hash,
        setting=row.setting,
        setting_value=row.setting_value,
        bound=row.bound,
    )
