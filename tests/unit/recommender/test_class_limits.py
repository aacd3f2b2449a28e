"""Limits of single classes of requests."""

from dataclasses import replace
from functools import cache

import pytest

from advisor.errors import InvalidInput
from advisor.goal import ClassLimits, Goal
from advisor.recommender.evidence import StudyEvidence
from advisor.recommender.limits import LEAST_FOR_P95
from advisor.recommender.ranking import ranked
from advisor.recommender.recommendation import RankedConfig
from advisor.techniques import TECHNIQUES
from tests.fakes.planted_world import World, study


@cache
def usual() -> StudyEvidence:
    """A whole study of the usual world."""
    return study(World())


def order(goal: Goal, evidence: StudyEvidence | None = None) -> tuple[RankedConfig, ...]:
    """The ranking of the usual study under another goal."""
    return ranked(replace(evidence or usual(), goal=goal), TECHNIQUES)


def label() -> str:
    """The class with the most requests."""
    classes = usual().trials[0].points[0].classes
    return max(classes, key=lambda item: item.requests).label


def limited(limits: ClassLimits, name: str | None = None) -> Goal:
    """A goal with limits of one class."""
    return Goal(concurrency=usual().goal.concurrency, class_limits={name or label(): limits})


def test_a_class_that_misses_its_limit_is_named() -> None:
    """With what it showed; the limits on all requests are kept."""
    found = order(limited(ClassLimits(ttft_p95_s=1e-6, tpot_p95_s=100.0)))

    assert not any(item.feasible for item in found)
    assert f'TTFT p95 of class "{label()}" of' in (found[0].why_not or "")
    assert "above the limit of" in (found[0].why_not or "")
    assert "TPOT" not in (found[0].why_not or "")


def test_a_class_that_keeps_its_limits_changes_nothing() -> None:
    """The same order as without."""
    free = order(Goal(concurrency=usual().goal.concurrency))
    kept = order(limited(ClassLimits(ttft_p95_s=1e6, tpot_p95_s=1e6)))

    assert [item.config_hash for item in kept] == [item.config_hash for item in free]
    assert all(item.why_not is None for item in kept)


def test_a_class_of_few_requests_is_unknown_not_met() -> None:
    """Below twenty requests a 95th percentile says nothing."""
    few = tuple(
        replace(
            trial,
            points=tuple(
                replace(
                    point,
                    classes=tuple(
                        replace(
                            item,
                            tpot_s=item.tpot_s and replace(item.tpot_s, count=LEAST_FOR_P95 - 1),
                        )
                        for item in point.classes
                    ),
                )
                for point in trial.points
            ),
        )
        for trial in usual().trials
    )
    goal = limited(ClassLimits(ttft_p95_s=1e6, tpot_p95_s=1e6))
    found = order(goal, replace(usual(), trials=few))

    assert not any(item.feasible for item in found)
    assert "was not measured on 20 of its requests, so nobody knows" in (found[0].why_not or "")
    assert (found[0].why_not or "").startswith("TPOT")


def test_a_class_that_the_traffic_lacks_is_unknown() -> None:
    """A misspelt name does not pass as kept."""
    found = order(limited(ClassLimits(ttft_p95_s=1e6), "no such class"))

    assert not any(item.feasible for item in found)
    assert 'class "no such class" was not measured' in (found[0].why_not or "")


def test_limits_are_positive() -> None:
    """As those on all requests."""
    with pytest.raises(InvalidInput, match="tpot_p95_s"):
        ClassLimits(tpot_p95_s=0)
