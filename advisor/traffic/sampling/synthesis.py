"""Derived traffic: the same at another rate, longer or shorter, several together, longer answers.

A `Plan` is made of arrival times and sessions alone, so that rows need not be in memory; it is then
carried out on columns (`facts_by`, for statistics) or on requests (`requests_by`, for a workload).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.errors import InvalidInput
from advisor.traffic.facts import ESTIMATED, Codes, Facts, Floats, Integers, join_facts
from advisor.traffic.sampling.subset import session_units
from advisor.traffic.trace import Request

_NS_PER_S = 1e9
_BLOCK_MARK = 0x5DEECE66D2B7E151


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What to make of the sources.

    `rate` is how many times as fast requests arrive: all gaps are divided by it. `requests` is how
    many to draw (None: each as often as it is). `outputs` is by how much outputs are longer, for
    requests without text only. `label_by_source` puts the source's name before every class.
    """

    rate: float = 1.0
    requests: int | None = None
    seed: int = 0
    outputs: float = 1.0
    label_by_source: bool = False

    def __post_init__(self) -> None:
        for name, value in (("rate", self.rate), ("outputs", self.outputs)):
            if not (math.isfinite(value) and value > 0):
                raise InvalidInput(name, "not a number above 0")
        if self.requests is not None and self.requests < 1:
            raise InvalidInput("requests", "not at least 1")

    def described(self, names: Sequence[str]) -> str:
        """One sentence about where the traffic comes from."""
        parts = [f"derived from {' and '.join(names)}"]
        if self.requests is not None:
            parts.append(f"{self.requests} requests drawn by sessions (seed {self.seed})")
        if self.rate != 1:
            parts.append(f"at {self.rate:g} times the rate")
        if self.outputs != 1:
            parts.append(f"with outputs {self.outputs:g} times as long")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timing:
    """Of one source, by request in order of arrival: times (NaN where unknown), session codes.

    `starts_s` is when its clock started after that of the earliest source.
    """

    arrival_s: Floats
    session: Codes
    starts_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Which requests follow one another and when: request `places[i]` of source `sources[i]`.

    Times are from 0 in order, NaN last. `copies[i]` is 0 where its session is drawn for the first
    time, 1 for the second and so on.
    """

    sources: Integers
    places: Integers
    arrivals_s: Floats
    copies: Integers

    def __len__(self) -> int:
        return len(self.places)

    @property
    def repeats(self) -> int:
        """Requests that are further copies of others."""
        return int((self.copies > 0).sum())

    def warnings(self) -> tuple[str, ...]:
        """What the derived traffic cannot say."""
        if not self.repeats:
            return ()
        many = f"{self.repeats} of {len(self)} requests repeat a session that was drawn before"
        return (f"{many}, with its text: reuse of prefixes and of past answers is overstated",)


def plan_of(parts: Sequence[Timing], recipe: Recipe) -> Plan:
    """Sources side by side on one clock, drawn anew where a number is asked for, then faster.

    Drawing is a moving-block bootstrap: stretches of consecutive sessions, each stretch as long as
    the square root of their number, with the gaps between their starts and with all of their
    turns, until there are enough requests; of the last session the end may be missing. So bursts,
    think times, classes and reuse within sessions stay.
    """
    if not parts or not all(len(part.arrival_s) for part in parts):
        raise InvalidInput("workloads", "nothing to derive from")
    plan = _together(parts)
    if recipe.requests is not None:
        plan = _drawn(plan, _joint_sessions(plan, parts), recipe.requests, recipe.seed)
    return replace(plan, arrivals_s=plan.arrivals_s / recipe.rate)


def _together(parts: Sequence[Timing]) -> Plan:
    times = np.concatenate([part.arrival_s + part.starts_s for part in parts])
    order = np.argsort(times, kind="stable")  # NaN comes last
    known = times[np.isfinite(times)]
    return Plan(
        sources=np.repeat(np.arange(len(parts)), [len(part.arrival_s) for part in parts])[order],
        places=np.concatenate([np.arange(len(part.arrival_s)) for part in parts])[order],
        arrivals_s=times[order] - (known.min() if len(known) else 0.0),
        copies=np.zeros(len(times), dtype=np.int64),
    )


def _joint_sessions(plan: Plan, parts: Sequence[Timing]) -> Integers:
    """A name per request of the plan: that of its session in its source, else one of its own."""
    counts = np.array([int(part.session.max(initial=-1)) + 1 for part in parts])
    firsts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    session = np.empty(len(plan), dtype=np.int64)
    for source, part in enumerate(parts):
        here = plan.sources == source
        session[here] = part.session[plan.places[here]]
    alone = firsts[-1] + np.arange(len(plan))
    return np.where(session < 0, alone, firsts[plan.sources] + session)


def _drawn(plan: Plan, names: Integers, count: int, seed: int) -> Plan:
    units = session_units(names)
    sizes = np.array([len(unit) for unit in units])
    starts = np.array([plan.arrivals_s[unit[0]] for unit in units])
    drawn = _blocks(sizes, count, np.random.default_rng(seed))
    begins = np.cumsum(_gaps(starts)[drawn])
    begins -= begins[0]
    taken = np.concatenate([units[at] for at in drawn])[:count]
    lengths = sizes[drawn]
    unit_of = np.repeat(np.arange(len(drawn)), lengths)[:count]
    within = plan.arrivals_s[taken] - starts[drawn][unit_of]
    times = begins[unit_of] + within
    order = np.argsort(times, kind="stable")
    return Plan(
        sources=plan.sources[taken][order],
        places=plan.places[taken][order],
        arrivals_s=times[order],
        copies=_occurrences(drawn)[unit_of][order],
    )


def _gaps(starts: Floats) -> Floats:
    """Time from the start of the unit before; for the first the mean, for untimed ones 0."""
    gaps = np.diff(starts, prepend=math.nan)
    known = gaps[np.isfinite(gaps)]
    gaps[0] = known.mean() if len(known) else 0.0
    return np.where(np.isfinite(gaps), gaps, 0.0)


def _blocks(sizes: Integers, count: int, rng: np.random.Generator) -> Integers:
    """Numbers of units in stretches of consecutive ones until they hold `count` requests."""
    length = max(1, round(math.sqrt(len(sizes))))
    drawn = np.empty(0, dtype=np.int64)
    while True:
        short = count - int(sizes[drawn].sum())
        if short <= 0:
            break
        stretches = math.ceil(short / (float(sizes.mean()) * length))
        begins = rng.integers(len(sizes), size=stretches)
        more = (begins[:, np.newaxis] + np.arange(length)) % len(sizes)
        drawn = np.concatenate([drawn, more.ravel()])
    enough = int(np.searchsorted(np.cumsum(sizes[drawn]), count)) + 1
    return drawn[:enough]


def _occurrences(values: Integers) -> Integers:
    """How often each value stood before its place."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    firsts = np.searchsorted(ordered, ordered, side="left")
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.arange(len(values)) - firsts
    return found


def requests_by(
    plan: Plan,
    fetch: Callable[[int, int], Request],
    recipe: Recipe,
    names: Sequence[str],
) -> Iterator[Request]:
    """The requests of the plan with ids, sessions and block ids of their own.

    ``fetch(source, place)`` gives a request of a source, `names` are those of the sources. Times
    are whole nanoseconds.
    """
    for index in range(len(plan)):
        source, copy = int(plan.sources[index]), int(plan.copies[index])
        request = fetch(source, int(plan.places[index]))
        arrival_s = float(plan.arrivals_s[index])
        outputs = _stretched(request, recipe.outputs)
        mark = source if len(names) > 1 else None
        yield replace(
            request,
            id=f"r{index + 1}",
            index=index,
            line=index + 1,
            arrival_s=round(arrival_s * _NS_PER_S) / _NS_PER_S
            if math.isfinite(arrival_s)
            else None,
            source_id=_renamed(request.source_id, mark, copy),
            session=_renamed(request.session, mark, copy),
            label=_label(request.label, names[source]) if recipe.label_by_source else request.label,
            block_ids=_marked(request.block_ids, source),
            cluster=None,
            output_tokens=outputs,
            max_tokens=_scaled(request.max_tokens, recipe.outputs),
        )


def _renamed(name: str | None, source: int | None, copy: int) -> str | None:
    if name is None:
        return None
    return (f"{source + 1}/" if source is not None else "") + name + (f"~{copy}" if copy else "")


def _label(label: str | None, name: str) -> str:
    return name if label is None else f"{name}: {label}"


def _marked(block_ids: tuple[int, ...] | None, source: int) -> tuple[int, ...] | None:
    """Block ids of one source are equal to none of another."""
    if block_ids is None or not source:
        return block_ids
    mark = (_BLOCK_MARK * source) & (1 << 62) - 1
    return tuple(block ^ mark for block in block_ids)


def _stretched(request: Request, factor: float) -> int | None:
    if factor != 1 and request.has_text:
        raise InvalidInput("outputs", "answers with text cannot be made longer; use lengths only")
    return _scaled(request.output_tokens, factor)


def _scaled(count: int | None, factor: float) -> int | None:
    if count is None or factor == 1:
        return count
    return max(1, round(count * factor)) if count else 0


def facts_by(plan: Plan, parts: Sequence[Facts], recipe: Recipe, names: Sequence[str]) -> Facts:
    """The columns of the plan: what statistics say about traffic that nobody has sent yet."""
    sizes = [len(part) for part in parts]
    firsts = np.cumsum([0, *sizes[:-1]])
    whole = join_facts(_kept_apart(parts, recipe, names))
    found = whole.take(firsts[plan.sources] + plan.places)
    return replace(
        found,
        arrival_s=plan.arrivals_s,
        session=_session_copies(found.session, plan.copies),
        output_tokens=_scaled_column(found.output_tokens, recipe.outputs),
        max_tokens=_scaled_column(found.max_tokens, recipe.outputs),
        answer=found.answer if recipe.outputs == 1 else np.zeros_like(found.answer),
        output_source=found.output_source
        if recipe.outputs == 1
        else np.where(found.output_tokens < 0, found.output_source, ESTIMATED).astype(np.int8),
    )


def _kept_apart(parts: Sequence[Facts], recipe: Recipe, names: Sequence[str]) -> list[Facts]:
    """The parts with sessions numbered on, and labels by source where that is asked for."""
    apart: list[Facts] = []
    free = 0
    for part, name in zip(parts, names, strict=True):
        session = np.where(part.session < 0, -1, part.session + free).astype(np.int32)
        free = max(free, int(session.max(initial=-1)) + 1)
        changed = replace(part, session=session)
        if recipe.label_by_source:
            changed = replace(
                changed,
                label=(part.label + 1).astype(np.int32),
                labels=(_label(None, name), *(_label(label, name) for label in part.labels)),
                clustered=False,
            )
        apart.append(changed)
    return apart


def _session_copies(session: Codes, copies: Integers) -> Codes:
    """Every copy of a session is a session of its own."""
    pairs = session.astype(np.int64) * (int(copies.max(initial=0)) + 1) + copies
    _, back = np.unique(pairs, return_inverse=True)
    return np.where(session < 0, -1, back).astype(np.int32)


def _scaled_column(counts: Integers, factor: float) -> Integers:
    if factor == 1:
        return counts
    longer = np.maximum(1, np.rint(counts * factor)).astype(np.int64)
    return np.where(counts > 0, longer, counts)


def timing_of(requests: Sequence[Request], *, sessions: dict[str, int] | None = None) -> Timing:
    """Times and sessions of requests in memory; parts of one source share `sessions`."""
    numbers = {} if sessions is None else sessions
    for request in requests:
        if request.session is not None:
            numbers.setdefault(request.session, len(numbers))
    return Timing(
        arrival_s=np.array(
            [math.nan if item.arrival_s is None else item.arrival_s for item in requests]
        ),
        session=np.array(
            [-1 if item.session is None else numbers[item.session] for item in requests],
            dtype=np.int32,
        ),
    )


def derived(
    workloads: Sequence[Sequence[Request]], recipe: Recipe, names: Sequence[str]
) -> tuple[Request, ...]:
    """Derived traffic of requests in memory, all sources started together."""
    plan = plan_of([timing_of(requests) for requests in workloads], recipe)
    return tuple(requests_by(plan, lambda source, place: workloads[source][place], recipe, names))


def derived_facts(parts: Sequence[Facts], recipe: Recipe, names: Sequence[str]) -> Facts:
    """Derived traffic as columns: the what-if for statistics and forecasts."""
    timings = [Timing(arrival_s=part.arrival_s, session=part.session) for part in parts]
    return facts_by(plan_of(timings, recipe), parts, recipe, names)
