"""Laws of derived traffic."""

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.traffic.facts import facts_of
from advisor.traffic.sampling.synthesis import (
    Recipe,
    Timing,
    derived,
    derived_facts,
    plan_of,
    requests_by,
    timing_of,
)
from advisor.traffic.sampling.traits import gap_variation
from advisor.traffic.trace import Request
from tests.unit.traffic.population import mixture
from tests.unit.traffic.rows import lengths, texts


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Request, ...]:
    """Lengths with times, labels, sessions and blocks, some without."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 50),
                st.sampled_from(["s", "t", "u", None, None]),
                st.sampled_from(["a", "b", None]),
            ),
            min_size=1,
            max_size=40,
        )
    )
    rows.sort(key=lambda row: row[0])
    first = rows[0][0]
    return tuple(
        replace(
            lengths(place, 10 + place, place % 7),
            id=f"r{place + 1}",
            line=place + 1,
            arrival_s=float(time - first),
            session=session,
            label=label,
            block_ids=(ord(session), place) if session else (place,),
        )
        for place, (time, session, label) in enumerate(rows)
    )


def arrivals(requests: tuple[Request, ...]) -> list[float]:
    return [request.arrival_s for request in requests if request.arrival_s is not None]


@given(workloads())
def test_nothing_asked_for_changes_nothing(workload: tuple[Request, ...]) -> None:
    """One source, its own rate: the same requests."""
    assert derived([workload], Recipe(), ["a"]) == workload


@given(workloads(), st.sampled_from([0.25, 0.5, 2.0, 3.0, 10.0]))
def test_the_rate_is_scaled_exactly_and_the_variation_of_the_gaps_stays(
    workload: tuple[Request, ...], rate: float
) -> None:
    """All offsets are divided; order, sessions and everything else are kept."""
    faster = derived([workload], Recipe(rate=rate), ["a"])
    before, after = np.array(arrivals(workload)), np.array(arrivals(faster))

    assert after == pytest.approx(before / rate, abs=1e-9)
    assert [replace(item, arrival_s=None) for item in faster] == [
        replace(item, arrival_s=None) for item in workload
    ]
    variation = gap_variation(before)
    assert gap_variation(after) == (None if variation is None else pytest.approx(variation))


@given(workloads(), workloads())
def test_merged_workloads_add_up_and_are_kept_apart(
    one: tuple[Request, ...], other: tuple[Request, ...]
) -> None:
    """Counts, ids, sessions, blocks, order of time; labels say the source on wish."""
    both = derived([one, other], Recipe(label_by_source=True), ["x", "y"])
    times = arrivals(both)

    assert len(both) == len(one) + len(other)
    assert len({item.id for item in both}) == len(both)
    assert times == sorted(times)
    assert times[0] == 0
    sessions = defaultdict(set)
    blocks: defaultdict[str, set[int]] = defaultdict(set)
    for item in both:
        source = (item.label or "").split(":")[0]
        sessions[source].add(item.session)
        blocks[source].update(item.block_ids or ())
    assert not (sessions["x"] & sessions["y"]) - {None}
    assert not blocks["x"] & blocks["y"]
    assert Counter((item.label or "").split(":")[0] for item in both) == {
        "x": len(one),
        "y": len(other),
    }


def test_rates_of_workloads_of_one_length_add_up() -> None:
    """Two and three requests a second for ten seconds: five a second."""
    parts = [
        tuple(
            replace(request, arrival_s=at / rate, label=None)
            for at, request in enumerate(texts(10 * rate))
        )
        for rate in (2, 3)
    ]
    both = derived(parts, Recipe(), ["x", "y"])

    assert len(both) / 10 == 5
    assert max(arrivals(both)) < 10


@given(workloads(), st.integers(1, 90), st.integers(0, 5))
def test_resampled_sessions_keep_their_turns_and_blocks(
    workload: tuple[Request, ...], count: int, seed: int
) -> None:
    """Every session of the result is the beginning of one of the source, at its think times."""
    drawn = derived([workload], Recipe(requests=count, seed=seed), ["a"])
    known = defaultdict(list)
    found = defaultdict(list)
    for item in workload:
        known[item.session].append(item)
    for item in drawn:
        found[item.session].append(item)

    assert len(drawn) == count
    assert [item.id for item in drawn] == [f"r{place + 1}" for place in range(count)]
    assert derived([workload], Recipe(requests=count, seed=seed), ["a"]) == drawn
    for name, turns in found.items():
        if name is None:
            continue
        origin = known[name.split("~")[0]]
        assert len(turns) <= len(origin)
        for mine, theirs in zip(turns, origin, strict=False):
            assert (mine.block_ids, mine.label) == (theirs.block_ids, theirs.label)
            assert (mine.arrival_s or 0) - (turns[0].arrival_s or 0) == pytest.approx(
                (theirs.arrival_s or 0) - (origin[0].arrival_s or 0), abs=2e-9
            )


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from([2000, 8000]))
def test_resampled_traffic_has_the_quantiles_rate_and_bursts_of_the_whole(
    seed: int, count: int
) -> None:
    """Within what drawing anew leaves open: 4,000 requests in blocks of 63."""
    facts = mixture(4000, seed)
    drawn = derived_facts([facts], Recipe(requests=count, seed=seed), ["a"])
    for name in ("prompt_tokens", "output_tokens"):
        for share in (0.25, 0.5, 0.75, 0.95):
            before = np.quantile(getattr(facts, name), share)
            low, high = np.quantile(getattr(facts, name), [max(0, share - 0.06), share + 0.045])

            assert low <= np.quantile(getattr(drawn, name), share) <= high, (name, share, before)
    rate = (len(facts) - 1) / facts.arrival_s[-1]
    assert (count - 1) / drawn.arrival_s[-1] == pytest.approx(
        rate * facts.arrival_s[-1] / (facts.arrival_s[-1] - facts.arrival_s[0]), rel=0.2
    )
    assert gap_variation(drawn.arrival_s) == pytest.approx(gap_variation(facts.arrival_s), rel=0.25)
    assert abs((drawn.label == 0).mean() - (facts.label == 0).mean()) < 0.05


@given(workloads(), workloads(), st.none() | st.integers(1, 60))
def test_columns_and_requests_are_derived_alike(
    one: tuple[Request, ...], other: tuple[Request, ...], count: int | None
) -> None:
    """Statistics of a what-if are those of the workload that it would be."""
    recipe = Recipe(rate=2, requests=count, outputs=1.5, label_by_source=True)
    names = ["x", "y"]
    facts = derived_facts([facts_of(one, None), facts_of(other, None)], recipe, names)
    requests = derived([one, other], recipe, names)

    assert facts.output_tokens.tolist() == [item.output_tokens for item in requests]
    assert facts.arrival_s == pytest.approx([item.arrival_s for item in requests], abs=1e-9)
    assert [facts.labels[code] for code in facts.label] == [item.label for item in requests]
    sessions: dict[int, str | None] = {}
    for code, item in zip(facts.session.tolist(), requests, strict=True):
        assert (code < 0) == (item.session is None)
        if code >= 0:
            assert sessions.setdefault(code, item.session) == item.session
    assert len(set(sessions.values())) == len(sessions)


def test_twice_the_speed_scales_the_gaps_of_absolute_times() -> None:
    """Case T-07: sent at 0, 1 and 3 s."""
    workload = tuple(
        replace(request, arrival_s=at)
        for request, at in zip(texts(3), (0.0, 2.0, 6.0), strict=True)
    )

    assert arrivals(derived([workload], Recipe(rate=2), ["a"])) == [0, 1, 3]


def test_sources_can_start_at_their_own_times() -> None:
    """The second began four seconds after the first."""
    one, other = texts(2), texts(1)
    parts = [
        Timing(arrival_s=np.array([0.0, 6.0]), session=np.array([-1, -1], dtype=np.int32)),
        replace(timing_of([replace(item, arrival_s=0.0) for item in other]), starts_s=4.0),
    ]
    plan = plan_of(parts, Recipe())
    merged = tuple(
        requests_by(plan, lambda source, place: (one, other)[source][place], Recipe(), ["a", "b"])
    )

    assert [item.arrival_s for item in merged] == [0, 4, 6]
    assert plan.sources.tolist() == [0, 1, 0]


def test_longer_outputs_are_for_lengths_only() -> None:
    """Rounded, never from something to nothing; recorded text cannot be stretched."""
    rows = tuple(
        replace(lengths(at, 5, output, max_tokens=limit), arrival_s=float(at))
        for at, (output, limit) in enumerate([(10, 20), (1, None), (0, 4), (None, None)])
    )
    longer = derived([rows], Recipe(outputs=1.5), ["a"])
    shorter = derived([rows], Recipe(outputs=0.1), ["a"])

    assert [item.output_tokens for item in longer] == [15, 2, 0, None]
    assert [item.max_tokens for item in longer] == [30, None, 6, None]
    assert [item.output_tokens for item in shorter] == [1, 1, 0, None]
    with pytest.raises(InvalidInput, match="lengths only"):
        derived([texts(1)], Recipe(outputs=2), ["a"])


def test_copies_of_sessions_are_said() -> None:
    """They repeat their text; a draw without copies says nothing."""
    rows = tuple(replace(item, arrival_s=float(at)) for at, item in enumerate(texts(4)))
    timing = [timing_of(rows)]
    repeated = plan_of(timing, Recipe(requests=40))

    assert repeated.repeats == 36
    assert "36 of 40" in repeated.warnings()[0]
    assert plan_of(timing, Recipe()).warnings() == ()


def test_untimed_requests_come_last_without_a_time() -> None:
    """Also where all are untimed."""
    rows = tuple(
        replace(item, arrival_s=time) for item, time in zip(texts(3), (0.0, 1.0, None), strict=True)
    )
    faster = derived([rows, texts(2)], Recipe(rate=4), ["a", "b"])

    assert [item.arrival_s for item in faster] == [0, 0.25, None, None, None]
    assert {item.arrival_s for item in derived([texts(2)], Recipe(requests=5), ["a"])} == {None}


@pytest.mark.parametrize(
    "wrong", [{"rate": 0}, {"rate": float("inf")}, {"requests": 0}, {"outputs": -1}]
)
def test_a_recipe_is_checked(wrong: dict[str, float]) -> None:
    """No rate of nothing; and there is something to derive from."""
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Recipe(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="nothing"):
        plan_of([timing_of(())], Recipe())


def test_a_recipe_says_what_it_does() -> None:
    """In a sentence, and only what was asked for."""
    full = Recipe(rate=2, requests=10, seed=3, outputs=1.5).described(["a", "b"])

    assert Recipe().described(["a"]) == "derived from a"
    assert full == (
        "derived from a and b, 10 requests drawn by sessions (seed 3), at 2 times the rate,"
        " with outputs 1.5 times as long"
    )
