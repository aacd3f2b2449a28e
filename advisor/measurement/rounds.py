"""The loads of a measurement by level: which one comes next, and what its repeats say together."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.estimate import Estimate, Source
from advisor.measurement.asked import MeasurePlan
from advisor.measurement.protocol.repeats import LEAST_REPEATS, half_width, pooled
from advisor.measurement.records import LoadPoint, LoopKind
from advisor.measurement.slo import least_requests
from advisor.traffic.figures import Quantiles

# A closed loop needs enough requests behind its ramp; small loads need fewer for the same time.
LEAST_REQUESTS = 20
REQUESTS_PER_SLOT = 10
LEAST_PER_SLOT = 4
# Not every request keeps the limits, even at a load that passes.
SLACK = 1.5
_SAME = 1e-9
_TIMES = ("ttft_s", "tpot_s", "e2e_s")
_PLACES = ("p50", "p95")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLoad:
    """One load: its level, which repeat of it (from 1), and how many requests it sends."""

    level: float
    repeat: int
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a level; `interval` is None where too little was seen to state one."""

    value: float
    interval: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What the loads of one level say together.

    `figures` are "output_tokens_per_s", "requests_per_s" and, where known, percentiles
    ("ttft_s p50", "tpot_s p95", ...), of the usable loads; of all where none is.
    """

    level: float
    loads: int
    usable: int
    figures: Mapping[str, Figure]
    flaws: tuple[str, ...]


def requests_of(plan: MeasurePlan, level: float) -> int:
    """How many requests a load of that level sends.

    At least as many as could show that the wanted share of them keeps the limits.
    """
    shown = 0 if plan.slo is None else math.ceil(SLACK * least_requests(plan.slo))
    if plan.kind is LoopKind.OPEN:
        return max(plan.requests, shown, math.ceil(plan.least_span_s * level))
    usual = min(plan.requests, max(LEAST_REQUESTS, math.ceil(REQUESTS_PER_SLOT * level)))
    return max(usual, shown, math.ceil(LEAST_PER_SLOT * level))


def level_of(load: LoadPoint) -> float:
    """Requests in flight of a closed loop, requests per second of an open one."""
    return float(load.concurrency) if load.open_loop is None else load.open_loop.rate_per_s


def of_level(loads: Sequence[LoadPoint], level: float) -> list[LoadPoint]:
    """The loads of that level, in the order of measuring."""
    return [load for load in loads if math.isclose(level_of(load), level, rel_tol=_SAME)]


def levels_of(loads: Iterable[LoadPoint]) -> list[float]:
    """Every level once, upwards."""
    found: list[float] = []
    for level in sorted(level_of(load) for load in loads):
        if not found or not math.isclose(found[-1], level, rel_tol=_SAME):
            found.append(level)
    return found


def next_repeat(
    plan: MeasurePlan, loads: Sequence[LoadPoint], levels: Sequence[float]
) -> PlannedLoad | None:
    """The next load that `levels` still need; None when all are known as well as they can be.

    Every level once, upwards; then round by round those that are not precise yet, downwards and
    upwards in turn, so that a drift of the server does not follow the level. A useless load counts
    as a repeat, so that the number of loads is bounded.
    """
    made = {level: len(of_level(loads, level)) for level in levels}
    wanting = sorted(level for level in made if _needs_more(plan, of_level(loads, level)))
    if not wanting:
        return None
    fewest = min(made[level] for level in wanting)
    turn = [level for level in wanting if made[level] == fewest]
    level = turn[-1] if fewest % 2 else turn[0]
    return PlannedLoad(level=level, repeat=fewest + 1, requests=requests_of(plan, level))


def _needs_more(plan: MeasurePlan, mine: Sequence[LoadPoint]) -> bool:
    if not mine:
        return True
    return len(mine) < plan.most_repeats and not precise(plan, mine)


def precise(plan: MeasurePlan, mine: Sequence[LoadPoint]) -> bool:
    """Whether a level's interval is as narrow as asked.

    Of a closed loop that is output tokens per second. An open loop has the rate that it was asked
    for, so that there it is the mean time of a request.
    """
    values = _known(_judged(load) for load in mine if load.usable)
    return len(values) >= LEAST_REPEATS and half_width([values]) <= plan.precision


def _judged(load: LoadPoint) -> float | None:
    if load.open_loop is None:
        return load.throughput_tokens_per_s.value
    return None if load.e2e_s is None else load.e2e_s.mean


def expected_s(loads: Sequence[LoadPoint], planned: PlannedLoad) -> float:
    """How long a load may take, going by those that were made; 0 when nothing is known."""
    mine = of_level(loads, planned.level) or loads[-1:]
    return max((load.duration_s for load in mine), default=0.0)


def level_figures(loads: Sequence[LoadPoint], source: Source) -> tuple[Level, ...]:
    """What was measured, level by level."""
    return tuple(_level(level, of_level(loads, level), source) for level in levels_of(loads))


def _level(level: float, mine: Sequence[LoadPoint], source: Source) -> Level:
    usable = [load for load in mine if load.usable]
    counted = usable or mine
    figures = {
        "output_tokens_per_s": _throughput(counted, source),
        "requests_per_s": _figure([load.requests_per_s for load in counted], None, source),
    }
    for name in _TIMES:
        for place in _PLACES:
            said = _percentile(counted, name, place, source)
            if said is not None:
                figures[f"{name} {place}"] = said
    flaws = dict.fromkeys(flaw for load in mine for flaw in load.flaws)
    return Level(
        level=level,
        loads=len(mine),
        usable=len(usable),
        figures=figures,
        flaws=tuple(flaws),
    )


def _throughput(loads: Sequence[LoadPoint], source: Source) -> Figure:
    values = [load.throughput_tokens_per_s.value for load in loads]
    return _figure(values, loads[0].throughput_tokens_per_s, source)


def _percentile(loads: Sequence[LoadPoint], name: str, place: str, source: Source) -> Figure | None:
    """Mean of the repeats' percentiles; of one load its own order-statistic interval."""
    seen: list[Quantiles | None] = [getattr(load, name) for load in loads]
    values = [float(getattr(one, place)) for one in seen if one is not None]
    if not values:
        return None
    return _figure(values, loads[0].intervals.get(f"{name} {place}"), source)


def _figure(values: Sequence[float], single: Estimate | None, source: Source) -> Figure:
    """`single` is what one load says of itself, for where there is only one.

    Of an engine of ours the interval is about its settings, so that how starts differ is in it. A
    server that is never restarted is measured as it runs.
    """
    if len(values) == 1:
        interval = None if single is None else replace(single, source=source)
        return Figure(value=values[0], interval=interval)
    mean = pooled([values])
    if source is Source.MEASURED:
        return Figure(value=mean.value, interval=mean)
    wide = 1 + half_width([values])
    basis = f"{len(values)} repeats on the server as it runs, t interval; no restart is in it"
    running = Estimate(
        value=mean.value, low=mean.value / wide, high=mean.value * wide, source=source, basis=basis
    )
    return Figure(value=mean.value, interval=running)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
