"""Forecasts beside what was then measured."""

from advisor.recommender.arms import throughput_arms
from advisor.recommender.evidence import StudyEvidence
from advisor.recommender.ranking import BASELINE_TITLE
from advisor.recommender.recommendation import Prediction


def predictions(evidence: StudyEvidence) -> tuple[Prediction, ...]:
    """One for every configuration and load that was both predicted before its trial and measured.

    The first trial of a configuration made its prediction, from the roofline alone.
    """
    arms = throughput_arms(evidence)
    found: dict[tuple[str, int], Prediction] = {}
    for trial in evidence.trials:
        config = trial.plan.config
        title = BASELINE_TITLE if config == evidence.baseline else trial.plan.title
        for load, predicted in trial.plan.predicted:
            measured = arms.figure(config.hash, load)
            if measured is not None:
                found.setdefault(
                    (config.hash, load),
                    Prediction(
                        title=title, concurrency=load, predicted=predicted, measured=measured
                    ),
                )
    return tuple(found.values())
