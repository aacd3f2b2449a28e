"""Deals the requests of one load out to several client processes."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.errors import InvalidInput
from probes.load.plan import LoadPlan, PlannedRequest
from probes.load.schedule import Schedule


def split_plan(plan: LoadPlan, processes: int) -> list[LoadPlan]:
    """At most `processes` plans that together send what `plan` sends, from the same start on.

    Sessions stay whole and slots are shared out, each process with its share of the requests.
    Gangs wait for each other, so they stay in one process.
    """
    if processes < 1:
        raise InvalidInput("processes", f"{processes} is below 1")
    slots = plan.schedule.concurrency
    units = _units(plan.requests)
    count = 1 if plan.schedule.gang else min(processes, len(units), slots or len(units))
    shares = [_share(slots, count, part) for part in range(count)]
    dealt: list[list[int]] = [[] for _ in range(count)]
    for unit in units:
        # To the process with the fewest requests for its slots; the first of equals.
        least = min(range(count), key=lambda part: (len(dealt[part]) / (shares[part] or 1), part))
        dealt[least] += unit
    return [
        replace(
            plan,
            requests=tuple(plan.requests[index] for index in sorted(indexes)),
            schedule=_schedule(plan.schedule, sorted(indexes), shares[part], part / count),
        )
        for part, indexes in enumerate(dealt)
    ]


def _units(requests: Sequence[PlannedRequest]) -> list[list[int]]:
    """Places of requests that belong together: a session's, and each of the others alone."""
    units: dict[tuple[str, object], list[int]] = {}
    for index, request in enumerate(requests):
        key = ("request", index) if request.session is None else ("session", request.session)
        units.setdefault(key, []).append(index)
    return list(units.values())


def _share(slots: int | None, count: int, part: int) -> int | None:
    return None if slots is None else slots // count + (part < slots % count)


def _schedule(whole: Schedule, indexes: list[int], slots: int | None, shift: float) -> Schedule:
    offsets_s = whole.offsets_s
    return replace(
        whole,
        concurrency=slots,
        offsets_s=None if offsets_s is None else tuple(offsets_s[index] for index in indexes),
        ramp_shift=shift if whole.ramp_s else 0.0,
    )
