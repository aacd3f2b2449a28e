"""`advance(study)`: take one study one step further. The study's row is the truth."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from advisor.errors import InvalidInput
from advisor.recommender.evidence import StudyEvidence
from advisor.recommender.planner import Finished, next_step, plan_preview
from advisor.recommender.recommend import recommend
from advisor.states import STUDY_OVER, TRIAL_OVER, StudyState, TrialState
from advisor.traffic.columns import (
    requests_from_parquet,
    tokens_from_parquet,
    tokens_to_parquet,
)
from advisor.traffic.sample import probe_subset
from advisor.traffic.summary import summarise
from advisor.traffic.tokens import token_columns
from advisor.traffic.trace import Request, TokenColumns
from db import engines, recommendations, studies, targets, trials, workloads
from db.session import transaction
from db.tables import StudyRow, TargetRow, TrialRow
from db.tokenizer import chat_tokenizer
from probes.device import machine_text
from probes.lease import DeviceHold
from probes.load.plan import ReplayRule
from probes.targets import refuse_changed
from probes.trial import Sample
from probes.trial_run import TrialRun
from probes.workplace import Workplace

BLOCK_SIZES = {"cpu": 128, "cuda": 16}  # vLLM's default number of tokens in a KV block
UNLIMITED_TOKENS = 1 << 30  # a model that names no limit: the engine has the last word
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The upload of a study, and its tokens under the target's tokenizer."""

    digest: str
    requests: tuple[Request, ...]
    tokens: TokenColumns


class Advance:
    """One step of one study, under the device's lease."""

    def __init__(self, place: Workplace, hold: DeviceHold, study_id: UUID) -> None:
        self.place = place
        self.hold = hold
        self.study_id = study_id

    def step(self) -> None:
        """What the state asks for; a study that is over is left alone."""
        study = self.study()
        if study.state in STUDY_OVER:
            return
        if study.cancel_requested:
            self.move(StudyState.CANCELLED)  # its waiting trials are skipped with it
            return
        match StudyState(study.state):
            case StudyState.QUEUED:
                self.move(StudyState.PLANNING)
            case StudyState.PLANNING:
                self.plan(study)
            case StudyState.PROBING:
                self.probe(study)
            case StudyState.ANALYSING:
                self.analyse(study)
            case _:
                return

    def study(self) -> StudyRow:
        """The row as it is now."""
        with transaction(self.place.sessions) as session:
            return studies.one(session, self.study_id, None)

    def target(self, study: StudyRow) -> TargetRow:
        """The inspected target of the study, with its tokenizer."""
        with transaction(self.place.sessions) as session:
            return targets.one(session, study.target_id, None)

    def evidence(self) -> StudyEvidence:
        """All that the study knows at this moment."""
        with transaction(self.place.sessions) as session:
            return studies.evidence(session, self.study_id)

    def move(self, wanted: StudyState, **detail: str) -> None:
        """A transition, with its audit row and event."""
        with transaction(self.place.sessions) as session:
            study = studies.one(session, self.study_id, None)
            studies.transition(
                session,
                study,
                wanted,
                actor=self.place.actor,
                now=self.place.now(),
                detail=detail or None,
            )

    # ---------------------------------------------------------------------------- planning

    def plan(self, study: StudyRow) -> None:
        """Tokenise the upload once, see that something of it can be replayed, forecast."""
        target = self.target(study)
        refuse_changed(Path(str(target.model_path)), target.model_digest)
        traffic = self.traffic(study, target)
        try:
            self.sample(study, target, traffic)
        except InvalidInput as error:
            self.move(StudyState.INFEASIBLE, error=str(error))
            return
        self.report(self.evidence())
        self.move(StudyState.PROBING)

    def traffic(self, study: StudyRow, target: TargetRow) -> Traffic:
        """The requests and their token columns, which are computed at the first call only."""
        tokenizer = chat_tokenizer(target)
        digests = (tokenizer.tokenizer_digest, tokenizer.template_digest)
        with transaction(self.place.sessions) as session:
            requests = tuple(
                request
                for body in workloads.chunks(session, study.workload_id)
                for request in requests_from_parquet(body)
            )
            known = workloads.token_columns(session, study.workload_id, *digests)
            digest = workloads.one(session, study.workload_id, None).digest
        if known is not None:
            tokens = tokens_from_parquet(known.body)
            return Traffic(digest=digest, requests=requests, tokens=tokens)
        self.place.event("study", self.study_id, "progress", {"phase": "tokenising"})
        tokens = token_columns(requests, tokenizer)
        summary = summarise(requests, tokens, block_size=self.block_size(study, target))
        with transaction(self.place.sessions) as session:
            workloads.put_token_columns(
                session,
                workload_id=study.workload_id,
                tokenizer_digest=digests[0],
                template_digest=digests[1],
                summary=summary,
                body=tokens_to_parquet(tokens),
            )
        return Traffic(digest=digest, requests=requests, tokens=tokens)

    def block_size(self, study: StudyRow, target: TargetRow) -> int:
        """Tokens in a KV block of the baseline."""
        kind = target.device.kind if target.device else "cpu"
        return study.baseline.levers.block_size or BLOCK_SIZES[kind]

    def sample(self, study: StudyRow, target: TargetRow, traffic: Traffic) -> Sample:
        """The subset of requests that all trials of the study share.

        Raises `InvalidInput` when no request fits the model's length.
        """
        if target.shape is None:
            raise InvalidInput("target", "was not inspected")
        settings = self.place.settings
        rule = ReplayRule(
            cap_tokens=settings.output_token_cap,
            default_tokens=min(settings.default_output_tokens, settings.output_token_cap),
            fixed=True,
            vocab_size=target.shape.vocab_size,
            seed=study.seed,
            tool_parser=target.functional.tool_call_parser is not None,
        )
        lengths = [_length(tokens) for tokens in traffic.tokens.outputs]
        # What fits is decided with the limits that are sent, not with those of the upload.
        sent = [
            replace(request, max_tokens=rule.limit(request, length))
            for request, length in zip(traffic.requests, lengths, strict=True)
        ]
        indexes = probe_subset(
            sent,
            traffic.tokens,
            size=study.requests_per_point,
            seed=study.seed,
            max_prompt_tokens=(
                target.functional.max_model_len
                or target.shape.max_position_embeddings
                or UNLIMITED_TOKENS
            ),
            mean_prompt_limit=settings.mean_prompt_limit,
        )
        return Sample(
            workload_digest=traffic.digest,
            requests=tuple(traffic.requests[i] for i in indexes),
            output_tokens=tuple(lengths[i] for i in indexes),
            rule=rule,
        )

    # ----------------------------------------------------------------------------- probing

    def probe(self, study: StudyRow) -> None:
        """Measure one trial: an interrupted one first, else what the planner says."""
        trial = self.next_trial()
        if trial is None:
            self.move(StudyState.ANALYSING)
            return
        target = self.target(study)
        sample = self.sample(study, target, self.traffic(study, target))
        with transaction(self.place.sessions) as session:
            engine = engines.one(session, target.engine_id)
        run = TrialRun(
            place=self.place,
            hold=self.hold,
            study=study,
            trial=trial,
            target=target,
            engine=engine,
            sample=sample,
            report=lambda share, running_s: self.report(
                self.evidence(), key=trial.key, share=share, running_s=running_s
            ),
        )
        run.measure()
        self.report(self.evidence())

    def next_trial(self) -> TrialRow | None:
        """The trial to run now, or None when the planner is finished."""
        with transaction(self.place.sessions) as session:
            for trial in trials.of_study(session, self.study_id):
                if trial.state == TrialState.QUEUED:
                    return trial
        step = next_step(self.evidence())
        if isinstance(step, Finished):
            return None
        with transaction(self.place.sessions) as session:
            trial = studies.ensure_trial(
                session, studies.one(session, self.study_id, None), step, now=self.place.now()
            )
        if trial.state in TRIAL_OVER:
            LOG.warning("study %s: trial %s is over, nothing to repeat", self.study_id, trial.key)
            return None
        return trial

    def report(
        self,
        evidence: StudyEvidence,
        *,
        key: str | None = None,
        share: float = 0.0,
        running_s: float = 0.0,
    ) -> None:
        """Progress and remaining time from the plan.

        `share` of trial `key` is done, whose engine runs since `running_s`.
        """
        remaining_s = remaining_time_s(evidence, key, share)
        spent_s = evidence.spent_s + running_s
        with transaction(self.place.sessions) as session:
            study = studies.one(session, self.study_id, None)
            whole_s = spent_s + remaining_s
            studies.set_progress(
                session,
                study,
                progress=max(study.progress, min(0.99, spent_s / whole_s if whole_s else 0.0)),
                remaining_s=remaining_s,
                now=self.place.now(),
            )

    # --------------------------------------------------------------------------- analysing

    def analyse(self, study: StudyRow) -> None:
        """Turn the evidence into the recommendation, or say why there is none."""
        evidence = self.evidence()
        if not any(trial.points for trial in evidence.trials):
            self.move(StudyState.FAILED, error=nothing_measured(evidence))
            return
        advice = recommend(evidence, study_id=str(study.id), machine=machine_text(evidence.device))
        with transaction(self.place.sessions) as session:
            row = studies.one(session, self.study_id, None)
            now = self.place.now()
            recommendations.create(session, row, advice, now=now)
            studies.set_progress(session, row, progress=1.0, remaining_s=0.0, now=now)
            studies.transition(
                session,
                row,
                StudyState.DONE if advice.conclusive else StudyState.INCONCLUSIVE,
                actor=self.place.actor,
                now=now,
                detail={"recommendation_hash": advice.hash},
            )


def _length(tokens: Sequence[int] | None) -> int | None:
    return None if tokens is None else len(tokens)


def remaining_time_s(evidence: StudyEvidence, key: str | None, share: float) -> float:
    """Expected seconds of the trials that are not over; of trial `key` the open `share`."""
    over = {trial.plan.key for trial in evidence.trials if trial.state in TRIAL_OVER}
    open_plans = [plan for plan in plan_preview(evidence) if plan.key not in over]
    return sum(plan.expected_s * (1.0 - share if plan.key == key else 1.0) for plan in open_plans)


def nothing_measured(evidence: StudyEvidence) -> str:
    """Why a study has no load point: the failures of its trials."""
    failures = [
        f"{trial.plan.title}: {trial.failure_kind} ({trial.failure_detail or 'no detail'})"
        for trial in evidence.trials
        if trial.failure_kind is not None
    ]
    return "no load point could be measured; " + ("; ".join(failures) or "no trial was run")
