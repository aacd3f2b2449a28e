"""The search for the largest load that meets its limits."""

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.measurement.capacity import Capacity, Search, Tried, TryLoad, next_load
from advisor.measurement.slo import Attained, Slo
from tests.fakes.planted_capacity import SLO, PlantedCapacity, measured, searched

PASSES = (Attained(met=100, counted=100, requests=100, slo=SLO),)
FAILS = (Attained(met=50, counted=100, requests=100, slo=SLO),)
OPEN = (Attained(met=91, counted=100, requests=100, slo=SLO),)
SEARCH = Search(lowest=1.0, highest=64.0)


def tried(*loads: tuple[float, tuple[Attained, ...]]) -> list[Tried]:
    """Loads with what came of them."""
    return [Tried(load=load, attained=sample) for load, sample in loads]


def step(*loads: tuple[float, tuple[Attained, ...]], search: Search = SEARCH) -> TryLoad:
    """The next load, of which there must be one."""
    found = next_load(tried(*loads), search)
    assert isinstance(found, TryLoad)
    return found


def ended(*loads: tuple[float, tuple[Attained, ...]], search: Search = SEARCH) -> Capacity:
    """The answer, which must be there."""
    found = next_load(tried(*loads), search)
    assert isinstance(found, Capacity)
    return found


def test_loads_double_until_one_fails_and_the_bracket_is_halved() -> None:
    """On the logarithm: between 4 and 8 lies 5.66."""
    assert step().load == 1.0
    assert step((1.0, PASSES)).load == 2.0
    assert step((1.0, PASSES), (4.0, PASSES), (8.0, FAILS)).load == pytest.approx(32**0.5)


def test_a_first_load_that_fails_is_halved() -> None:
    """Down to the lowest, which then is the answer's reason."""
    assert step((8.0, FAILS)).load == 4.0
    found = ended((1.0, FAILS))

    assert (found.load, found.fails_at, found.estimate) == (None, 1.0, None)
    assert found.reason.startswith("even the lowest load did not pass: 50.0% of requests kept")


def test_the_answer_is_a_load_that_passed_with_the_failing_one_as_its_end() -> None:
    """A failing load is never the answer, however close."""
    found = ended((4.0, PASSES), (4.1, FAILS))

    assert (found.load, found.fails_at, found.at_least) == (4.0, 4.1, False)
    assert found.estimate is not None
    assert (found.estimate.low, found.estimate.value, found.estimate.high) == (4.0, 4.0, 4.1)


def test_a_highest_load_that_passes_is_a_lower_bound() -> None:
    """At least 64, and no interval is made up."""
    found = ended((64.0, PASSES))

    assert (found.load, found.at_least, found.estimate) == (64.0, True, None)


def test_an_undecided_load_is_repeated_and_then_not_taken() -> None:
    """Three times; what was not shown to pass is not the answer and was not shown to fail."""
    again = step((4.0, PASSES), (4.1, OPEN))
    found = ended((4.0, PASSES), *[(4.1, OPEN)] * 3, (8.0, FAILS))

    assert (again.load, again.repeat) == (4.1, 2)
    assert (found.load, found.fails_at, found.undecided) == (4.0, 8.0, (4.1,))


def test_an_undecided_end_asks_for_a_load_that_fails() -> None:
    """Else the bracket would have no upper end, though more than its middle is not served."""
    undecided = [(4.0, PASSES), *[(4.1, OPEN)] * 3]

    assert step(*undecided).load == 8.2
    assert ended(*undecided, (8.2, FAILS)).fails_at == 8.2
    assert ended(*undecided, search=Search(lowest=1.0, highest=4.1)).at_least


def test_repeats_are_judged_together() -> None:
    """Three times 96 of 100: none passes alone, together they do."""
    some = (Attained(met=96, counted=100, requests=100, slo=SLO),)

    assert step((64.0, some)).repeat == 2
    assert ended(*[(64.0, some)] * 3).load == 64.0


def test_a_pass_above_a_failure_is_looked_at_again() -> None:
    """The failure first, then the pass; if both stay, nothing above the failure counts."""
    first = step((1.0, PASSES), (2.0, FAILS), (4.0, PASSES))
    loads = [(1.0, PASSES), (1.04, FAILS), (1.04, FAILS), (1.04, FAILS), *[(4.0, PASSES)] * 3]

    assert (first.load, first.repeat) == (2.0, 2)
    assert step(*loads[:5]).load == 4.0
    assert ended(*loads).load == 1.0


def test_a_growing_queue_fails_whatever_the_latency() -> None:
    """A short load hides what a long one shows."""
    grows = [Tried(load=4.0, attained=PASSES), Tried(load=4.1, attained=PASSES, holds=False)]
    found = next_load(grows, SEARCH)

    assert isinstance(found, Capacity)
    assert found.load == 4.0
    assert "did not keep up" in found.reason


def test_a_queue_that_cannot_be_judged_is_measured_again() -> None:
    """Unknown is not held; one repeat that holds is enough."""
    unknown = Tried(load=64.0, attained=PASSES, holds=None)
    again = next_load([unknown], SEARCH)
    found = next_load([unknown, Tried(load=64.0, attained=PASSES)], SEARCH)

    assert isinstance(again, TryLoad)
    assert isinstance(found, Capacity)
    assert found.load == 64.0


def test_what_the_client_could_not_offer_is_no_failure_of_the_engine() -> None:
    """The search ends there, with a lower bound."""
    loads = [
        Tried(load=4.0, attained=PASSES),
        Tried(load=4.1, attained=FAILS, limited="one core was busy"),
    ]
    found = next_load(loads, SEARCH)

    assert isinstance(found, Capacity)
    assert (found.load, found.at_least, found.undecided) == (4.0, True, (4.1,))
    assert "client could not offer it: one core was busy" in found.reason


def test_every_slo_must_be_met() -> None:
    """One that fails fails the load."""
    other = Attained(met=10, counted=100, requests=100, slo=Slo(e2e_s=9.0))
    found = next_load([Tried(load=1.0, attained=(*PASSES, other))], SEARCH)

    assert isinstance(found, Capacity)
    assert found.load is None
    assert "end-to-end time <= 9 s" in found.reason


def test_numbers_of_requests_in_flight_are_whole() -> None:
    """And end at neighbours."""
    search = Search(lowest=1, highest=64, whole=True)
    middle = step((4, PASSES), (8, FAILS), search=search)
    found = ended((5, PASSES), (6, FAILS), search=search)

    assert middle.load == 6
    assert found.load == 5


def test_the_number_of_loads_is_bounded() -> None:
    """With what is known then."""
    search = Search(lowest=1.0, highest=64.0, most_tries=2)
    found = ended((1.0, PASSES), (2.0, PASSES), search=search)

    assert (found.load, found.tries) == (2.0, 2)
    assert "ended after 2 loads" in found.reason


def test_the_planted_capacity_is_found() -> None:
    """Within a tenth in most of 40 searches with 200 requests a load, and hardly ever above."""
    truth = PlantedCapacity(knee=5.0)
    above = near = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found, _ = searched(
            SEARCH,
            lambda load: Tried(load=load, attained=measured(truth.share(load), 200, rng)),  # noqa: B023
        )
        assert found.load is not None
        above += found.load > 1.02 * truth.capacity
        near += abs(found.load / truth.capacity - 1) < 0.1

    assert above <= 2
    assert near >= 34


@pytest.mark.parametrize(
    "bad",
    [
        {"lowest": 0.0},
        {"highest": 0.5},
        {"start": 100.0},
        {"whole": True, "highest": 9.5},
        {"precision": 0.0},
        {"most_repeats": 0},
    ],
)
def test_a_search_without_a_range_is_refused(bad: dict[str, float]) -> None:
    """Nor without tries."""
    with pytest.raises(InvalidInput):
        Search(**{"lowest": 1.0, "highest": 64.0, **bad})  # type: ignore[arg-type]


def test_repeats_against_other_limits_are_refused() -> None:
    """They cannot be pooled."""
    other = (Attained(met=1, counted=1, requests=1, slo=Slo(e2e_s=9.0)),)
    with pytest.raises(InvalidInput):
        next_load(tried((1.0, PASSES), (1.0, other)), SEARCH)
