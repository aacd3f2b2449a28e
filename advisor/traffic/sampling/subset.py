"""A subset of traffic that stands for the whole: chosen, timed, and its distance stated."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.traffic.facts import Facts, Floats
from advisor.traffic.figures import SubsetDistance
from advisor.traffic.reuse.kinship import Chains, Places, family_keys, weld
from advisor.traffic.sampling.traits import Bins, Traits, gap_variation

# Units among which the choice is made one by one; of more, a stratified sample is looked at.
POOL = 8192
STEPS = 2000
# A family is kept together where it is no more than this share of the budget.
FAMILY_SHARE = 1 / 8
_MOMENT_WEIGHT = 0.05
_MIN_TIMES = 3
_ROUNDING = 1e-9
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """Places of the chosen requests in order of arrival and when to send them.

    `arrivals_s` starts at 0; None where the upload has no times. `cut` counts the sessions of
    which only the beginning is taken. `engine_s` is what the requests take where that was given.
    """

    places: tuple[int, ...]
    arrivals_s: tuple[float, ...] | None
    distance: SubsetDistance
    cut: int
    engine_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What `choose` took: places in the order in which they were taken, and of cut units how many.

    The first N places of a choice without a pool are the choice of size N.
    """

    places: tuple[int, ...]
    cut: int


def representative(
    facts: Facts,
    *,
    size: int | None = None,
    engine_s: float | None = None,
    seed: int,
    chains: Chains | None = None,
    seconds_of: Floats | Sequence[float] | None = None,
) -> Subset:
    """The requests that stand for all of them: `size` requests or `engine_s` seconds of engine.

    Kept are the joint shares of prompt and output lengths, the shares of classes, prefix groups
    and levels of reuse (by `chains`, else by equal texts), sessions as a whole, and the variation
    of the gaps between arrivals. A session is cut only at its end, to fill the last seats or where
    it is larger than the budget. The times are those of the stretch of as many consecutive
    arrivals whose gaps vary most like all gaps, scaled to the upload's mean rate: to thin out a
    bursty process at random would make it look like Poisson. Not kept is the time of day.
    Equal arguments give equal subsets.
    `seconds_of` is what each request takes of the engine. Raises `InvalidInput` for a budget that
    is not positive or given twice.
    """
    traits = Traits.of(facts, chains)
    costs = _costs(len(facts), size, engine_s, seconds_of)
    budget = float(size if size is not None else engine_s or 0.0)
    bins = Bins.of(traits)
    units = units_of(traits, FAMILY_SHARE * budget / float(costs.mean()))
    chosen = choose(bins, units, costs[:, np.newaxis], np.array([budget]), seed=seed)
    places = np.sort(np.asarray(chosen.places, dtype=np.int64))
    times = arrivals_like(traits.arrival_s, len(places))
    return Subset(
        places=tuple(places.tolist()),
        arrivals_s=None if times is None else tuple(times.tolist()),
        distance=bins.distance(places, times),
        cut=chosen.cut,
        engine_s=None if seconds_of is None else float(costs[places].sum()),
    )


def subset_distance(
    facts: Facts,
    places: Sequence[int],
    *,
    arrivals_s: Sequence[float] | None = None,
    chains: Chains | None = None,
) -> SubsetDistance:
    """How far the requests at `places` are from all, sent at `arrivals_s` (None: at their own)."""
    chosen = np.asarray(places, dtype=np.int64)
    times = facts.arrival_s[chosen] if arrivals_s is None else np.asarray(arrivals_s)
    return Bins.of(Traits.of(facts, chains)).distance(chosen, times)


def _costs(
    count: int,
    size: int | None,
    engine_s: float | None,
    seconds_of: Floats | Sequence[float] | None,
) -> Floats:
    if (size is None) == (engine_s is None):
        raise InvalidInput("size, engine_s", "give one of them")
    if min(size if size is not None else 1, engine_s if engine_s is not None else 1) <= 0:
        raise InvalidInput("size, engine_s", "not positive")
    if engine_s is None:
        return np.ones(count)
    if seconds_of is None or len(seconds_of) != count:
        raise InvalidInput("seconds_of", "a budget in seconds needs those of every request")
    seconds = np.asarray(seconds_of, dtype=np.float64)
    if not np.isfinite(seconds).all() or (seconds <= 0).any():
        raise InvalidInput("seconds_of", "not positive")
    return seconds


def session_units(names: Places) -> list[Places]:
    """Places of every name in order, the names by the first of their places."""
    _, first, back = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(back, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(back))[:-1])
    return [parts[at] for at in np.argsort(first, kind="stable")]


def units_of(traits: Traits, most: float) -> list[Places]:
    """What is taken whole: sessions, joined to families up to `most` requests, single requests.

    Families keep the reuse between requests that no session joins; larger ones fall apart into
    their sessions.
    """
    session = traits.session
    name = session.astype(np.int64)
    free = int(name.max(initial=0)) + 1
    name = np.where(session < 0, free + np.arange(len(name)), name)
    if traits.chains is None:
        return session_units(name)
    free += len(name)
    keys = family_keys(traits.chains, traits.classes)
    families = weld([{*found, ~int(at)} for found, at in zip(keys, name, strict=True)])
    for family in families:
        if 1 < len(family) <= most:
            name[family] = free
            free += 1
    return session_units(name)


def choose(
    bins: Bins,
    units: Sequence[Places],
    costs: Matrix,
    budgets: Floats,
    *,
    seed: int,
) -> Choice:
    """Units whose requests together are in every bin as often as all are, within the budgets.

    Herding: one by one comes the unit that brings the shares of the chosen next to those of all
    (squared distance over bins of lengths, classes and reuse, and the means of both lengths).
    ``costs[i]`` is what request i takes of each of `budgets`. Where no unit fits any more, units
    are cut at their end as long as their first request fits.
    """
    rng = np.random.default_rng(seed)
    table = _features(bins)
    wanted = max(POOL, math.ceil(4 * float(budgets.sum() / costs.sum(axis=1).mean())))
    pool = _pool(units, bins, wanted, rng)
    left = budgets.astype(np.float64).copy()
    aim = table.mean(axis=0)
    taken = _herd(pool, table - aim, costs, left)
    chosen = [int(place) for at in taken for place in pool[at]]
    rest = [pool[at] for at in sorted(set(range(len(pool))) - set(taken))]
    more, cut = _fill(rest, costs, left, _State(table - aim, chosen))
    return Choice(places=(*chosen, *more), cut=cut)


@dataclass(slots=True, eq=False)
class _State:
    """Sum of what is chosen, of rows that are centred on the mean of all."""

    centred: Matrix
    chosen: list[int]

    def with_more(self, places: Places) -> float:
        """Squared distance from the whole with these requests as well."""
        together = self.centred[[*self.chosen, *places]].mean(axis=0)
        return float(together @ together)


def _features(bins: Bins) -> Matrix:
    """One row a request: 1 in its bin of every kind, and its lengths in units of their spread."""
    kinds = [bins.lengths, bins.classes, *([] if bins.reuse is None else [bins.reuse])]
    columns: list[Matrix] = []
    for codes in kinds:
        present, back = np.unique(codes, return_inverse=True)
        hot = np.zeros((len(codes), len(present)))
        hot[np.arange(len(codes)), back] = 1.0
        columns.append(hot)
    for counts in (bins.traits.prompt_tokens, bins.traits.output_tokens):
        known = counts >= 0
        spread = counts[known].std() if known.any() else 0.0
        mean = counts[known].mean() if known.any() else 0.0
        scaled = np.where(known, (counts - mean) / (spread or 1.0), 0.0)
        columns.append(_MOMENT_WEIGHT * scaled[:, np.newaxis])
    return np.concatenate(columns, axis=1)


def _pool(
    units: Sequence[Places], bins: Bins, wanted: int, rng: np.random.Generator
) -> list[Places]:
    """The units in a seeded order; of more than `wanted` a sample with all bins in their shares."""
    order = rng.permutation(len(units))
    if len(units) > wanted:
        first = np.array([units[at][0] for at in order])
        kinds = [bins.lengths[first], bins.classes[first]]
        kinds += [] if bins.reuse is None else [bins.reuse[first]]
        by_bin = order[np.lexsort(kinds)]
        steps = (np.arange(wanted) * len(units) + rng.integers(len(units))) // wanted
        order = rng.permutation(by_bin[steps % len(units)])
    return [units[at] for at in order]


def _herd(pool: Sequence[Places], centred: Matrix, costs: Matrix, left: Floats) -> list[int]:
    """Places in `pool` in the order of choice; `left` is what then remains of the budgets."""
    sums = np.stack([centred[unit].sum(axis=0) for unit in pool])
    takes = np.stack([costs[unit].sum(axis=0) for unit in pool])
    sizes = np.array([len(unit) for unit in pool], dtype=np.float64)
    squares = (sums**2).sum(axis=1)
    state, count = np.zeros(centred.shape[1]), 0.0
    able: NDArray[np.bool_] = np.all(takes <= left + _ROUNDING, axis=1)
    at_once = max(1, math.ceil(float(left.sum() / takes.sum(axis=1).mean()) / STEPS))
    taken: list[int] = []
    while able.any():
        score = (state @ state + 2 * (sums @ state) + squares) / (count + sizes) ** 2
        score[~able] = math.inf
        for at in _smallest(score, at_once):
            if not able[at] or np.any(takes[at] > left + _ROUNDING):
                continue
            taken.append(at)
            able[at] = False
            state += sums[at]
            count += sizes[at]
            left -= takes[at]
        able &= np.all(takes <= left + _ROUNDING, axis=1)
    return taken


def _smallest(score: Floats, count: int) -> list[int]:
    if count == 1:
        return [int(score.argmin())]
    return [int(at) for at in np.argsort(score, kind="stable")[:count]]


def _fill(
    rest: Sequence[Places], costs: Matrix, left: Floats, state: _State
) -> tuple[list[int], int]:
    """Beginnings of units that did not fit whole: the requests, and from how many units."""
    waiting = list(rest)
    added: list[int] = []
    cut = 0
    while True:
        starts = [_beginning(unit, costs, left) for unit in waiting]
        able = [at for at, start in enumerate(starts) if len(start)]
        if not able:
            return added, cut
        now = _State(state.centred, [*state.chosen, *added])
        scores = [now.with_more(starts[at]) for at in able]
        best = able[scores.index(min(scores))]
        added += starts[best].tolist()
        left -= costs[starts[best]].sum(axis=0)
        cut += 1
        del waiting[best]


def _beginning(unit: Places, costs: Matrix, left: Floats) -> Places:
    """The first requests of a unit that fit into what is left."""
    fits: NDArray[np.bool_] = np.all(np.cumsum(costs[unit], axis=0) <= left + _ROUNDING, axis=1)
    return unit[: int(np.argmin(fits)) if not fits.all() else len(unit)]


def arrivals_like(arrival_s: Floats, count: int) -> Floats | None:
    """`count` times from 0 whose gaps vary as all gaps do, at the mean rate of all; None untimed.

    The gaps of the stretch of consecutive arrivals whose variation is nearest to that of all.
    """
    times: Floats = np.sort(arrival_s[np.isfinite(arrival_s)])
    if not count or len(times) < count or times[-1] <= times[0]:
        return None
    if len(times) == count:
        whole: Floats = times - times[0]
        return whole
    mean_gap = (times[-1] - times[0]) / (len(times) - 1)
    if count < _MIN_TIMES:
        even: Floats = np.arange(count) * mean_gap
        return even
    start = _nearest_stretch(np.diff(times), count - 1, gap_variation(times) or 0.0)
    stretch: Floats = times[start : start + count] - times[start]
    stretch *= mean_gap * (count - 1) / stretch[-1]
    return stretch


def _nearest_stretch(gaps: Floats, width: int, wanted: float) -> int:
    """Start of the `width` consecutive gaps whose variation is nearest; the first of equals."""
    sums = _windows(gaps, width)
    squares = _windows(gaps**2, width)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(np.maximum(squares / width - (sums / width) ** 2, 0.0))
        variation = spread / (sums / width)
    away = np.where(sums > 0, np.abs(variation - wanted), math.inf)
    return int(away.argmin())


def _windows(values: Floats, width: int) -> Floats:
    total = np.concatenate([np.zeros(1), np.cumsum(values)])
    sums: Floats = total[width:] - total[:-width]
    return sums
