"""Measurements and studies as llm-d benchmark reports, in JSON or YAML."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from sqlalchemy.orm import Session

from advisor.canonical import Json, as_json
from advisor.errors import NotFound, StateConflict
from advisor.measurement.benchmark_report import (
    MeasuredEngine,
    MeasuredRun,
    benchmark_report,
    reports_of,
)
from advisor.measurement.report import Rank, measured_point
from api.documents.yaml_text import as_yaml
from db import runs, targets, trials
from db.measurement_tables import MeasurementRow
from db.tables import EngineRunRow, StudyRow, TargetRow, TrialRow

TOOL = "rooftune"
MEDIA_TYPES = {"json": "application/json", "yaml": "application/yaml"}
Report = Mapping[str, Json]


def of_measurement(row: MeasurementRow) -> tuple[Report, ...]:
    """One report for each usable load; `StateConflict` where there is none."""
    return _some("measurement", reports_of(row.report, str(row.id)))


def of_study(session: Session, study: StudyRow) -> tuple[Report, ...]:
    """One report for each usable load of the study's trials; `StateConflict` where none is."""
    target = targets.one(session, study.target_id, None)
    starts = {run.id: run for run in runs.of_study(session, study.id)}
    points = trials.points(session, study.id)
    usable = [
        (row, trial)
        for trial in trials.of_study(session, study.id)
        for row in points.get(trial.id, ())
        if row.point.usable
    ]
    reports = [
        benchmark_report(
            measured_point(row.point),
            MeasuredRun(
                uid=str(row.id),
                experiment=str(study.id),
                rank=Rank.OWN_ENGINE,
                tool=TOOL,
                tool_version=version(TOOL),
                stage=stage,
                ended_epoch_s=row.created_at.timestamp(),
                engine=_engine(target, trial, starts.get(row.engine_run_id)),
                keywords=(trial.plan.title, row.role),
            ),
        )
        for stage, (row, trial) in enumerate(usable)
    ]
    return _some("study", reports)


def written(reports: Sequence[Report], form: str, place: int | None) -> str:
    """All reports as one text, or the one at a place (from 0); YAML is a stream of documents."""
    if place is not None and place >= len(reports):
        raise NotFound("benchmark report", f"{place} of {len(reports)}")
    chosen = [dict(item) for item in (reports if place is None else [reports[place]])]
    if form == "yaml":
        return as_yaml(chosen)
    value = chosen if place is None else chosen[0]
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _some(noun: str, reports: Sequence[Report]) -> tuple[Report, ...]:
    if not reports:
        remedy = "see the remarks and flaws of its loads"
        raise StateConflict(noun, "without a usable load", "exported", remedy)
    return tuple(reports)


def _engine(target: TargetRow, trial: TrialRow, run: EngineRunRow | None) -> MeasuredEngine | None:
    """The engine of a trial; None where nothing is known of its device."""
    if target.device is None:
        return None
    facts = None if run is None else run.facts
    config = trial.plan.config
    return MeasuredEngine(
        label="engine",
        config_hash=trial.config_hash,
        tool="vllm",
        tool_version=None if facts is None else facts.vllm_version,
        model=target.model,
        device=target.device.name,
        accelerators=0 if target.device.kind == "cpu" else 1,
        settings={
            name: value
            for part in (config.functional, config.overrides())
            for name, value in _plain(part).items()
            if value is not None
        },
    )


def _plain(part: object) -> Mapping[str, Json]:
    found = as_json(part)
    return found if isinstance(found, dict) else {}
