"""The largest load that meets its limits, searched with as few loads as doubt allows.

Goodput as DistServe has it, found by bisection with a sequential test (handbook 11.6): loads grow
by factors of 2 until one fails, then the bracket is halved on the logarithm. The answer is always
a load that passed; its upper end is the next one that was shown to fail.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import TypeAlias

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.measurement.slo import Attained

_GROWTH = 2.0
_SAME = 1e-9  # relative: a load is recognised after its way through JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched: loads from `lowest` to `highest`, beginning at `start` (None: `lowest`).

    A load is requests per second, or requests in flight with `whole`. The search ends when the
    bracket is narrower than `precision` (relative), or after `most_tries` loads, repeats included.
    A load that neither passes nor fails is repeated until it was measured `most_repeats` times.
    """

    lowest: float
    highest: float
    start: float | None = None
    precision: float = 0.05
    whole: bool = False
    most_repeats: int = 3
    most_tries: int = 40

    def __post_init__(self) -> None:
        if not 0 < self.lowest <= self.highest < math.inf:
            raise InvalidInput("search", f"{self.lowest} to {self.highest} is no range of loads")
        if self.start is not None and not self.lowest <= self.start <= self.highest:
            raise InvalidInput("search.start", f"{self.start} is outside of the range")
        if self.whole and (self.lowest % 1 or self.highest % 1 or (self.start or 0) % 1):
            raise InvalidInput("search", "numbers of requests in flight are whole")
        if not self.precision > 0 or self.most_repeats < 1 or self.most_tries < 1:
            raise InvalidInput("search", "precision and numbers of tries are positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One measured load. Points that are not usable for another reason are left out.

    `attained` holds one sample for every SLO. `holds` False: the load was too much whatever the
    latencies were (queue growing, rate not followed), None: that could not be told. `limited` says
    why the client itself could not offer the load; that fails nothing but ends the search there.
    """

    load: float
    attained: tuple[Attained, ...] = ()
    holds: bool | None = True
    limited: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TryLoad:
    """The next load to measure; `repeat` counts from 1 and is above it for one measured before."""

    load: float
    repeat: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the search found.

    `load` is the largest that passed below all that failed, None where none did. `fails_at` is the
    smallest that was shown to fail, None where none was: then the capacity is `at_least` the load.
    `undecided` are loads between the two that neither passed nor failed, or that the client could
    not offer.
    """

    load: float | None
    fails_at: float | None
    undecided: tuple[float, ...]
    tries: int
    reason: str

    @property
    def at_least(self) -> bool:
        """Whether no load is known to be too much."""
        return self.load is not None and self.fails_at is None

    @property
    def estimate(self) -> Estimate | None:
        """From the load that passed to the one that failed; None where there is no such pair."""
        if self.load is None or self.fails_at is None:
            return None
        return Estimate(
            value=self.load,
            low=self.load,
            high=self.fails_at,
            source=Source.MEASURED,
            basis="bracket: the largest load that passed, up to the smallest that failed",
        )


Step: TypeAlias = TryLoad | Capacity


class _Standing(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    OPEN = "not decided"
    LIMITED = "not offered by the client"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """All repeats of one load."""

    load: float
    repeats: int
    standing: _Standing
    reason: str


def next_load(tried: Sequence[Tried], search: Search) -> Step:
    """The next load to measure, or the capacity once nothing is left to learn.

    Pure: the same loads give the same step. A load that fails below one that passes is repeated,
    then the one that passes; if they stay so, what lies above the failure does not count.
    """
    loads = _loads(tried)
    step = _doubtful(loads, search) or _bracketed(loads, search)
    if isinstance(step, TryLoad) and len(tried) >= search.most_tries:
        return _found(loads, f"ended after {len(tried)} loads, before the bracket was narrow")
    return step


def _loads(tried: Sequence[Tried]) -> tuple[_Load, ...]:
    """The loads in ascending order, repeats joined."""
    groups: list[list[Tried]] = []
    for item in sorted(tried, key=lambda item: item.load):
        if groups and math.isclose(groups[-1][0].load, item.load, rel_tol=_SAME):
            groups[-1].append(item)
        else:
            groups.append([item])
    return tuple(_load(group) for group in groups)


def _load(group: Sequence[Tried]) -> _Load:
    standing, reason = _standing(group)
    return _Load(load=group[0].load, repeats=len(group), standing=standing, reason=reason)


def _standing(group: Sequence[Tried]) -> tuple[_Standing, str]:
    """Of the repeats together: a queue that grew in half of them fails the load."""
    offered = [item for item in group if item.limited is None]
    if not offered:
        return _Standing.LIMITED, f"the client could not offer it: {group[0].limited}"
    grew = sum(item.holds is False for item in offered)
    if 2 * grew >= len(offered):
        return _Standing.FAILED, "the engine did not keep up"
    samples = [reduce(Attained.joined, column) for column in zip(*_samples(offered), strict=True)]
    for sample in samples:
        if sample.failed:
            share = sample.estimate
            return _Standing.FAILED, f"{share.value:.1%} of requests kept {sample.slo.text}"
    if grew or not any(item.holds for item in offered):
        return _Standing.OPEN, "it is not clear whether the engine keeps up"
    if all(sample.passed for sample in samples):
        return _Standing.PASSED, "every limit was kept"
    return _Standing.OPEN, "too few requests to tell whether the limits are kept"


def _samples(group: Sequence[Tried]) -> list[tuple[Attained, ...]]:
    if len({tuple(sample.slo for sample in item.attained) for item in group}) > 1:
        raise InvalidInput("tried", "repeats of one load were held against other limits")
    return [item.attained for item in group]


def _doubtful(loads: Sequence[_Load], search: Search) -> TryLoad | None:
    """A repeat, where a load inside the bracket is not decided or two contradict each other."""
    low, high = _bracket(loads)
    for item in loads:
        inside = (low is None or item.load > low.load) and (high is None or item.load <= high.load)
        if item.standing is _Standing.OPEN and inside and item.repeats < search.most_repeats:
            return _again(item, item.reason)
    passed = [item.load for item in loads if item.standing is _Standing.PASSED]
    failed = [item.load for item in loads if item.standing is _Standing.FAILED]
    if passed and failed and max(passed) > min(failed):
        for item in loads:
            against = item.standing is _Standing.FAILED and item.load < max(passed)
            for_it = item.standing is _Standing.PASSED and item.load > min(failed)
            if (against or for_it) and item.repeats < search.most_repeats:
                return _again(item, "a smaller load failed where a larger one passed")
    return None


def _again(item: _Load, reason: str) -> TryLoad:
    return TryLoad(load=item.load, repeat=item.repeats + 1, reason=reason)


def _bracket(loads: Sequence[_Load]) -> tuple[_Load | None, _Load | None]:
    """The largest load that passed below every failure, and the smallest above it that did not."""
    failed = [item.load for item in loads if item.standing is _Standing.FAILED]
    ceiling = min(failed, default=math.inf)
    passed = [i for i in loads if i.standing is _Standing.PASSED and i.load < ceiling]
    low = passed[-1] if passed else None
    above = [item for item in loads if low is None or item.load > low.load]
    high = next((item for item in above if item.standing is not _Standing.PASSED), None)
    return low, high


def _bracketed(loads: Sequence[_Load], search: Search) -> Step:
    """The next load of the bracket, or the answer where it is narrow enough."""
    low, high = _bracket(loads)
    if low is not None and high is not None:
        return _between(loads, (low.load, high), search)
    if high is not None:
        return _below(loads, search)
    if low is None:
        first = search.lowest if search.start is None else search.start
        return TryLoad(load=first, repeat=1, reason="the first load")
    above = min(search.highest, _rounded(low.load * _GROWTH, search))
    if above <= low.load:
        return _found(loads, "the highest load still passed")
    return TryLoad(load=above, repeat=1, reason="no load failed yet")


def _below(loads: Sequence[_Load], search: Search) -> Step:
    """Half of the smallest load, as no load passed."""
    least = loads[0]
    below = max(search.lowest, _rounded(least.load / _GROWTH, search))
    if below >= least.load:
        return _found(loads, f"even the lowest load did not pass: {least.reason}")
    return TryLoad(load=below, repeat=1, reason="no load passed yet")


def _between(loads: Sequence[_Load], ends: tuple[float, _Load], search: Search) -> Step:
    low, high = ends
    middle = _rounded(math.sqrt(low * high.load), search)
    if high.load / low <= 1 + search.precision or not low < middle < high.load:
        return _upper_end(loads, search) or _found(
            loads, f"the next higher load did not pass: {high.reason}"
        )
    return TryLoad(load=middle, repeat=1, reason="between a load that passed and one that did not")


def _upper_end(loads: Sequence[_Load], search: Search) -> TryLoad | None:
    """A still higher load where none was shown to fail: else the bracket has no upper end."""
    top = loads[-1]
    above = min(search.highest, _rounded(top.load * _GROWTH, search))
    failed = any(item.standing is _Standing.FAILED for item in loads)
    if failed or top.standing is not _Standing.OPEN or above <= top.load:
        return None
    return TryLoad(load=above, repeat=1, reason="no load failed yet")


def _rounded(load: float, search: Search) -> float:
    return float(round(load)) if search.whole else load


def _found(loads: Sequence[_Load], reason: str) -> Capacity:
    low, _ = _bracket(loads)
    failed = [item.load for item in loads if item.standing is _Standing.FAILED]
    ceiling = min(failed, default=math.inf)
    between = (i for i in loads if (low is None or i.load > low.load) and i.load < ceiling)
    return Capacity(
        load=None if low is None else low.load,
        fails_at=min(failed, default=None),
        undecided=tuple(i.load for i in between if i.standing is not _Standing.PASSED),
        tries=sum(item.repeats for item in loads),
        reason=reason,
    )
