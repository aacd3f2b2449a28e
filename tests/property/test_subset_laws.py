"""Laws of representative subsets."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.traffic.facts import Facts
from advisor.traffic.reuse.kinship import Chains
from advisor.traffic.sampling.subset import representative, subset_distance
from advisor.traffic.sampling.traits import gap_variation
from tests.unit.traffic.population import mixture, population

counts = st.integers(0, 3000)


@st.composite
def uploads(draw: st.DrawFn) -> Facts:
    """Requests of up to three classes, some in sessions, with arrivals that often coincide."""
    rows = draw(
        st.lists(
            st.tuples(counts, counts, st.sampled_from(["a", "a", "b", "c"]), st.integers(-4, 6)),
            min_size=1,
            max_size=60,
        )
    )
    gaps = draw(st.lists(st.integers(0, 9), min_size=len(rows), max_size=len(rows)))
    return population(
        prompts=[row[0] for row in rows],
        outputs=[row[1] for row in rows],
        arrivals=np.cumsum(gaps).astype(float).tolist(),
        labels=[row[2] for row in rows],
        sessions=[max(-1, row[3]) for row in rows],
    )


@settings(max_examples=40)
@given(uploads(), st.integers(0, 3))
def test_the_whole_is_at_no_distance_from_itself(facts: Facts, seed: int) -> None:
    """As chosen with a seat for everybody, and as stated."""
    chosen = representative(facts, size=len(facts), seed=seed)

    assert chosen.places == tuple(range(len(facts)))
    assert chosen.distance.total == 0
    assert subset_distance(facts, range(len(facts))).total == 0


@settings(max_examples=50)
@given(uploads(), st.integers(1, 70), st.integers(0, 3))
def test_equal_arguments_give_equal_subsets_of_the_size(facts: Facts, size: int, seed: int) -> None:
    """Distances lie between 0 and 1, the total is the largest, times are in order from 0."""
    chosen = representative(facts, size=size, seed=seed)
    found = chosen.distance
    parts = [found.lengths, found.classes, found.burstiness, found.reuse]

    assert representative(facts, size=size, seed=seed) == chosen
    assert len(set(chosen.places)) == len(chosen.places) == min(size, len(facts))
    assert list(chosen.places) == sorted(chosen.places)
    assert all(0 <= part <= 1 for part in parts if part is not None)
    assert found.total == max(part for part in parts if part is not None)
    if chosen.arrivals_s is not None:
        assert chosen.arrivals_s[0] == 0
        assert list(chosen.arrivals_s) == sorted(chosen.arrivals_s)


@settings(max_examples=40)
@given(uploads(), st.integers(1, 70))
def test_a_session_is_whole_or_cut_at_its_end_and_that_is_said(facts: Facts, size: int) -> None:
    """What is taken of a session is its beginning; as many are cut as the subset says."""
    chosen = set(representative(facts, size=size, seed=0).places)
    cut = 0
    for session in set(facts.session.tolist()) - {-1}:
        members = np.flatnonzero(facts.session == session).tolist()
        taken = [place in chosen for place in members]

        assert taken == sorted(taken, reverse=True)
        cut += any(taken) and not all(taken)
    assert cut == representative(facts, size=size, seed=0).cut


@settings(max_examples=4)
@given(st.integers(0, 10**6))
def test_the_distance_shrinks_with_the_size(seed: int) -> None:
    """Median over seeds of the choice: four times the requests are nearer, all are at 0."""
    facts = mixture(240, seed)

    def median(size: int) -> float:
        totals = []
        for choice in range(3):
            found = representative(facts, size=size, seed=choice).distance
            totals.append(max(found.lengths, found.classes))
        return float(np.median(totals))

    medians = [median(size) for size in (6, 24, 96, 240)]

    assert medians == sorted(medians, reverse=True)
    assert medians[0] > 2 * medians[2]
    assert medians[3] == 0


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([20, 40, 80]))
def test_a_planted_mixture_keeps_its_shares(seed: int, size: int) -> None:
    """Of two classes each has its share of the subset, to a seat or two."""
    facts = mixture(400, seed)
    chosen = representative(facts, size=size, seed=1).places
    share = float((facts.label == 0).mean())

    assert abs(Counter(facts.label[list(chosen)].tolist())[0] - share * size) <= 2


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_the_gaps_vary_as_those_of_the_whole_at_its_rate(seed: int) -> None:
    """Bursty arrivals stay bursty: thinned at random they would look like Poisson."""
    facts = mixture(400, seed)
    chosen = representative(facts, size=50, seed=1)
    whole = gap_variation(facts.arrival_s)

    assert whole is not None
    assert chosen.arrivals_s is not None
    assert gap_variation(np.array(chosen.arrivals_s)) == pytest.approx(whole, rel=0.25)
    rate = (len(facts) - 1) / float(facts.arrival_s[-1] - facts.arrival_s[0])
    assert 49 / chosen.arrivals_s[-1] == pytest.approx(rate)


@settings(max_examples=30)
@given(uploads(), st.floats(0.5, 300))
def test_a_budget_in_engine_seconds_is_kept(facts: Facts, budget: float) -> None:
    """The requests take no longer, and one more would not fit beside whole sessions."""
    seconds = 0.5 + facts.output_tokens / 100
    chosen = representative(facts, engine_s=budget, seconds_of=seconds, seed=0)

    assert chosen.engine_s is not None
    assert chosen.engine_s == pytest.approx(float(seconds[list(chosen.places)].sum()))
    assert chosen.engine_s <= budget + 1e-6
    firsts = [place for place in range(len(facts)) if facts.session[place] < 0]
    left = budget - chosen.engine_s
    assert all(seconds[place] > left - 1e-6 for place in firsts if place not in chosen.places)


def test_families_keep_their_reuse() -> None:
    """Documents that two requests ask about: both are taken, so half of the tokens still hit."""
    rows = [[10 * at + 1, 10 * at + 2, 10 * at + 3] for at in range(100) for _ in range(2)]
    facts = population(prompts=[48] * 200, outputs=[10] * 200, arrivals=list(range(200)))
    chains = Chains.of(rows, 16)
    kept = representative(facts, size=40, seed=0, chains=chains).distance.reuse
    thinned = subset_distance(facts, range(0, 200, 5), chains=chains).reuse

    assert kept == 0
    assert thinned == pytest.approx(0.5)


def test_a_budget_is_one_positive_number() -> None:
    """Neither both, none, zero, nor seconds that nobody knows."""
    facts = population(prompts=[1, 2], outputs=[1, 2])
    wrongs: tuple[dict[str, Any], ...] = (
        {},
        {"size": 0},
        {"size": 1, "engine_s": 1.0},
        {"engine_s": 1.0},
        {"engine_s": 1.0, "seconds_of": [1.0]},
        {"engine_s": 1.0, "seconds_of": [1.0, 0.0]},
    )
    for wrong in wrongs:
        with pytest.raises(InvalidInput, match=r"size|engine_s|seconds_of"):
            representative(facts, seed=0, **wrong)
    with pytest.raises(InvalidInput, match="chains"):
        representative(facts, size=1, seed=0, chains=Chains.of([[1]], 16))


def test_without_times_there_are_none() -> None:
    """And no burstiness to keep."""
    chosen = representative(population(prompts=[1, 2, 3], outputs=[1, 1, 1]), size=2, seed=0)

    assert chosen.arrivals_s is None
    assert chosen.distance.burstiness is None
    assert chosen.distance.reuse is None
