"""Whether techniques that change outputs keep the baseline's answers (handbook 7.3)."""

from collections.abc import Iterable

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.measurement.quality import QualityFigures, compare
from advisor.measurement.records import QualityPass
from advisor.recommender.evidence import StudyEvidence
from advisor.recommender.recommendation import QualityVerdict
from advisor.recommender.screening import testable
from advisor.serving import ServingConfig
from advisor.techniques import Technique


def quality_verdicts(
    evidence: StudyEvidence, techniques: Iterable[Technique]
) -> tuple[QualityVerdict, ...]:
    """One for every technique that changes outputs and could be tried here."""
    return tuple(
        quality_verdict(evidence, technique)
        for technique in techniques
        if technique.changes_outputs and testable(evidence, technique)
    )


def quality_verdict(evidence: StudyEvidence, technique: Technique) -> QualityVerdict:
    """The variant's answers against the baseline's, beside the baseline against itself."""
    reference = _passes(evidence, evidence.baseline)
    found = _passes(evidence, technique.variant(evidence.baseline))
    if not reference or not found:
        whose = "its" if reference else "the baseline's"
        return _unmeasured(technique, f"{whose} answers to the quality prompts are not there")
    try:
        figures = compare(reference[0], found[0])
        tolerance = compare(reference[0], reference[1]) if len(reference) > 1 else None
    except InvalidInput as error:
        return _unmeasured(technique, str(error))
    agreement, floor = figures.top1_agreement, evidence.goal.min_top1_agreement
    return QualityVerdict(
        technique=technique.key,
        figures=figures,
        tolerance=tolerance,
        within=None if agreement is None or floor is None else agreement.value >= floor,
        reason=_reason(agreement, floor, tolerance),
    )


def spoiled(
    evidence: StudyEvidence, config: ServingConfig, techniques: Iterable[Technique]
) -> str | None:
    """Why the answers of a configuration are below the goal's floor; None: not that anyone knows.

    A configuration that holds a technique's change is as good as the trial of that technique.
    """
    for technique in techniques:
        if technique.changes_outputs and _holds(config, technique, evidence.baseline):
            found = quality_verdict(evidence, technique)
            if found.within is False:
                return found.reason
    return None


def _holds(config: ServingConfig, technique: Technique, baseline: ServingConfig) -> bool:
    toggled = technique.toggle(baseline)
    return all(getattr(config.levers, name) == value for name, value in toggled.items())


def _passes(evidence: StudyEvidence, config: ServingConfig) -> tuple[QualityPass, ...]:
    """The quality passes of the first trial of a configuration that has some."""
    for trial in evidence.trials:
        if trial.plan.config == config and trial.quality is not None and trial.quality.passes:
            return trial.quality.passes
    return ()


def _unmeasured(technique: Technique, reason: str) -> QualityVerdict:
    return QualityVerdict(
        technique=technique.key, figures=None, tolerance=None, within=None, reason=reason
    )


def _reason(
    agreement: Estimate | None, floor: float | None, tolerance: QualityFigures | None
) -> str:
    if agreement is None:
        return "the engine did not say its most likely tokens"
    text = (
        f"it keeps {_share(agreement.value)} of the most likely tokens"
        f" ({_share(agreement.low)} to {_share(agreement.high)})"
    )
    if floor is not None:
        side = "at or above" if agreement.value >= floor else "below"
        text += f", {side} the floor of {_share(floor)}"
    itself = None if tolerance is None else tolerance.top1_agreement
    if itself is not None:
        alike = agreement.high >= itself.low
        text += f"; against itself the baseline keeps {_share(itself.value)}" + (
            ", and the two cannot be told apart" if alike else ""
        )
    return text


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"
