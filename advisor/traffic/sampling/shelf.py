"""Sources of derived traffic in stored parts, and what is made of them line by line."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.errors import InvalidInput
from advisor.traffic.columns import requests_from_parquet
from advisor.traffic.formats.rooftune import row_of
from advisor.traffic.sampling.synthesis import Plan, Recipe, Timing, plan_of, requests_by, timing_of
from advisor.traffic.trace import Request, TraceReport

# Parts that are unpacked at a time; drawing and merging go through them nearly in order.
UNPACKED = 4


class Shelf:
    """Requests of one source by place; ``load(n)`` gives stored part n of `parts` as Parquet."""

    def __init__(self, parts: int, load: Callable[[int], bytes]) -> None:
        self._parts = parts
        self._load = load
        self._unpacked: OrderedDict[int, tuple[Request, ...]] = OrderedDict()
        self._ends = np.empty(0, dtype=np.int64)

    def timing(self, starts_s: float) -> Timing:
        """Times and sessions of all requests; to be asked for first."""
        sessions: dict[str, int] = {}
        found = []
        sizes = []
        for number in range(self._parts):
            part = requests_from_parquet(self._load(number))
            sizes.append(len(part))
            found.append(timing_of(part, sessions=sessions))
        self._ends = np.cumsum(sizes)
        return Timing(
            arrival_s=np.concatenate([part.arrival_s for part in found]),
            session=np.concatenate([part.session for part in found]),
            starts_s=starts_s,
        )

    def fetch(self, place: int) -> Request:
        """One request."""
        number = int(np.searchsorted(self._ends, place, side="right"))
        if number not in self._unpacked:
            self._unpacked[number] = requests_from_parquet(self._load(number))
            if len(self._unpacked) > UNPACKED:
                self._unpacked.popitem(last=False)
        self._unpacked.move_to_end(number)
        part = self._unpacked[number]
        return part[place - int(self._ends[number]) + len(part)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """One workload that others are derived from: its name, the report on it, its requests."""

    name: str
    report: TraceReport
    shelf: Shelf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Derivation:
    """Traffic to be written: its plan, and its lines as `formats.rooftune` reads them."""

    plan: Plan
    lines: Iterator[str]


def derivation(sources: Sequence[Source], recipe: Recipe, *, by_time: bool = False) -> Derivation:
    """Plan and lines of derived traffic.

    The sources start together, or with `by_time` as far apart as their logs did. Raises
    `InvalidInput` where a log does not say when it began, where block ids are of several sizes, or
    for nothing to derive from.
    """
    block_tokens = _block_tokens(sources)
    starts = _starts_s(sources) if by_time else [0.0] * len(sources)
    timings = [source.shelf.timing(start) for source, start in zip(sources, starts, strict=True)]
    plan = plan_of(timings, recipe)
    requests = requests_by(
        plan,
        lambda source, place: sources[source].shelf.fetch(place),
        recipe,
        [source.name for source in sources],
    )
    return Derivation(plan=plan, lines=(row_of(request, block_tokens) for request in requests))


def _block_tokens(sources: Sequence[Source]) -> int | None:
    sizes = {source.report.block_tokens for source in sources} - {None}
    if len(sizes) > 1:
        known = ", ".join(str(size) for size in sorted(size for size in sizes if size is not None))
        raise InvalidInput("workloads", f"their block ids are of {known} tokens each: not one size")
    return next(iter(sizes), None)


def _starts_s(sources: Sequence[Source]) -> list[float]:
    """When each source began after the first, from what their logs say."""
    starts: list[float] = []
    for source in sources:
        if source.report.started_epoch_s is None:
            raise InvalidInput("by_time", f"{source.name} does not say when it began")
        starts.append(source.report.started_epoch_s)
    return [start - min(starts) for start in starts]
