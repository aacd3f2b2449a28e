"""Planted worlds: the verdicts must be the planted effects, whichever way they point."""

from dataclasses import replace
from functools import cache

import pytest

from advisor.recommender.recommendation import VerdictKind
from advisor.recommender.verdict import verdicts
from advisor.techniques import TECHNIQUES
from tests.fakes.planted_world import World, begin, study

SEEDS = range(20)
WORLDS = {
    "usual": World(),
    # The draft is never accepted, the cache serves nothing, and 32 bit is the faster dtype.
    "swapped": World(
        acceptance={"copy": 0.0, "prose": 0.0},
        draft_s=0.004,
        shared=0.0,
        dtype_factor={"float32": 0.8},
    ),
    # One slot is as fast as many, the cache and the dtype do nothing, the draft is free of cost.
    "unchanged": World(
        token_s=0.0, shared=0.0, draft_s=0.0, dtype_factor={}, acceptance={"copy": 0, "prose": 0}
    ),
}
Kinds = tuple[VerdictKind, ...]


@cache
def judged(name: str, seed: int) -> tuple[Kinds, Kinds]:
    """Verdicts on a noisy study: at the goal's load, and at one request in flight if measured."""
    return _kinds(WORLDS[name], seed)


@cache
def truth(name: str) -> tuple[Kinds, Kinds]:
    """The same without noise, by the sign of the effect: within 3 % it is none."""
    return _kinds(replace(WORLDS[name], start_sd=0.0, point_sd=0.0), 0, by_sign=True)


def _kinds(world: World, seed: int, *, by_sign: bool = False) -> tuple[Kinds, Kinds]:
    evidence = study(world, seed=seed, evidence=replace(begin(), requests_per_point=32))
    found = verdicts(evidence, TECHNIQUES)
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
    expected = {
        "usual": ("helps", "helps", "hurts", "helps"),
        "swapped": ("helps", "neutral", "hurts", "hurts"),
        "unchanged": ("helps", "neutral", "neutral", "neutral"),
    }
    goal, small = truth(name)

    assert tuple(kind.value for kind in goal) == expected[name]
    assert small[0].value == {"usual": "helps", "swapped": "hurts", "unchanged": "neutral"}[name]


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("half", [0, 1])
def test_verdicts_follow_the_planted_effects(name: str, half: int) -> None:
    """Over ten seeds at least nine in ten have the planted sign, at both loads."""
    planted = sum(truth(name), ())
    hits = [
        agrees(found, wanted)
        for seed in SEEDS[half * 10 : half * 10 + 10]
        for found, wanted in zip(sum(judged(name, seed), ()), planted, strict=True)
    ]

    assert sum(hits) / len(hits) >= 0.9
