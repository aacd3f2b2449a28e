"""Planted worlds: the verdicts must be the planted effects, whichever way they point."""

from dataclasses import replace
from functools import cache

import pytest

from advisor.recommender.evidence import StudyOptions
from advisor.recommender.recommendation import VerdictKind
from advisor.recommender.verdict import verdicts
from advisor.techniques import TECHNIQUES, Technique
from tests.fakes.planted_world import DEVICE_INT8, World, begin, study

SEEDS = range(20)
WORLDS = {
    "usual": World(),
    # The draft is never accepted, the cache serves nothing, 32 bit is the faster dtype, 8 bit the
    # slower one, and all answers are equally long.
    "swapped": World(
        acceptance={"copy": 0.0, "prose": 0.0},
        draft_s=0.004,
        shared=0.0,
        dtype_factor={"float32": 0.8},
        quantized_factor=1.3,
        longest_answer=8,
    ),
    # One slot is as fast as many, cache and dtypes do nothing, the draft is free of cost.
    "unchanged": World(
        token_s=0.0,
        shared=0.0,
        draft_s=0.0,
        dtype_factor={},
        quantized_factor=1.0,
        acceptance={"copy": 0, "prose": 0},
        longest_answer=8,
    ),
}
EXPECTED = {
    "usual": ("helps", "helps", "hurts", "helps", "helps", "hurts", "helps"),
    "swapped": ("helps", "neutral", "hurts", "hurts", "neutral", "hurts", "hurts"),
    "unchanged": ("helps", "neutral", "neutral", "neutral", "neutral", "neutral", "neutral"),
}
ALONE = {"usual": "helps", "swapped": "hurts", "unchanged": "neutral"}
BRIEF = StudyOptions(ladder_top=1)
Kinds = tuple[VerdictKind, ...]
# Two levers that this engine does not feel.
NO_CHANGE = tuple(
    Technique(
        key=f"name_{number}",
        title=f"Name {number}",
        on={"max_num_batched_tokens": None},
        off={"max_num_batched_tokens": number},
        concurrencies=(),
        suits="nothing",
        breaks="nothing",
        why_helps="it is lucky",
        why_not="both names are one configuration",
    )
    for number in (4096, 8192)
)


@cache
def judged(name: str, seed: int) -> tuple[Kinds, Kinds]:
    """Verdicts on a noisy study: at the goal's load, and at one request in flight if measured."""
    return _kinds(WORLDS[name], seed)


@cache
def truth(name: str) -> tuple[Kinds, Kinds]:
    """The same without noise, by the sign of the effect: within 3 % it is none."""
    return _kinds(replace(WORLDS[name], start_sd=0.0, point_sd=0.0), 0, by_sign=True)


def _kinds(world: World, seed: int, *, by_sign: bool = False) -> tuple[Kinds, Kinds]:
    options = StudyOptions(ladder_top=1, confirm=False)
    start = replace(begin(options=options, device=DEVICE_INT8), requests_per_point=32)
    found = verdicts(study(world, seed=seed, evidence=start), TECHNIQUES)
    goal = tuple(_sign(v.effects[0].measured, v.kind, by_sign=by_sign) for v in found)
    small = tuple(
        _sign(v.effects[1].measured, v.effects[1].kind, by_sign=by_sign)
        for v in found
        if len(v.effects) > 1
    )
    return goal, small


def _sign(measured: object, kind: VerdictKind, *, by_sign: bool) -> VerdictKind:
    if not by_sign:
        return kind
    value = getattr(measured, "value", 1.0)
    if value > 1.03:
        return VerdictKind.HELPS
    return VerdictKind.HURTS if value < 0.97 else VerdictKind.NEUTRAL


def agrees(found: VerdictKind, planted: VerdictKind) -> bool:
    """The planted sign; where no effect was planted, anything that claims none."""
    if planted is VerdictKind.NEUTRAL:
        return found in {VerdictKind.NEUTRAL, VerdictKind.UNKNOWN}
    return found is planted


@pytest.mark.parametrize("name", WORLDS)
def test_what_is_planted_is_what_the_names_say(name: str) -> None:
    """The worlds differ as described, or the next test would prove nothing."""
    goal, small = truth(name)

    assert tuple(kind.value for kind in goal) == EXPECTED[name]
    assert small[0].value == ALONE[name]


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("part", range(10))
def test_verdicts_follow_the_planted_effects(name: str, part: int) -> None:
    """Of twenty seeds, two at a time, at least nine in ten have the planted sign."""
    planted = sum(truth(name), ())
    hits = [
        agrees(found, wanted)
        for seed in SEEDS[part * 2 : part * 2 + 2]
        for found, wanted in zip(sum(judged(name, seed), ()), planted, strict=True)
    ]

    assert sum(hits) / len(hits) >= 0.9


@pytest.mark.parametrize("part", range(2))
def test_two_names_for_one_configuration_make_no_difference(part: int) -> None:
    """Undecided after one start each, and neutral after another: never helps, never hurts."""
    kinds = [
        verdict.kind
        for seed in range(part * 4, part * 4 + 4)
        for verdict in verdicts(study(World(), seed=seed, techniques=NO_CHANGE), NO_CHANGE)
    ]

    assert set(kinds) <= {VerdictKind.NEUTRAL, VerdictKind.UNKNOWN}
    assert kinds.count(VerdictKind.NEUTRAL) >= 7


def test_a_name_for_the_baseline_itself_needs_no_start() -> None:
    """On and off are the same: the baseline is compared with itself."""
    same = replace(NO_CHANGE[0], off=NO_CHANGE[0].on)
    evidence = study(World(), techniques=(same,), evidence=begin(options=BRIEF))
    [verdict] = verdicts(evidence, (same,))

    assert [trial.plan.key for trial in evidence.trials] == ["baseline"]
    assert verdict.kind is VerdictKind.NEUTRAL
