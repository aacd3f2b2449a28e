"""Whether settings took effect, runs may be compared, and where a gain turns into a loss."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Estimate, Source
from advisor.measurement.comparable import pair_flaws, prefix_credit
from advisor.measurement.crossover import Crossover, crossovers, gain_at
from advisor.measurement.effect import TookEffect, took_effect
from advisor.measurement.records import LoadPoint, OpenLoop
from advisor.serving import EngineFacts
from advisor.techniques import TECHNIQUES
from tests.fakes.records import NOTHING, point, record

FULL = EngineFacts(dtype="torch.float32", async_scheduling=True)
HALF = EngineFacts(dtype="torch.bfloat16", async_scheduling=True)


def gain(value: float, half: float = 0.02) -> Estimate:
    """A measured ratio."""
    return Estimate(
        value=value, low=value - half, high=value + half, source=Source.MEASURED, basis="planted"
    )


def hit(queries: int, hits: int, **changes: object) -> LoadPoint:
    """A load with so many prompt tokens looked up and cached."""
    counters = replace(NOTHING, prefix_queries=queries, prefix_hits=hits)
    return replace(point(record(0, 1), counters=counters), **changes)  # type: ignore[arg-type]


def test_a_setting_shows_in_what_the_engine_resolved() -> None:
    """Another fact is an effect, whatever the speed."""
    found = took_effect(("dtype",), before=FULL, after=HALF, gain=gain(1.0))

    assert found.took is TookEffect.YES
    assert found.reason == "dtype torch.float32 -> torch.bfloat16"


def test_the_same_facts_and_the_same_speed_are_no_effect() -> None:
    """With the fact that was compared."""
    found = took_effect(("dtype", "async_scheduling"), before=FULL, after=FULL, gain=gain(1.0))

    assert found.took is TookEffect.NO
    assert "the same dtype torch.float32, async scheduling True" in found.reason
    assert "-2.0 % to +2.0 %" in found.reason


@pytest.mark.parametrize("seen", [gain(1.2), gain(0.8), gain(1.0, 0.2), None])
def test_the_same_facts_beside_another_speed_say_nothing(seen: Estimate | None) -> None:
    """The fact may not be what the setting changes."""
    found = took_effect(("dtype",), before=FULL, after=FULL, gain=seen)

    assert found.took is TookEffect.UNKNOWN


def test_facts_that_no_engine_states_say_nothing() -> None:
    """None on both sides is no equality."""
    found = took_effect(("quantization",), before=FULL, after=FULL, gain=gain(1.0))

    assert found.took is TookEffect.UNKNOWN
    with pytest.raises(UnknownName):
        took_effect(("speed",), before=FULL, after=FULL, gain=None)


def test_every_lever_says_where_it_shows() -> None:
    """All techniques that set a lever; a misspelt fact is refused."""
    assert all(item.shows_in for item in TECHNIQUES if item.on)
    with pytest.raises(UnknownName):
        replace(TECHNIQUES[0], shows_in=("speed",))


def test_case_s10_a_warm_second_run_is_not_compared(shared: Path) -> None:
    """S-10: hit shares from differences, 0 % and 98 %; the pair is marked."""
    runs = json.loads((shared / "cases" / "s10_two_runs.json").read_text())["runs"]
    first, second = (
        hit(
            run["after"]["queries"] - run["before"]["queries"],
            run["after"]["hits"] - run["before"]["hits"],
        )
        for run in runs
    )

    assert prefix_credit(first.counters).share == 0.0
    assert prefix_credit(second.counters).share == pytest.approx(0.98)
    (flaw,) = pair_flaws(first, second)
    assert flaw.startswith("not comparable: the second run found a warm prefix cache (0% and 98%")
    assert "first run" in pair_flaws(second, first)[0]
    assert pair_flaws(first, second, caching_differs=True) == ()


def test_sharing_inside_each_pass_is_kept() -> None:
    """The user's own traffic repeats itself in both runs alike."""
    assert pair_flaws(hit(1000, 400), hit(1000, 410)) == ()


def test_other_requests_or_another_kind_of_load_are_not_compared() -> None:
    """Common random numbers, or nothing."""
    plain = hit(0, 0)
    opened = replace(plain, open_loop=OpenLoop(arrivals="poisson", rate_per_s=1.0))

    assert pair_flaws(plain, replace(plain, subset_digest="other")) == (
        "not comparable: they replayed different requests",
    )
    assert "open one" in pair_flaws(plain, opened)[0]


def test_case_s11_recompute_is_no_gain_of_the_cache(shared: Path) -> None:
    """S-11: 32.2 % by the counters, none of it credited."""
    delta = json.loads((shared / "cases" / "s11_preempt_hits.json").read_text())["delta"]
    counters = replace(NOTHING, **delta)
    credit = prefix_credit(counters)

    assert counters.prefix_hits / counters.prefix_queries == pytest.approx(0.322)
    assert credit.share is None
    assert credit.reason == "recompute after preemption (150 preemptions)"
    assert prefix_credit(NOTHING).reason == "no prompt token was looked up"


def test_case_e01_the_crossover_lies_between_measured_loads(shared: Path) -> None:
    """E-01: ratios 1.83, 1.30, 0.92, 0.74; off at 40, on up to 8, 16 is what to probe."""
    case = json.loads((shared / "cases" / "e01_spec_vs_batch.json").read_text())
    gains = {
        row["concurrency"]: gain(row["spec_on"] / row["spec_off"]) for row in case["measured_tok_s"]
    }
    (found,) = crossovers(gains)

    assert [round(item.value, 2) for item in gains.values()] == [1.83, 1.3, 0.92, 0.74]
    assert found == Crossover(below=8, above=32, gains_above=False, probe_next=16)
    assert found.text == (
        "gains below a load between 8 and 32 in flight; 16 is what to measure next"
    )
    assert gain_at(gains, case["traffic_concurrency"]) is False
    assert gain_at(gains, 4) is True
    assert gain_at(gains, 16) is None


def test_a_gain_at_one_load_is_not_carried_to_others() -> None:
    """Never extrapolated from 1; a loss is carried to higher loads only."""
    assert gain_at({1: gain(1.83)}, 40) is None
    assert gain_at({8: gain(0.7)}, 40) is False
    assert gain_at({8: gain(0.7)}, 1) is None
    assert gain_at({8: gain(1.3)}, 8) is True
    assert crossovers({1: gain(1.83)}) == ()


def test_a_load_without_a_clear_sign_widens_the_bracket() -> None:
    """1 inside the interval is no sign; neighbours have no load between them."""
    (wide,) = crossovers({1: gain(0.8), 8: gain(1.0), 16: gain(1.2)})
    (close,) = crossovers({2: gain(0.8), 3: gain(1.2)})

    assert (wide.below, wide.above, wide.gains_above) == (1, 16, True)
    assert close.probe_next is None
    assert close.text == "gains above a load between 2 and 3 in flight"
    with pytest.raises(InvalidInput):
        crossovers({0: gain(1.0)})
