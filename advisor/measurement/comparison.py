"""Two servers, or two settings of one engine, side by side: pairs of loads, A B B A."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.estimate import Source
from advisor.measurement.asked import LEAST_PAIRS
from advisor.measurement.comparable import pair_flaws
from advisor.measurement.protocol.pairs import Arm, Change, Comparison, compare, holm
from advisor.measurement.records import LoadPoint
from advisor.measurement.report import Rank
from advisor.traffic.figures import Quantiles

THROUGHPUT = "output_tokens_per_s"
Read = Callable[[LoadPoint], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedLoad:
    """A load of one arm; `pair` counts from 1, `level` is as in a `MeasurePlan`."""

    arm: Arm
    pair: int
    level: float
    point: LoadPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """B against A at one level.

    `figures` are "output_tokens_per_s" (of a closed loop; an open one has the rate that it was
    asked for), "ttft_s p50", "tpot_s p50" and "e2e_s p50"; a gain above 1 is better, times
    included. Their changes are those that may be told when all of a report are looked at together
    (Holm). `pairs` were used of `made`; `flaws` are what was said of single loads and pairs.
    """

    level: float
    made: int
    pairs: int
    figures: Mapping[str, Comparison]
    flaws: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """One side: where it is or what it was started with, its engine and its model."""

    title: str
    model: str
    engine: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """A comparison with all of its loads; `plan_digest`, `complete`: as in a MeasurementReport.

    `rank` is the weaker one of both sides.
    """

    rank: Rank
    tool_version: str
    a: ComparedSide
    b: ComparedSide
    started_epoch_s: float
    loads: tuple[PairedLoad, ...]
    levels: tuple[Compared, ...]
    remarks: tuple[str, ...]
    plan_digest: str
    complete: bool


def _median(name: str) -> Read:
    def read(point: LoadPoint) -> float | None:
        found: Quantiles | None = getattr(point, name)
        return None if found is None else found.p50

    return read


def _throughput(point: LoadPoint) -> float | None:
    return point.throughput_tokens_per_s.value if point.open_loop is None else None


_FIGURES: Mapping[str, Read] = {
    THROUGHPUT: _throughput,
    "ttft_s p50": _median("ttft_s"),
    "tpot_s p50": _median("tpot_s"),
    "e2e_s p50": _median("e2e_s"),
}


def compared_levels(
    loads: Sequence[PairedLoad], *, source: Source, caching_differs: bool
) -> tuple[Compared, ...]:
    """What the pairs of every level say; a pair that is not whole is left out.

    `caching_differs`: prefix caching may differ between the sides, so that hits may as well.
    """
    levels = sorted({load.level for load in loads})
    found = [_level(level, loads, source, caching_differs=caching_differs) for level in levels]
    every = [(place, name) for place, item in enumerate(found) for name in item.figures]
    changes = holm([found[place].figures[name] for place, name in every])
    told: list[dict[str, Comparison]] = [{} for _ in found]
    for (place, name), change in zip(every, changes, strict=True):
        told[place][name] = replace(found[place].figures[name], change=change)
    return tuple(replace(item, figures=new) for item, new in zip(found, told, strict=True))


def worst_change(levels: Sequence[Compared]) -> Change:
    """What a gate may go by: HURTS where any figure does, else HELPS, NEUTRAL, UNKNOWN."""
    seen = {item.change for level in levels for item in level.figures.values()}
    order = (Change.HURTS, Change.HELPS, Change.UNKNOWN, Change.NEUTRAL)
    return next((change for change in order if change in seen), Change.UNKNOWN)


def _level(
    level: float, loads: Sequence[PairedLoad], source: Source, *, caching_differs: bool
) -> Compared:
    pairs = _pairs([load for load in loads if load.level == level])
    good: list[tuple[LoadPoint, LoadPoint]] = []
    flaws: list[str] = []
    for before, after in pairs:
        apart = pair_flaws(before, after, caching_differs=caching_differs)
        flaws += (*before.flaws, *after.flaws, *apart)
        if before.usable and after.usable and not apart:
            good.append((before, after))
    return Compared(
        level=level,
        made=len(pairs),
        pairs=len(good),
        figures=_compared(good, source),
        flaws=tuple(dict.fromkeys(flaws)),
    )


def _pairs(loads: Sequence[PairedLoad]) -> list[tuple[LoadPoint, LoadPoint]]:
    """(A, B) of every whole pair, in order."""
    by_pair: dict[int, dict[Arm, LoadPoint]] = {}
    for load in loads:
        by_pair.setdefault(load.pair, {})[load.arm] = load.point
    return [(pair[Arm.A], pair[Arm.B]) for pair in by_pair.values() if len(pair) == len(Arm)]


def _compared(
    pairs: Sequence[tuple[LoadPoint, LoadPoint]], source: Source
) -> dict[str, Comparison]:
    """By figure; without those that fewer than two pairs have."""
    found = {}
    for name, read in _FIGURES.items():
        read_pairs = [(read(before), read(after)) for before, after in pairs]
        values = [(a, b) for a, b in read_pairs if a is not None and b is not None and a * b > 0]
        if len(values) < LEAST_PAIRS:
            continue
        comparison = compare(values, higher_is_better=name == THROUGHPUT)
        found[name] = replace(comparison, gain=replace(comparison.gain, source=source))
    return found
