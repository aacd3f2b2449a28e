"""Limits on latency: who keeps them, and when a load is shown to pass."""

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.goal import ClassLimits, Goal
from advisor.measurement.clusters import effective_count
from advisor.measurement.records import Outcome
from advisor.measurement.slo import (
    Attained,
    Slo,
    attained,
    attainment,
    goodput_per_s,
    least_requests,
    slos_of,
)
from tests.fakes.records import record

SLO = Slo(ttft_s=0.5, tpot_s=0.2, e2e_s=3.0)


def sample(met: int, counted: int, slo: Slo = SLO) -> Attained:
    """Independent requests."""
    return Attained(met=met, counted=counted, requests=counted, slo=slo)


@pytest.mark.parametrize(
    "changes,met",
    [
        ({}, True),
        ({"first_token_s": 0.6}, False),
        ({"first_token_s": 0.1, "last_token_s": 2.0}, False),
        ({"intended_s": -2.1, "first_token_s": -1.9}, False),
        ({"outcome": Outcome.FAILED}, False),
        ({"outcome": Outcome.CANCELLED}, False),
        ({"output_tokens": None}, False),
        ({"output_tokens": 0, "first_token_s": None}, False),
        ({"first_token_s": None}, False),
        ({"output_tokens": 1}, True),
        ({"intended_s": -0.5}, False),
    ],
)
def test_a_request_keeps_its_limits_only_if_it_is_known_to(
    changes: dict[str, object],
    met: bool,  # noqa: FBT001 - a parameter of the table above
) -> None:
    """Failures and what has no token are not met; time counts from the intended send."""
    one = record(0, 1, **changes)

    assert SLO.met_by(one) is met


def test_attainment_counts_failures_and_names_its_requests() -> None:
    """8 of 10: one failed, one was too slow."""
    good = [record(0, 1) for _ in range(8)]
    found = attainment([*good, record(0, 1, outcome=Outcome.FAILED), record(0, 9)], SLO)

    assert found.value == pytest.approx(0.8)
    assert found.low == pytest.approx(0.490, abs=1e-3)
    assert found.high == pytest.approx(0.943, abs=1e-3)
    assert "10 requests" in found.basis


def test_turns_of_a_session_widen_the_interval() -> None:
    """Ten sessions of ten turns that stand or fall together are worth about ten requests."""
    ends = [9 if i % 5 == 2 else 1 for i in range(100)]
    alone = [record(0, end) for end in ends]
    turns = [record(0, end, session=str(i % 10)) for i, end in enumerate(ends)]
    found = attained(turns, SLO)

    assert attained(alone, SLO).counted > 95
    assert found.counted < 10
    assert found.estimate.value == pytest.approx(0.8)
    assert found.estimate.low < attainment(alone, SLO).low - 0.1


def test_misses_in_a_row_are_worth_few_requests() -> None:
    """Requests that run at once share their steps: 20 misses in a row are one event."""
    together = attained([record(i, i + (1 if i < 80 else 9)) for i in range(100)], SLO)

    assert together.counted < 20
    assert not together.failed


def test_independent_turns_cost_little() -> None:
    """Where sessions do not matter, 400 turns of 40 sessions are worth most of themselves."""
    rng = np.random.default_rng(1)
    worth = effective_count(rng.binomial(10, 0.7, 40).astype(float), np.full(40, 10.0))

    assert 200 < worth <= 400


def test_one_session_is_one_observation() -> None:
    """However many turns it has."""
    assert effective_count(np.array([50.0]), np.array([50.0])) == 1
    with pytest.raises(InvalidInput):
        effective_count(np.array([]), np.array([]))


def test_a_goal_is_one_slo_for_each_limit() -> None:
    """Limits on 95th percentiles are met by 95 % of requests each, classes apart."""
    goal = Goal(ttft_p95_s=1.0, tpot_p95_s=0.1, class_limits={"code": ClassLimits(tpot_p95_s=0.05)})
    slos = slos_of(goal)

    assert slos_of(Goal()) == ()
    assert [(slo.label, slo.ttft_s, slo.tpot_s) for slo in slos] == [
        (None, 1.0, None),
        (None, None, 0.1),
        ("code", None, 0.05),
    ]
    assert {slo.attainment for slo in slos} == {0.95}
    assert slos[2].text == "TPOT <= 0.05 s in 95% of requests of class code"


def test_only_requests_of_the_class_count() -> None:
    """And where there is none, that is said."""
    records = [record(0, 9, label="chat"), record(0, 1, label="code")]

    assert attainment(records, Slo(e2e_s=3, label="code")).value == 1.0
    with pytest.raises(InvalidInput, match="no request"):
        attainment(records, Slo(e2e_s=3, label="mail"))


def test_a_load_passes_or_fails_by_evidence_not_by_its_share() -> None:
    """91 of 100 is above 90 % and shows nothing; 100 of 100 passes, 75 of 100 fails."""
    assert (sample(91, 100).passed, sample(91, 100).failed) == (False, False)
    assert (sample(100, 100).passed, sample(100, 100).failed) == (True, False)
    assert (sample(0, 5000).passed, sample(0, 5000).failed) == (False, True)
    assert (sample(75, 100).passed, sample(75, 100).failed) == (False, True)
    assert least_requests(SLO) == 43


def test_more_requests_are_needed_for_a_higher_share() -> None:
    """99 % cannot be shown by fifty requests."""
    strict = Slo(ttft_s=1.0, attainment=0.99)

    assert not sample(50, 50, strict).passed
    assert least_requests(strict) > 400


@pytest.mark.parametrize("truth", [0.9, 0.85])
def test_looking_after_every_repeat_does_not_make_a_load_pass(truth: float) -> None:
    """A load at the wanted share or below passes in at most 5 % of series of 30 looks."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(300):
        met = np.cumsum(rng.binomial(20, truth, 30))
        wrong += any(sample(int(m), 20 * (i + 1)).passed for i, m in enumerate(met))

    assert wrong / 300 <= 0.05


def test_goodput_counts_requests_within_limits() -> None:
    """Two of three in four seconds."""
    records = [record(0, 1), record(1, 2), record(0, 4)]

    assert goodput_per_s(records, SLO) == pytest.approx(0.5)
    with pytest.raises(InvalidInput):
        goodput_per_s([], SLO)
    with pytest.raises(InvalidInput):
        goodput_per_s([record(0, 0, first_token_s=0)], SLO)


@pytest.mark.parametrize(
    "bad", [{}, {"ttft_s": 0.0}, {"ttft_s": 1.0, "attainment": 1.0}, {"e2e_s": float("inf")}]
)
def test_an_slo_without_a_limit_is_none(bad: dict[str, float]) -> None:
    """Nor one that nobody can keep."""
    with pytest.raises(InvalidInput):
        Slo(**bad)  # type: ignore[arg-type]


def test_samples_of_other_limits_are_not_joined() -> None:
    """Repeats must be held against the same."""
    with pytest.raises(InvalidInput):
        sample(1, 1).joined(sample(1, 1, Slo(ttft_s=2.0)))
    with pytest.raises(InvalidInput):
        sample(2, 1)
